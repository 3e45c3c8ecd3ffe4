#include "scratch_folder.hpp"

#include <stdlib.h>

#include <cerrno>
#include <system_error>

namespace flatshard_test {

ScratchFolder::ScratchFolder()
    : path_((std::filesystem::temp_directory_path() / "flatshard-XXXXXX").string()) {
  if (::mkdtemp(path_.data()) == nullptr)
    throw std::system_error(errno, std::generic_category(), path_);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace flatshard_test
