#include "files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "error.hpp"

namespace flatshard_tool {
namespace {

constexpr std::size_t most_bytes = std::size_t{16} << 20;

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw FileError(fmt::format("{} cannot be {}: {}", path, what, std::strerror(errno)));
}

/// An open file that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ > STDERR_FILENO) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace

std::string read_text(const std::string& path) {
  const Descriptor file(path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) fail(path, "opened");
  std::string text;
  char part[65536];
  for (;;) {
    const ssize_t count = read(file.number(), part, sizeof part);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path, "read");
    if (count == 0) return text;
    text.append(part, static_cast<std::size_t>(count));
    if (text.size() > most_bytes)
      throw FileError(fmt::format("{} is larger than {} bytes", path, most_bytes));
  }
}

void write_new_file(const std::string& path, std::string_view text) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.number() < 0) fail(path, "created");
  while (!text.empty()) {
    const ssize_t count = write(file.number(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path, "written");
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace flatshard_tool
