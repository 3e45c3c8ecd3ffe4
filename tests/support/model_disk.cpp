#include "model_disk.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

using namespace flatshard;

namespace flatshard_test {
namespace {

constexpr std::size_t sector = 512, block = 4096;
constexpr Bytes free_space = Bytes{1} << 40;

std::size_t position(Bytes offset) { return static_cast<std::size_t>(offset); }

std::vector<std::string> components(const std::string& path) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t slash = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, slash - at);
    if (!part.empty() && part != ".") parts.push_back(part);
    at = slash + 1;
  }
  return parts;
}

}  // namespace

ModelDisk::ModelDisk() { make(true); }

void ModelDisk::die() {
  const std::lock_guard hold(mutex_);
  dead_ = true;
}

void ModelDisk::lose_changes_of(int file) {
  const std::lock_guard hold(mutex_);
  if (const Handle* found = handle(file))
    for (Write& write : nodes_[found->node].writes) write.lost = true;
}

std::size_t ModelDisk::pending() const {
  const std::lock_guard hold(mutex_);
  std::size_t count = 0;
  for (const Inode& node : nodes_) count += node.writes.size() + node.namings.size();
  return count;
}

std::unique_ptr<ModelDisk> ModelDisk::copy() const {
  const std::lock_guard hold(mutex_);
  auto disk = std::make_unique<ModelDisk>();
  disk->nodes_ = nodes_;
  return disk;
}

std::unique_ptr<ModelDisk> ModelDisk::after_crash(const std::function<Fate(std::size_t)>& fate,
                                                  std::mt19937_64& random) const {
  const std::lock_guard hold(mutex_);
  auto disk = std::make_unique<ModelDisk>();
  disk->nodes_ = nodes_;
  std::size_t change = 0;
  for (Inode& node : disk->nodes_) {
    for (const Write& write : node.writes) {
      const Fate what = fate(change++);
      if (what == Fate::Kept) apply(write, node.durable);
      if (what == Fate::Torn) tear(write, node.durable, random);
    }
    for (const Naming& naming : node.namings)
      if (fate(change++) == Fate::Kept) apply(naming, node.durable_entries);
    node.writes.clear(), node.namings.clear();
    node.now = node.durable;
    node.entries = node.durable_entries;
  }
  return disk;
}

void ModelDisk::apply(const Write& write, Content& content) {
  if (write.size) return content.resize(*write.size);
  content.resize(std::max(content.size(), write.offset + write.bytes.size()));
  std::copy(write.bytes.begin(), write.bytes.end(),
            content.begin() + static_cast<std::ptrdiff_t>(write.offset));
}

void ModelDisk::apply(const Naming& naming, Entries& entries) {
  for (const auto& [name, node] : naming) {
    if (node)
      entries[name] = *node;
    else
      entries.erase(name);
  }
}

void ModelDisk::tear(const Write& write, Content& content, std::mt19937_64& random) {
  for (std::size_t at = 0; at < write.bytes.size();) {
    const std::size_t count =
        std::min(write.bytes.size() - at, sector - (write.offset + at) % sector);
    const auto begin = write.bytes.begin() + static_cast<std::ptrdiff_t>(at);
    if ((random() & 1) != 0)
      apply({{}, write.offset + at, {begin, begin + static_cast<std::ptrdiff_t>(count)}}, content);
    at += count;
  }
}

void ModelDisk::change(Node node, Write write) {
  apply(write, nodes_[node].now);
  nodes_[node].writes.push_back(std::move(write));
}

void ModelDisk::change(Node folder, Naming naming) {
  apply(naming, nodes_[folder].entries);
  nodes_[folder].namings.push_back(std::move(naming));
}

ModelDisk::Node ModelDisk::make(bool is_folder) {
  nodes_.push_back({is_folder});
  return nodes_.size() - 1;
}

ModelDisk::Handle* ModelDisk::handle(int file) {
  const auto found = handles_.find(file);
  return found == handles_.end() ? nullptr : &found->second;
}

int ModelDisk::hand_out(Node node, bool whole_blocks) {
  handles_[next_handle_] = {node, whole_blocks};
  return next_handle_++;
}

