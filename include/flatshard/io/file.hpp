// An open file: exact transfers at 64-bit offsets, and typed errors.
#pragma once

#include <flatshard/io/file_operations.hpp>
#include <flatshard/io/io_error.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace flatshard {

/// Owns a file descriptor. Only regular files: a folder, a device or a pipe is refused. Reads and
/// writes of one File may run in several threads at once; everything else belongs to one thread.
/// Errors are IoErrors with path, offset and errno. `operations` must outlive the File.
class File {
 public:
  /// The path's own symbolic links are followed.
  static File open_for_reading(const std::string& path,
                               FileOperations& operations = posix_file_operations());
  /// A new file, also readable; EEXIST when the name is taken, by a symbolic link too.
  static File create(const std::string& path, FileOperations& operations = posix_file_operations());
  /// An existing file, also readable; a symbolic link at the end of the path is refused.
  static File open_for_writing(const std::string& path,
                               FileOperations& operations = posix_file_operations());
  /// Takes over a descriptor that open gave; `path` is for messages. Closes it when it throws.
  static File adopt(int descriptor, const std::string& path, FileOperations& operations);

  File(File&& other) noexcept;             // leaves the other empty
  File& operator=(File&& other) noexcept;  // closes what it held, without a report
  /// Closes without a report: call close() where an error matters.
  ~File();

  const std::string& path() const { return path_; }  // for messages
  int descriptor() const { return descriptor_; }     // -1: empty
  /// In bytes, as of now.
  Bytes size() const;

  /// The same file once more, for reading (and writing, if this is) past the page cache in whole
  /// blocks of 4096 bytes (memory, offset and count); none where the system or the file system does
  /// not do that.
  std::optional<File> reopen_past_cache() const;

  /// Exactly data.size() bytes from `offset` on. Continues short transfers, EINTR and EAGAIN; an
  /// early end of file is an error (code() == 0).
  void read(Bytes offset, std::span<std::byte> data) const;
  /// Exactly data.size() bytes to `offset` on; the file grows as needed.
  void write(Bytes offset, std::span<const std::byte> data);
  /// Reserves space, so that ENOSPC comes now and not later, and makes the file at least `bytes`
  /// long. Where the file system cannot reserve, the file only gets the size.
  void allocate(Bytes bytes);
  /// Cuts the file or extends it with zeros.
  void resize(Bytes bytes);
  /// Blocks until bytes and size are on the device (fsync). When it fails the written bytes may be
  /// lost for good while a second fsync would succeed: from then on write, allocate and synchronize
  /// of this File fail with EIO. Write a new file.
  void synchronize();
  /// Advice to the system; has no result.
  void hint(FileHint hint, Bytes offset = 0, Bytes bytes = 0) const;
  /// False when another open file has the lock, in this process or another. Locks live as long as
  /// the File. Throws IoError where the file system has no locks (ENOSYS, EOPNOTSUPP, ENOLCK).
  bool try_lock();
  /// Some file systems report a failed write only here. The File is empty afterwards, whatever
  /// happens.
  void close();

 private:
  File(int descriptor, std::string path, FileOperations& operations)
      : operations_(&operations), path_(std::move(path)), descriptor_(descriptor) {}
  void expect_alive(const char* operation) const;

  FileOperations* operations_;
  std::string path_;
  int descriptor_;     // -1: closed or moved from
  bool lost_ = false;  // an fsync failed
};

}  // namespace flatshard
