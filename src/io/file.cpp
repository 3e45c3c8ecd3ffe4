#include <flatshard/io/file.hpp>

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <limits>
#include <thread>
#include <utility>

namespace flatshard {
namespace {

// Interruptions in a row, without a byte moved, after which a transfer gives up.
constexpr int most_interruptions = 10000;
// A pipe under the name must not block the open; of regular files the flag means nothing.
constexpr int always = O_NONBLOCK | O_NOCTTY;
constexpr unsigned for_all = 0666;  // less the process's umask

bool is_interruption(std::int64_t result) { return result == -EINTR || result == -EAGAIN; }

/// Calls move(bytes done) until `bytes` are done. It returns what pread and pwrite return.
template <class Move>
void transfer(const char* operation, const std::string& path, Bytes offset, Bytes bytes,
              int code_of_nothing, Move move) {
  int interruptions = 0;
  for (Bytes done = 0; done < bytes;) {
    const std::int64_t moved = move(done);
    if (moved > 0) {
      done += moved;
      interruptions = 0;
    } else if (is_interruption(moved) && ++interruptions < most_interruptions) {
      std::this_thread::yield();
    } else {
      const int code = moved == 0 ? code_of_nothing : static_cast<int>(-moved);
      throw IoError(operation, path, offset + done, code,
                    fmt::format("{} of {} bytes from byte {} on", done, bytes, offset));
    }
  }
}

void expect_range(const char* operation, const std::string& path, Bytes offset, std::size_t bytes) {
  constexpr auto most = std::numeric_limits<Bytes>::max();
  const bool fits = offset >= 0 && bytes <= static_cast<std::size_t>(most) &&
                    offset <= most - static_cast<Bytes>(bytes);
  if (!fits) throw IoError(operation, path, offset, EINVAL, fmt::format("{} bytes", bytes));
}

void expect(int result, const char* operation, const std::string& path, Bytes offset = -1) {
  if (result < 0) throw IoError(operation, path, offset, -result);
}

/// The call again as long as a signal interrupts it.
template <class Call>
int uninterrupted(Call call) {
  int result = call();
  for (int tries = 1; result == -EINTR && tries < most_interruptions; ++tries) result = call();
  return result;
}

int opened(const char* operation, const std::string& path, int flags, FileOperations& operations) {
  const int file = uninterrupted([&] {
    return operations.open(FileOperations::working_folder, path, flags | always, for_all);
  });
  expect(file, operation, path);
  return file;
}

int code_of(FileKind kind) { return kind == FileKind::Folder ? EISDIR : EINVAL; }

}  // namespace

File File::open_for_reading(const std::string& path, FileOperations& operations) {
  return adopt(opened("open for reading", path, O_RDONLY, operations), path, operations);
}

File File::create(const std::string& path, FileOperations& operations) {
  constexpr int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;
  return adopt(opened("create", path, flags, operations), path, operations);
}

File File::open_for_writing(const std::string& path, FileOperations& operations) {
  return adopt(opened("open for writing", path, O_RDWR | O_NOFOLLOW, operations), path, operations);
}

File File::adopt(int descriptor, const std::string& path, FileOperations& operations) {
  File file(descriptor, path, operations);
  FileStatus status;
  expect(operations.fstat(descriptor, status), "open", path);
  if (status.kind != FileKind::Regular)
    throw IoError("open", path, -1, code_of(status.kind), "not a regular file");
  return file;
}

std::optional<File> File::reopen_past_cache() const {
  const int file = operations_->reopen_past_cache(descriptor_);
  if (file < 0) return std::nullopt;
  return File(file, path_, *operations_);
}

File::File(File&& other) noexcept
    : operations_(other.operations_),
      path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      lost_(other.lost_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(operations_, other.operations_);
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(lost_, other.lost_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) operations_->close(descriptor_);
}

Bytes File::size() const {
  FileStatus status;
  expect(operations_->fstat(descriptor_, status), "size", path_);
  return status.bytes;
}

void File::read(Bytes offset, std::span<std::byte> data) const {
  expect_range("read", path_, offset, data.size());
  transfer("read", path_, offset, static_cast<Bytes>(data.size()), 0, [&](Bytes done) {
    const auto rest = data.subspan(static_cast<std::size_t>(done));
    return operations_->pread(descriptor_, rest.data(), rest.size(), offset + done);
  });
}

void File::write(Bytes offset, std::span<const std::byte> data) {
  expect_alive("write");
  expect_range("write", path_, offset, data.size());
  transfer("write", path_, offset, static_cast<Bytes>(data.size()), EIO, [&](Bytes done) {
    const auto rest = data.subspan(static_cast<std::size_t>(done));
    return operations_->pwrite(descriptor_, rest.data(), rest.size(), offset + done);
  });
}

void File::allocate(Bytes bytes) {
  expect_alive("allocate");
  if (bytes <= 0) return;
  const int result = uninterrupted([&] { return operations_->fallocate(descriptor_, 0, bytes); });
  if (result == -EOPNOTSUPP || result == -ENOSYS) {
    if (size() < bytes) resize(bytes);
  } else if (result < 0) {
    throw IoError("allocate", path_, -1, -result, fmt::format("{} bytes", bytes));
  }
}

void File::resize(Bytes bytes) {
  expect_alive("resize");
  const int result = uninterrupted([&] { return operations_->ftruncate(descriptor_, bytes); });
  if (result < 0) throw IoError("resize", path_, -1, -result, fmt::format("{} bytes", bytes));
}

void File::synchronize() {
  expect_alive("synchronize");
  const int result = operations_->fsync(descriptor_);
  // Interrupted is failed, too: nothing says how far it came, and a second call may not tell.
  lost_ = result < 0;
  expect(result, "synchronize", path_);
}

void File::hint(FileHint hint, Bytes offset, Bytes bytes) const {
  operations_->hint(descriptor_, hint, offset, bytes);
}

bool File::try_lock() {
  const int result = uninterrupted([&] { return operations_->lock(descriptor_); });
  if (result == -EWOULDBLOCK) return false;
  expect(result, "lock", path_);
  return true;
}

void File::close() {
  if (descriptor_ < 0) return;
  const int result = operations_->close(std::exchange(descriptor_, -1));
  // Linux has closed it before it says EINTR.
  if (result != -EINTR) expect(result, "close", path_);
}

void File::expect_alive(const char* operation) const {
  if (lost_)
    throw IoError(operation, path_, -1, EIO,
                  "an earlier synchronize failed: what was written may be lost; write a new file");
}

}  // namespace flatshard