int ModelDisk::refusal(int file, const void* data, std::size_t bytes, Bytes offset) {
  const Handle* const found = handle(file);
  if (dead_ || found == nullptr) return dead_ ? -EIO : -EBADF;
  const bool whole = position(offset) % block == 0 && bytes % block == 0 &&
                     reinterpret_cast<std::uintptr_t>(data) % block == 0;
  return found->whole_blocks && !whole ? -EINVAL : 0;
}

int ModelDisk::find(int folder, const std::string& path, Name& name) {
  if (dead_) return -EIO;
  const bool from_root = folder == working_folder || path.starts_with('/');
  const Handle* const start = from_root ? nullptr : handle(folder);
  if (!from_root && start == nullptr) return -EBADF;
  name = {0, {}, from_root ? Node{0} : start->node};
  for (const std::string& part : components(path)) {
    if (!name.node) return -ENOENT;
    if (!nodes_[*name.node].is_folder) return -ENOTDIR;
    const Entries& entries = nodes_[*name.node].entries;
    const auto found = entries.find(part);
    name = {*name.node, part, found == entries.end() ? std::nullopt : std::optional(found->second)};
  }
  return 0;
}

int ModelDisk::open(int folder, const std::string& path, int flags, unsigned) {
  const std::lock_guard hold(mutex_);
  Name name{};
  if (const int result = find(folder, path, name); result < 0) return result;
  if (name.node) {
    if ((flags & O_EXCL) != 0) return -EEXIST;
    const bool is_folder = nodes_[*name.node].is_folder;
    if (!is_folder && (flags & O_DIRECTORY) != 0) return -ENOTDIR;
    if (is_folder && (flags & O_ACCMODE) != O_RDONLY) return -EISDIR;
    return hand_out(*name.node);
  }
  if ((flags & O_CREAT) == 0) return -ENOENT;
  const Node node = make(false);
  change(name.folder, Naming{{name.last, node}});
  return hand_out(node);
}

int ModelDisk::open_beneath(int folder, const std::string& path, int flags, unsigned mode) {
  return open(folder, path, flags, mode);
}

int ModelDisk::reopen_past_cache(int file) {
  const std::lock_guard hold(mutex_);
  const Handle* const found = handle(file);
  if (dead_ || found == nullptr) return dead_ ? -EIO : -EBADF;
  return hand_out(found->node, true);
}

int ModelDisk::close(int file) {
  const std::lock_guard hold(mutex_);
  return handles_.erase(file) == 1 ? 0 : -EBADF;
}

std::int64_t ModelDisk::pread(int file, void* data, std::size_t bytes, Bytes offset) {
  const std::lock_guard hold(mutex_);
  if (const int result = refusal(file, data, bytes, offset); result < 0) return result;
  const Content& content = nodes_[handle(file)->node].now;
  const std::size_t begin = std::min(position(offset), content.size());
  const std::size_t count = std::min(bytes, content.size() - begin);
  if (count > 0) std::memcpy(data, content.data() + begin, count);
  return static_cast<std::int64_t>(count);
}

std::int64_t ModelDisk::pwrite(int file, const void* data, std::size_t bytes, Bytes offset) {
  const std::lock_guard hold(mutex_);
  if (const int result = refusal(file, data, bytes, offset); result < 0) return result;
  const auto* const from = static_cast<const std::byte*>(data);
  change(handle(file)->node, Write{{}, position(offset), {from, from + bytes}});
  return static_cast<std::int64_t>(bytes);
}

int ModelDisk::fallocate(int file, Bytes offset, Bytes bytes) {
  const std::lock_guard hold(mutex_);
  const Handle* const found = handle(file);
  if (dead_ || found == nullptr) return dead_ ? -EIO : -EBADF;
  const std::size_t size = nodes_[found->node].now.size();
  if (position(offset + bytes) > size) change(found->node, Write{position(offset + bytes)});
  return 0;
}

int ModelDisk::ftruncate(int file, Bytes bytes) {
  const std::lock_guard hold(mutex_);
  const Handle* const found = handle(file);
  if (dead_ || found == nullptr) return dead_ ? -EIO : -EBADF;
  change(found->node, Write{position(bytes)});
  return 0;
}

