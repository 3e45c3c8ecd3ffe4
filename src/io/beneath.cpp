#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include "beneath.hpp"

namespace flatshard::detail {
namespace {

#if defined(SYS_openat2)
// As <linux/openat2.h> has it; older C libraries come without.
struct HowToOpen {
  std::uint64_t flags, mode, resolve;
};
constexpr std::uint64_t no_magic_links = 0x02, no_symbolic_links = 0x04, beneath = 0x08;

int open_by_kernel(int folder, const std::string& path, int flags, unsigned mode) {
  const HowToOpen how{static_cast<std::uint64_t>(flags), (flags & O_CREAT) != 0 ? mode : 0U,
                      no_magic_links | no_symbolic_links | beneath};
  const long file = ::syscall(SYS_openat2, folder, path.c_str(), &how, sizeof how);
  return file < 0 ? -errno : static_cast<int>(file);
}
#else
int open_by_kernel(int, const std::string&, int, unsigned) { return -ENOSYS; }
#endif

std::pair<std::string, std::string> split_first(const std::string& path) {
  const auto slash = path.find('/');
  if (slash == std::string::npos) return {path, {}};
  const auto next = path.find_first_not_of('/', slash);
  return {path.substr(0, slash), next == std::string::npos ? std::string() : path.substr(next)};
}

// Of a component that should be a folder, a symbolic link gives ENOTDIR on Linux.
int open_component(int folder, const std::string& name, int flags, unsigned mode) {
  const int file = ::openat(folder, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, mode);
  if (file >= 0) return file;
  char ignored = 0;
  const int code = errno;
  const bool is_link = ::readlinkat(folder, name.c_str(), &ignored, 1) >= 0;
  return is_link && code != EEXIST ? -ELOOP : -code;
}

}  // namespace

int open_by_components(int folder, const std::string& path, int flags, unsigned mode) {
  if (path.empty()) return -ENOENT;
  auto [name, rest] = split_first(path);
  if (name.empty() || name == "..") return -EXDEV;
  if (rest.empty()) return open_component(folder, name, flags, mode);
  const int inner = open_component(folder, name, O_RDONLY | O_DIRECTORY, 0);
  if (inner < 0) return inner;
  const int file = open_by_components(inner, rest, flags, mode);
  ::close(inner);
  return file;
}

int open_beneath(int folder, const std::string& path, int flags, unsigned mode) {
  // A name with a NUL would be cut there by the system.
  if (path.find('\0') != std::string::npos) return -EINVAL;
  int file = open_by_kernel(folder, path, flags, mode);
  // EAGAIN: a rename somewhere on the system disturbed the walk. EPERM: a sandbox that knows no
  // openat2.
  for (int tries = 0; file == -EAGAIN && tries < 100; ++tries)
    file = open_by_kernel(folder, path, flags, mode);
  const bool unknown = file == -ENOSYS || file == -EPERM || file == -E2BIG || file == -EAGAIN;
  return unknown ? open_by_components(folder, path, flags, mode) : file;
}

}  // namespace flatshard::detail
