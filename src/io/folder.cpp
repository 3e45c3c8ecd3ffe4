#include <flatshard/io/folder.hpp>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace flatshard {
namespace {

constexpr int as_folder = O_RDONLY | O_DIRECTORY;
constexpr int as_file = O_NONBLOCK | O_NOCTTY | O_NOFOLLOW;

void expect(std::int64_t result, const char* operation, const std::string& path) {
  if (result < 0) throw IoError(operation, path, -1, static_cast<int>(-result));
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string parent_of(const std::string& path) {
  const auto slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// The parent of a folder that was there before may be closed to this user.
void synchronize_parent(const std::string& parent, bool may_be_closed, FileOperations& operations) {
  try {
    Folder::open(parent, operations).synchronize();
  } catch (const IoError& error) {
    if (!may_be_closed || error.code() != EACCES) throw;
  }
}

void expect_plain(const char* operation, const Folder& folder, const std::string& name) {
  if (!is_plain_name(name))
    throw IoError(operation, folder.path_of(name), -1, EINVAL, "not a plain name");
}

}  // namespace

bool is_plain_name(const std::string& name) {
  constexpr std::string_view forbidden("/\\\0", 3);
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find_first_of(forbidden) == std::string::npos;
}

Folder Folder::open(const std::string& path, FileOperations& operations) {
  const int folder = operations.open(FileOperations::working_folder, path, as_folder, 0);
  expect(folder, "open folder", path);
  return Folder(folder, without_slashes(path), operations);
}

Folder Folder::open_or_create(const std::string& path, FileOperations& operations) {
  const std::string plain = without_slashes(path);
  const int made = operations.mkdir(FileOperations::working_folder, plain, 0777);
  if (made != -EEXIST) expect(made, "create folder", plain);
  // Also when it is there already: whoever made it may have died before this.
  synchronize_parent(parent_of(plain), made == -EEXIST, operations);
  return Folder::open(plain, operations);
}

Folder::Folder(Folder&& other) noexcept
    : operations_(other.operations_),
      path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

Folder& Folder::operator=(Folder&& other) noexcept {
  std::swap(operations_, other.operations_);
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Folder::~Folder() {
  if (descriptor_ >= 0) operations_->close(descriptor_);
}

int Folder::open_entry(const char* operation, const std::string& name, int flags) const {
  expect_plain(operation, *this, name);
  const int file = operations_->open_beneath(descriptor_, name, flags, 0666);
  expect(file, operation, path_of(name));
  return file;
}

File Folder::open_for_reading(const std::string& name) const {
  return File::adopt(open_entry("open for reading", name, O_RDONLY | as_file), path_of(name),
                     *operations_);
}

File Folder::create(const std::string& name) const {
  constexpr int flags = O_RDWR | O_CREAT | O_EXCL | as_file;
  return File::adopt(open_entry("create", name, flags), path_of(name), *operations_);
}

File Folder::open_for_writing(const std::string& name) const {
  return File::adopt(open_entry("open for writing", name, O_RDWR | as_file), path_of(name),
                     *operations_);
}

File Folder::open_or_create_file(const std::string& name) const {
  constexpr int flags = O_RDWR | O_CREAT | as_file;
  return File::adopt(open_entry("open or create", name, flags), path_of(name), *operations_);
}

Folder Folder::open_folder(const std::string& name) const {
  return Folder(open_entry("open folder", name, as_folder), path_of(name), *operations_);
}

Folder Folder::create_folder(const std::string& name) const {
  expect_plain("create folder", *this, name);
  expect(operations_->mkdir(descriptor_, name, 0700), "create folder", path_of(name));
  return open_folder(name);
}

std::optional<FileStatus> Folder::status(const std::string& name) const {
  expect_plain("status", *this, name);
  FileStatus status;
  const int result = operations_->stat(descriptor_, name, status);
  if (result == -ENOENT) return std::nullopt;
  expect(result, "status", path_of(name));
  return status;
}

std::vector<FolderEntry> Folder::list() const {
  std::vector<FolderEntry> entries;
  expect(operations_->list(descriptor_, entries), "list", path_);
  std::sort(entries.begin(), entries.end(),
            [](const FolderEntry& a, const FolderEntry& b) { return a.name < b.name; });
  return entries;
}

Bytes Folder::free_bytes() const {
  const Bytes bytes = operations_->free_bytes(descriptor_);
  expect(bytes, "free space", path_);
  return bytes;
}

void Folder::rename(const std::string& from, const std::string& to, Existing existing) const {
  expect_plain("rename", *this, from);
  expect_plain("rename", *this, to);
  const int result = operations_->rename(descriptor_, from, descriptor_, to, existing);
  if (result < 0) throw IoError("rename", path_of(from), -1, -result, "to " + to);
}

void Folder::remove_file(const std::string& name) const {
  expect_plain("remove", *this, name);
  expect(operations_->unlink(descriptor_, name), "remove", path_of(name));
}

void Folder::remove_tree(const std::string& name) const {
  const Folder tree = open_folder(name);
  for (const FolderEntry& entry : tree.list()) {
    if (entry.kind != FileKind::Folder)
      tree.remove_file(entry.name);
    else
      expect(operations_->rmdir(tree.descriptor_, entry.name), "remove", tree.path_of(entry.name));
  }
  expect(operations_->rmdir(descriptor_, name), "remove", path_of(name));
}

void Folder::synchronize() const {
  const int result = operations_->fsync(descriptor_);
  // EINVAL: a file system that writes entries by itself and knows no fsync of folders.
  if (result != -EINVAL) expect(result, "synchronize folder", path_);
}

}  // namespace flatshard