int ModelDisk::fsync(int file) {
  const std::lock_guard hold(mutex_);
  const Handle* const found = handle(file);
  if (dead_ || found == nullptr) return dead_ ? -EIO : -EBADF;
  Inode& node = nodes_[found->node];
  for (const Write& write : node.writes)
    if (!write.lost) apply(write, node.durable);
  std::erase_if(node.writes, [](const Write& write) { return !write.lost; });
  node.durable_entries = node.entries;
  node.namings.clear();
  return 0;
}

FileStatus ModelDisk::status_of(Node node) const {
  const Inode& inode = nodes_[node];
  return {inode.is_folder ? FileKind::Folder : FileKind::Regular,
          static_cast<Bytes>(inode.now.size()), 0};
}

int ModelDisk::fstat(int file, FileStatus& status) {
  const std::lock_guard hold(mutex_);
  const Handle* const found = handle(file);
  if (dead_ || found == nullptr) return dead_ ? -EIO : -EBADF;
  status = status_of(found->node);
  return 0;
}

int ModelDisk::hint(int, FileHint, Bytes, Bytes) {
  const std::lock_guard hold(mutex_);
  return dead_ ? -EIO : 0;
}

int ModelDisk::lock(int file) {
  const std::lock_guard hold(mutex_);
  Handle* const wanting = handle(file);
  if (dead_ || wanting == nullptr) return dead_ ? -EIO : -EBADF;
  for (const auto& [other, held] : handles_)
    if (other != file && held.node == wanting->node && held.has_lock) return -EWOULDBLOCK;
  wanting->has_lock = true;
  return 0;
}

int ModelDisk::stat(int folder, const std::string& path, FileStatus& status) {
  const std::lock_guard hold(mutex_);
  Name name{};
  if (const int result = find(folder, path, name); result < 0) return result;
  if (!name.node) return -ENOENT;
  status = status_of(*name.node);
  return 0;
}

int ModelDisk::mkdir(int folder, const std::string& path, unsigned) {
  const std::lock_guard hold(mutex_);
  Name name{};
  if (const int result = find(folder, path, name); result < 0) return result;
  if (name.node) return -EEXIST;
  change(name.folder, Naming{{name.last, make(true)}});
  return 0;
}

int ModelDisk::rename(int from_folder, const std::string& from, int to_folder,
                      const std::string& to, Existing existing) {
  const std::lock_guard hold(mutex_);
  Name old{}, fresh{};
  if (const int result = find(from_folder, from, old); result < 0) return result;
  if (const int result = find(to_folder, to, fresh); result < 0) return result;
  if (old.folder != fresh.folder) return -EXDEV;
  if (!old.node || (existing == Existing::Exchange && !fresh.node)) return -ENOENT;
  if (existing == Existing::Refuse && fresh.node) return -EEXIST;
  if (existing == Existing::Replace && fresh.node && !nodes_[*fresh.node].entries.empty())
    return -ENOTEMPTY;
  const auto left = existing == Existing::Exchange ? fresh.node : std::nullopt;
  change(old.folder, Naming{{old.last, left}, {fresh.last, old.node}});
  return 0;
}

int ModelDisk::remove(int folder, const std::string& path, bool is_folder) {
  const std::lock_guard hold(mutex_);
  Name name{};
  if (const int result = find(folder, path, name); result < 0) return result;
  if (!name.node) return -ENOENT;
  const Inode& node = nodes_[*name.node];
  if (node.is_folder != is_folder) return is_folder ? -ENOTDIR : -EISDIR;
  if (!node.entries.empty()) return -ENOTEMPTY;
  change(name.folder, Naming{{name.last, std::nullopt}});
  return 0;
}

int ModelDisk::unlink(int folder, const std::string& path) { return remove(folder, path, false); }
int ModelDisk::rmdir(int folder, const std::string& path) { return remove(folder, path, true); }

int ModelDisk::list(int folder, std::vector<FolderEntry>& entries) {
  const std::lock_guard hold(mutex_);
  const Handle* const found = handle(folder);
  if (dead_ || found == nullptr) return dead_ ? -EIO : -EBADF;
  entries.clear();
  for (const auto& [name, node] : nodes_[found->node].entries)
    entries.push_back({name, nodes_[node].is_folder ? FileKind::Folder : FileKind::Regular});
  return 0;
}

std::int64_t ModelDisk::free_bytes(int) {
  const std::lock_guard hold(mutex_);
  return dead_ ? -EIO : free_space;
}

}  // namespace flatshard_test
