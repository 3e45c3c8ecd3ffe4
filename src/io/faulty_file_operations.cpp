#include <flatshard/io/faulty_file_operations.hpp>

#include <algorithm>

namespace flatshard {
namespace {
using FaultKind = FileFaults::Kind;
}

std::int64_t FaultyFileOperations::operations() const {
  const std::lock_guard hold(mutex_);
  return operations_;
}

std::string FaultyFileOperations::faulty_operation() const {
  const std::lock_guard hold(mutex_);
  return faulty_operation_;
}

bool FaultyFileOperations::goes_wrong(const char* operation) {
  std::int64_t number = 0;
  {
    const std::lock_guard hold(mutex_);
    number = ++operations_;
    const bool is_it = number == faults_.operation;
    const bool follows = faults_.sticky && faults_.operation > 0 && number > faults_.operation;
    if (!is_it && !follows) return false;
    if (faulty_operation_.empty()) faulty_operation_ = operation;
  }
  if (faults_.at_fault) faults_.at_fault(number);
  return true;
}

template <class Call>
int FaultyFileOperations::count(const char* operation, Call call) {
  if (goes_wrong(operation) && faults_.kind != FaultKind::ShortCount) return -faults_.code;
  return call();
}

int FaultyFileOperations::open(int folder, const std::string& path, int flags, unsigned mode) {
  return count("open", [&] { return inner_.open(folder, path, flags, mode); });
}

int FaultyFileOperations::open_beneath(int folder, const std::string& path, int flags,
                                       unsigned mode) {
  return count("open_beneath", [&] { return inner_.open_beneath(folder, path, flags, mode); });
}

int FaultyFileOperations::reopen_past_cache(int file) {
  return count("reopen_past_cache", [&] { return inner_.reopen_past_cache(file); });
}

// A close that fails closes nevertheless, as it does on Linux.
int FaultyFileOperations::close(int file) {
  const bool fails = goes_wrong("close") && faults_.kind != FaultKind::ShortCount;
  const int result = inner_.close(file);
  return fails ? -faults_.code : result;
}

std::int64_t FaultyFileOperations::pread(int file, void* data, std::size_t bytes, Bytes offset) {
  if (!goes_wrong("pread")) return inner_.pread(file, data, bytes, offset);
  if (faults_.kind != FaultKind::ShortCount) return -faults_.code;
  return inner_.pread(file, data, std::max<std::size_t>(bytes / 2, 1), offset);
}

std::int64_t FaultyFileOperations::pwrite(int file, const void* data, std::size_t bytes,
                                          Bytes offset) {
  if (!goes_wrong("pwrite")) return inner_.pwrite(file, data, bytes, offset);
  if (faults_.kind == FaultKind::Error) return -faults_.code;
  const std::int64_t written =
      inner_.pwrite(file, data, std::max<std::size_t>(bytes / 2, 1), offset);
  return faults_.kind == FaultKind::PartialError ? -faults_.code : written;
}

int FaultyFileOperations::fallocate(int file, Bytes offset, Bytes bytes) {
  return count("fallocate", [&] { return inner_.fallocate(file, offset, bytes); });
}

int FaultyFileOperations::ftruncate(int file, Bytes bytes) {
  return count("ftruncate", [&] { return inner_.ftruncate(file, bytes); });
}

int FaultyFileOperations::fsync(int file) {
  if (!goes_wrong("fsync") || faults_.kind == FaultKind::ShortCount) return inner_.fsync(file);
  if (faults_.at_failed_fsync) faults_.at_failed_fsync(file);
  return -faults_.code;
}

int FaultyFileOperations::fstat(int file, FileStatus& status) {
  return count("fstat", [&] { return inner_.fstat(file, status); });
}

int FaultyFileOperations::hint(int file, FileHint hint, Bytes offset, Bytes bytes) {
  return count("hint", [&] { return inner_.hint(file, hint, offset, bytes); });
}

int FaultyFileOperations::lock(int file) {
  return count("lock", [&] { return inner_.lock(file); });
}

int FaultyFileOperations::stat(int folder, const std::string& path, FileStatus& status) {
  return count("stat", [&] { return inner_.stat(folder, path, status); });
}

int FaultyFileOperations::mkdir(int folder, const std::string& path, unsigned mode) {
  return count("mkdir", [&] { return inner_.mkdir(folder, path, mode); });
}

int FaultyFileOperations::rename(int from_folder, const std::string& from, int to_folder,
                                 const std::string& to, Existing existing) {
  return count("rename", [&] { return inner_.rename(from_folder, from, to_folder, to, existing); });
}

int FaultyFileOperations::unlink(int folder, const std::string& path) {
  return count("unlink", [&] { return inner_.unlink(folder, path); });
}

int FaultyFileOperations::rmdir(int folder, const std::string& path) {
  return count("rmdir", [&] { return inner_.rmdir(folder, path); });
}

int FaultyFileOperations::list(int folder, std::vector<FolderEntry>& entries) {
  return count("list", [&] { return inner_.list(folder, entries); });
}

std::int64_t FaultyFileOperations::free_bytes(int file) {
  if (goes_wrong("free_bytes") && faults_.kind != FaultKind::ShortCount) return -faults_.code;
  return inner_.free_bytes(file);
}

}  // namespace flatshard
