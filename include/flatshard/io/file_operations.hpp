// The seam between the library and the file system: one virtual function per system call.
#pragma once

#include <flatshard/core/types.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace flatshard {

/// What a name stands for.
enum class FileKind : std::uint8_t { Regular, Folder, SymbolicLink, Other };

/// What is known of a name or an open file.
struct FileStatus {
  FileKind kind = FileKind::Other;  // what it is
  Bytes bytes = 0;                  // size
  std::int64_t modified = 0;        // seconds since 1970
};

/// An entry of a folder.
struct FolderEntry {
  std::string name;                 // never "." or ".."
  FileKind kind = FileKind::Other;  // what it is
};

/// What rename does when the new name is taken. Each is one atomic step.
enum class Existing : std::uint8_t {
  Replace,   // of a file: the old one is gone; of a folder: only an empty one
  Refuse,    // -EEXIST
  Exchange,  // both names live on, swapped; -ENOENT without the other
};

/// Advice to the system.
enum class FileHint : std::uint8_t {
  Sequential,     // will be read once, in order
  DontNeed,       // drop from the page cache what is written back
  StartWriteback  // begin to write to the device what is dirty; waits for nothing
};

/// Results are counts or file descriptors, >= 0, or a negative errno; nothing throws. Counts may be
/// short and calls may be interrupted: File continues them. Paths are relative to the open folder
/// `folder`, or to the working directory for working_folder; an absolute path ignores it. `flags`
/// and `mode` are those of open(2); O_CLOEXEC is added. All functions may be called by several
/// threads at once.
class FileOperations {
 public:
  static constexpr int working_folder = -100;  // AT_FDCWD

  FileOperations() = default;
  FileOperations(const FileOperations&) = delete;
  FileOperations& operator=(const FileOperations&) = delete;
  virtual ~FileOperations() = default;

  /// As openat(2).
  virtual int open(int folder, const std::string& path, int flags, unsigned mode) = 0;
  /// As open, of what lies in the tree under `folder` and is reached through no symbolic link.
  virtual int open_beneath(int folder, const std::string& path, int flags, unsigned mode) = 0;
  /// A second descriptor of an open file, with the same access, for transfers past the page cache
  /// (O_DIRECT): their offsets, counts and memory are multiples of 4096. -EOPNOTSUPP where there is
  /// none.
  virtual int reopen_past_cache(int file);
  /// As close(2).
  virtual int close(int file) = 0;

  /// As pread(2).
  virtual std::int64_t pread(int file, void* data, std::size_t bytes, Bytes offset) = 0;
  /// As pwrite(2).
  virtual std::int64_t pwrite(int file, const void* data, std::size_t bytes, Bytes offset) = 0;
  /// Reserves space for [offset, offset + bytes) and makes the file at least that long.
  /// -EOPNOTSUPP where the file system cannot.
  virtual int fallocate(int file, Bytes offset, Bytes bytes) = 0;
  /// As ftruncate(2).
  virtual int ftruncate(int file, Bytes bytes) = 0;
  /// Of a file: its bytes and size. Of a folder: its entries.
  virtual int fsync(int file) = 0;
  /// Of an open file.
  virtual int fstat(int file, FileStatus& status) = 0;
  /// Advice only; the result tells whether it was taken.
  virtual int hint(int file, FileHint hint, Bytes offset, Bytes bytes) = 0;
  /// Takes the exclusive lock of an open file, or -EWOULDBLOCK. Closing the file, or the death of
  /// the process, gives it back.
  virtual int lock(int file) = 0;

  /// Of the name itself: a symbolic link is not followed.
  virtual int stat(int folder, const std::string& path, FileStatus& status) = 0;
  /// As mkdirat(2).
  virtual int mkdir(int folder, const std::string& path, unsigned mode) = 0;
  /// As renameat2(2).
  virtual int rename(int from_folder, const std::string& from, int to_folder, const std::string& to,
                     Existing existing) = 0;
  /// As unlinkat(2), of a file or link.
  virtual int unlink(int folder, const std::string& path) = 0;
  /// As unlinkat(2), of an empty folder.
  virtual int rmdir(int folder, const std::string& path) = 0;
  /// Replaces `entries` by those of an open folder, in no order.
  virtual int list(int folder, std::vector<FolderEntry>& entries) = 0;
  /// Bytes that this user may still allocate on the file system of an open file or folder.
  virtual std::int64_t free_bytes(int file) = 0;
};

/// Those of the operating system. Lives as long as the program.
FileOperations& posix_file_operations();

}  // namespace flatshard
