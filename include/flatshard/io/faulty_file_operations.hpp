// Makes a file system fail on purpose, for tests.
#pragma once

#include <flatshard/io/file_operations.hpp>

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

namespace flatshard {

/// What goes wrong. Operations are counted from 1; close counts too.
struct FileFaults {
  /// How an operation goes wrong.
  enum class Kind : std::uint8_t {
    Error,        // the operation does nothing and fails with `code`
    ShortCount,   // pread and pwrite move fewer bytes than asked for (at least 1); others succeed
    PartialError  // pwrite writes a part, then fails with `code`; others as Error
  };
  std::int64_t operation = 0;  // the n-th operation is the first to go wrong; 0: none
  Kind kind = Kind::Error;     // how
  int code = 5;                // EIO
  bool sticky = false;         // all operations after it go wrong alike (but close)
  /// Called just before the faulty operation, with its number; may end the process.
  std::function<void(std::int64_t)> at_fault = {};
  /// Called with the file when a faulty operation is an fsync: a model disk then forgets what was
  /// to be written.
  std::function<void(int file)> at_failed_fsync = {};
};

/// Passes operations on to `inner`, which must outlive it, or lets them fail.
class FaultyFileOperations : public FileOperations {
 public:
  /// `inner` must outlive it; counting starts at 1.
  FaultyFileOperations(FileOperations& inner, FileFaults faults)
      : inner_(inner), faults_(std::move(faults)) {}

  /// Operations so far.
  std::int64_t operations() const;
  /// The faulty operation, "fsync" and so on; empty while none was.
  std::string faulty_operation() const;

  int open(int folder, const std::string& path, int flags, unsigned mode) override;
  int open_beneath(int folder, const std::string& path, int flags, unsigned mode) override;
  int reopen_past_cache(int file) override;
  int close(int file) override;
  std::int64_t pread(int file, void* data, std::size_t bytes, Bytes offset) override;
  std::int64_t pwrite(int file, const void* data, std::size_t bytes, Bytes offset) override;
  int fallocate(int file, Bytes offset, Bytes bytes) override;
  int ftruncate(int file, Bytes bytes) override;
  int fsync(int file) override;
  int fstat(int file, FileStatus& status) override;
  int hint(int file, FileHint hint, Bytes offset, Bytes bytes) override;
  int lock(int file) override;
  int stat(int folder, const std::string& path, FileStatus& status) override;
  int mkdir(int folder, const std::string& path, unsigned mode) override;
  int rename(int from_folder, const std::string& from, int to_folder, const std::string& to,
             Existing existing) override;
  int unlink(int folder, const std::string& path) override;
  int rmdir(int folder, const std::string& path) override;
  int list(int folder, std::vector<FolderEntry>& entries) override;
  std::int64_t free_bytes(int file) override;

 private:
  /// Counts one operation; true: it goes wrong.
  bool goes_wrong(const char* operation);
  /// The result of an operation that moves no bytes: a fault, or inner()'s.
  template <class Call>
  int count(const char* operation, Call call);

  FileOperations& inner_;
  FileFaults faults_;
  mutable std::mutex mutex_;
  std::int64_t operations_ = 0;
  std::string faulty_operation_;
};

}  // namespace flatshard
