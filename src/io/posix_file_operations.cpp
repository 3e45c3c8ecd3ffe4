#include <flatshard/io/file_operations.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "beneath.hpp"
#include "rename_flags.hpp"

namespace flatshard {
namespace {

static_assert(sizeof(off_t) == 8, "build with -D_FILE_OFFSET_BITS=64");
static_assert(FileOperations::working_folder == AT_FDCWD);

// One call moves at most 0x7ffff000 bytes on Linux; a rounder limit keeps every part aligned.
constexpr std::size_t most_bytes = std::size_t{1} << 30;

template <class Count>
Count or_errno(Count result) {
  return result < 0 ? -static_cast<Count>(errno) : result;
}

FileKind kind_of(unsigned mode) {
  if (S_ISREG(mode)) return FileKind::Regular;
  if (S_ISDIR(mode)) return FileKind::Folder;
  return S_ISLNK(mode) ? FileKind::SymbolicLink : FileKind::Other;
}

FileStatus status_of(const struct ::stat& status) {
  return {kind_of(status.st_mode), status.st_size, status.st_mtime};
}

// Not every file system says the kind with the name.
FileKind kind_of_entry(int folder, const dirent& entry) {
  if (entry.d_type == DT_REG) return FileKind::Regular;
  if (entry.d_type == DT_DIR) return FileKind::Folder;
  if (entry.d_type == DT_LNK) return FileKind::SymbolicLink;
  if (entry.d_type != DT_UNKNOWN) return FileKind::Other;
  struct ::stat status = {};
  const bool known = ::fstatat(folder, entry.d_name, &status, AT_SYMLINK_NOFOLLOW) == 0;
  return known ? kind_of(status.st_mode) : FileKind::Other;
}

bool is_self_or_parent(const std::string& name) { return name == "." || name == ".."; }

// readdir says that it failed only in errno.
int read_entries(DIR* stream, std::vector<FolderEntry>& entries) {
  entries.clear();
  for (errno = 0; const dirent* entry = ::readdir(stream); errno = 0)
    if (!is_self_or_parent(entry->d_name))
      entries.push_back({entry->d_name, kind_of_entry(::dirfd(stream), *entry)});
  return -errno;
}

class PosixFileOperations final : public FileOperations {
 public:
  int open(int folder, const std::string& path, int flags, unsigned mode) override {
    return or_errno(::openat(folder, path.c_str(), flags | O_CLOEXEC, mode));
  }
  int open_beneath(int folder, const std::string& path, int flags, unsigned mode) override {
    return detail::open_beneath(folder, path, flags | O_CLOEXEC, mode);
  }
  int reopen_past_cache(int file) override {
    const int flags = or_errno(::fcntl(file, F_GETFL));
    if (flags < 0) return flags;
    const std::string path = "/proc/self/fd/" + std::to_string(file);
    return or_errno(::open(path.c_str(), (flags & O_ACCMODE) | O_DIRECT | O_CLOEXEC));
  }
  int close(int file) override { return or_errno(::close(file)); }

  std::int64_t pread(int file, void* data, std::size_t bytes, Bytes offset) override {
    return or_errno(std::int64_t{::pread(file, data, std::min(bytes, most_bytes), offset)});
  }
  std::int64_t pwrite(int file, const void* data, std::size_t bytes, Bytes offset) override {
    return or_errno(std::int64_t{::pwrite(file, data, std::min(bytes, most_bytes), offset)});
  }
  // Not posix_fallocate, which writes zeros where the file system cannot reserve.
  int fallocate(int file, Bytes offset, Bytes bytes) override {
#if defined(__linux__)
    return or_errno(::fallocate(file, 0, offset, bytes));
#else
    static_cast<void>(file), static_cast<void>(offset), static_cast<void>(bytes);
    return -EOPNOTSUPP;
#endif
  }
  int ftruncate(int file, Bytes bytes) override { return or_errno(::ftruncate(file, bytes)); }
  int fsync(int file) override { return or_errno(::fsync(file)); }
  int fstat(int file, FileStatus& status) override {
    struct ::stat found = {};
    const int result = or_errno(::fstat(file, &found));
    if (result == 0) status = status_of(found);
    return result;
  }
  int hint(int file, FileHint hint, Bytes offset, Bytes bytes) override {
    if (hint == FileHint::StartWriteback) {
#if defined(__linux__)
      return or_errno(::sync_file_range(file, offset, bytes, SYNC_FILE_RANGE_WRITE));
#else
      return -EOPNOTSUPP;
#endif
    }
    const int advice = hint == FileHint::Sequential ? POSIX_FADV_SEQUENTIAL : POSIX_FADV_DONTNEED;
    return -::posix_fadvise(file, offset, bytes, advice);
  }
  int lock(int file) override { return or_errno(::flock(file, LOCK_EX | LOCK_NB)); }

  int stat(int folder, const std::string& path, FileStatus& status) override {
    struct ::stat found = {};
    const int result = or_errno(::fstatat(folder, path.c_str(), &found, AT_SYMLINK_NOFOLLOW));
    if (result == 0) status = status_of(found);
    return result;
  }
  int mkdir(int folder, const std::string& path, unsigned mode) override {
    return or_errno(::mkdirat(folder, path.c_str(), mode));
  }
  int rename(int from_folder, const std::string& from, int to_folder, const std::string& to,
             Existing existing) override {
    if (existing == Existing::Replace)
      return or_errno(::renameat(from_folder, from.c_str(), to_folder, to.c_str()));
    return detail::rename_with_flags(from_folder, from, to_folder, to, existing);
  }
  int unlink(int folder, const std::string& path) override {
    return or_errno(::unlinkat(folder, path.c_str(), 0));
  }
  int rmdir(int folder, const std::string& path) override {
    return or_errno(::unlinkat(folder, path.c_str(), AT_REMOVEDIR));
  }
  // On a descriptor of its own, since closedir closes and the position is shared by duplicates.
  int list(int folder, std::vector<FolderEntry>& entries) override {
    const int own = or_errno(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (own < 0) return own;
    DIR* stream = ::fdopendir(own);
    if (stream == nullptr) {
      const int code = -errno;
      ::close(own);
      return code;
    }
    const int result = read_entries(stream, entries);
    ::closedir(stream);
    return result;
  }
  std::int64_t free_bytes(int file) override {
    struct ::statvfs found = {};
    if (::fstatvfs(file, &found) != 0) return -errno;
    const std::uint64_t block = found.f_frsize, blocks = found.f_bavail;
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<Bytes>::max());
    return static_cast<Bytes>(block != 0 && blocks > most / block ? most : blocks * block);
  }
};

}  // namespace

int FileOperations::reopen_past_cache(int) { return -EOPNOTSUPP; }

FileOperations& posix_file_operations() {
  // Never destroyed: files of static objects may be closed after it would be.
  static auto* const operations = new PosixFileOperations;
  return *operations;
}

}  // namespace flatshard
