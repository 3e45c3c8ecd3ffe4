// A file of this process alone, which nobody finds and nothing outlives.
#pragma once

#include <flatshard/io/file.hpp>
#include <flatshard/io/folder.hpp>

#include <memory>
#include <string>

namespace flatshard::detail {

/// What a scratch file should be.
struct ScratchRequest {
  std::string folder;          // made when there is none
  Bytes bytes;                 // its size, reserved
  bool direct;                 // past the page cache, where the file system can
  FileOperations& operations;  // must outlive the file
};

/// Lies in a folder of its own, which is locked as long as the file lives and then removed. The
/// file has no name from the moment it is open.
class ScratchFile {
 public:
  static constexpr Bytes alignment = 4096;  // of direct transfers: memory, offset and length

  /// Removes the folders of dead processes first. Throws IoError: ENOSPC without room for `bytes`.
  explicit ScratchFile(const ScratchRequest& request);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const File& file() const;
  bool direct() const { return direct_; }      // past the page cache
  bool reserved() const { return reserved_; }  // false: there only was room for it

 private:
  class OwnFolder;
  struct Place;

  Folder parent_;
  std::unique_ptr<Place> place_;
  bool direct_ = false;
  bool reserved_ = false;
};

}  // namespace flatshard::detail
