#include <flatshard/io/integrity_error.hpp>

#include <cerrno>

namespace flatshard {

IntegrityError::IntegrityError(const std::string& operation, const std::string& path, Bytes offset,
                               const std::string& detail)
    : IoError(operation, path, offset, EBADMSG, detail) {}

}  // namespace flatshard
