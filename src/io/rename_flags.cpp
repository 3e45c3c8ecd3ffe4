#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cerrno>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "rename_flags.hpp"

namespace flatshard::detail {
namespace {

#if defined(SYS_renameat2)
constexpr unsigned no_replace = 1, exchange = 2;

int rename_by_kernel(int from_folder, const std::string& from, int to_folder, const std::string& to,
                     Existing existing) {
  const unsigned flags = existing == Existing::Refuse ? no_replace : exchange;
  const long result =
      ::syscall(SYS_renameat2, from_folder, from.c_str(), to_folder, to.c_str(), flags);
  return result < 0 ? -errno : 0;
}
#else
int rename_by_kernel(int, const std::string&, int, const std::string&, Existing) { return -ENOSYS; }
#endif

int rename_if_free(int from_folder, const std::string& from, int to_folder, const std::string& to) {
  struct ::stat found = {};
  if (::fstatat(to_folder, to.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0) return -EEXIST;
  if (errno != ENOENT) return -errno;
  return ::renameat(from_folder, from.c_str(), to_folder, to.c_str()) < 0 ? -errno : 0;
}

}  // namespace

int rename_with_flags(int from_folder, const std::string& from, int to_folder,
                      const std::string& to, Existing existing) {
  const int result = rename_by_kernel(from_folder, from, to_folder, to, existing);
  const bool unknown = result == -EINVAL || result == -ENOSYS;
  if (!unknown || existing == Existing::Exchange) return result;
  return rename_if_free(from_folder, from, to_folder, to);
}

}  // namespace flatshard::detail
