// An open folder. What is opened, renamed or removed in it is found through the open folder and by
// a single name, so that no symbolic link and no renamed parent can lead elsewhere.
#pragma once

#include <flatshard/io/file.hpp>
#include <flatshard/io/file_operations.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace flatshard {

/// True for what may name an entry of a folder: not empty, not "." or "..", no '/', '\' or NUL, at
/// most 255 bytes.
bool is_plain_name(const std::string& name);

/// Owns a file descriptor of a folder. A `name` that is not plain throws IoError (EINVAL); symbolic
/// links are refused (ELOOP), never followed. Errors are IoErrors whose path is that of the entry.
/// Belongs to one thread; `operations` must outlive it.
class Folder {
 public:
  /// The path's own symbolic links are followed: they are the caller's.
  static Folder open(const std::string& path, FileOperations& operations = posix_file_operations());
  /// As open; makes the folder (not its parents) when there is none, and synchronizes the parent.
  static Folder open_or_create(const std::string& path,
                               FileOperations& operations = posix_file_operations());

  Folder(Folder&& other) noexcept;             // leaves the other empty
  Folder& operator=(Folder&& other) noexcept;  // closes what it held
  ~Folder();

  const std::string& path() const { return path_; }  // as opened
  /// Of an entry.
  std::string path_of(const std::string& name) const { return path_ + "/" + name; }
  int descriptor() const { return descriptor_; }               // -1: moved from
  FileOperations& operations() const { return *operations_; }  // as given

  /// As File::open_for_reading.
  File open_for_reading(const std::string& name) const;
  /// As File::create.
  File create(const std::string& name) const;
  /// As File::open_for_writing.
  File open_for_writing(const std::string& name) const;
  /// Opens for writing, makes the file when there is none.
  File open_or_create_file(const std::string& name) const;
  /// An existing folder.
  Folder open_folder(const std::string& name) const;
  /// For its owner only (mode 0700).
  Folder create_folder(const std::string& name) const;

  /// Of the name itself; none: there is no such entry.
  std::optional<FileStatus> status(const std::string& name) const;
  /// By name.
  std::vector<FolderEntry> list() const;
  /// That this user may still allocate here.
  Bytes free_bytes() const;

  /// Within this folder, in one atomic step.
  void rename(const std::string& from, const std::string& to, Existing existing) const;
  /// Of a file or symbolic link.
  void remove_file(const std::string& name) const;
  /// The folder `name` and all that is in it, two levels deep at most; a symbolic link is removed
  /// as a link.
  void remove_tree(const std::string& name) const;
  /// Blocks until the entries are on the device. After a failure nothing is known of them.
  void synchronize() const;

 private:
  Folder(int descriptor, std::string path, FileOperations& operations)
      : operations_(&operations), path_(std::move(path)), descriptor_(descriptor) {}
  int open_entry(const char* operation, const std::string& name, int flags) const;

  FileOperations* operations_;
  std::string path_;
  int descriptor_;
};

}  // namespace flatshard
