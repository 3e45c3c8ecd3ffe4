#include <flatshard/core/error.hpp>

namespace flatshard::detail {

void throw_usage_error(const std::string& message, const char* file, int line) {
  throw UsageError(message, {file, line});
}

}  // namespace flatshard::detail
