// A file system in memory that knows what is durable and what is not.
#pragma once

#include <flatshard/io/file_operations.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace flatshard_test {

/// What a crash did to a change that was not synchronized.
enum class Fate : std::uint8_t {
  Kept,
  Dropped,
  Torn  // of a write: each sector of 512 bytes is kept or dropped; of entries: dropped
};

/// Files have bytes, folders have entries, and both have changes since their last fsync. A rename
/// is one change, an fsync of a file says nothing of its entry: stricter than any real file system,
/// since the changes that survive a crash may be any, of any file, in spite of their order. Folders
/// cannot be renamed into other folders, and there are no symbolic links. Thread-safe.
class ModelDisk final : public flatshard::FileOperations {
 public:
  ModelDisk();

  /// From now on every operation fails with -EIO and changes nothing, as if the process were dead.
  void die();
  /// Of an fsync that failed: the changes so far stay visible but no later fsync writes them. (For
  /// a folder the journal still has them.)
  void lose_changes_of(int file);

  /// Changes that are not synchronized.
  std::size_t pending() const;
  /// The same disk again, with no file open.
  std::unique_ptr<ModelDisk> copy() const;
  /// The disk after a crash: fate(k) is that of the k-th pending change, `random` tears.
  std::unique_ptr<ModelDisk> after_crash(const std::function<Fate(std::size_t)>& fate,
                                         std::mt19937_64& random) const;

  int open(int folder, const std::string& path, int flags, unsigned mode) override;
  int open_beneath(int folder, const std::string& path, int flags, unsigned mode) override;
  int reopen_past_cache(int file) override;
  int close(int file) override;
  std::int64_t pread(int file, void* data, std::size_t bytes, flatshard::Bytes offset) override;
  std::int64_t pwrite(int file, const void* data, std::size_t bytes,
                      flatshard::Bytes offset) override;
  int fallocate(int file, flatshard::Bytes offset, flatshard::Bytes bytes) override;
  int ftruncate(int file, flatshard::Bytes bytes) override;
  int fsync(int file) override;
  int fstat(int file, flatshard::FileStatus& status) override;
  int hint(int file, flatshard::FileHint hint, flatshard::Bytes offset,
           flatshard::Bytes bytes) override;
  int lock(int file) override;
  int stat(int folder, const std::string& path, flatshard::FileStatus& status) override;
  int mkdir(int folder, const std::string& path, unsigned mode) override;
  int rename(int from_folder, const std::string& from, int to_folder, const std::string& to,
             flatshard::Existing existing) override;
  int unlink(int folder, const std::string& path) override;
  int rmdir(int folder, const std::string& path) override;
  int list(int folder, std::vector<flatshard::FolderEntry>& entries) override;
  std::int64_t free_bytes(int file) override;

 private:
  using Content = std::vector<std::byte>;
  using Node = std::size_t;  // index
  using Entries = std::map<std::string, Node>;

  struct Write {
    std::optional<std::size_t> size;  // a resize, without bytes
    std::size_t offset = 0;
    Content bytes = {};
    bool lost = false;
  };
  /// Names with what they stand for afterwards; none: they are free.
  using Naming = std::vector<std::pair<std::string, std::optional<Node>>>;

  struct Inode {
    bool is_folder = false;
    Content now = {}, durable = {};
    std::vector<Write> writes = {};
    Entries entries = {}, durable_entries = {};
    std::vector<Naming> namings = {};
  };
  struct Handle {
    Node node = 0;
    bool whole_blocks = false;  // past the cache
    bool has_lock = false;
  };
  struct Name {
    Node folder;
    std::string last;
    std::optional<Node> node;
  };

  static void apply(const Write& write, Content& content);
  static void apply(const Naming& naming, Entries& entries);
  static void tear(const Write& write, Content& content, std::mt19937_64& random);
  void change(Node node, Write write);
  void change(Node folder, Naming naming);
  Node make(bool is_folder);
  Handle* handle(int file);
  int hand_out(Node node, bool whole_blocks = false);
  /// A negative errno, or 0: the file can be written or read so.
  int refusal(int file, const void* data, std::size_t bytes, flatshard::Bytes offset);
  /// A negative errno, or 0 and what the path names.
  int find(int folder, const std::string& path, Name& name);
  int remove(int folder, const std::string& path, bool is_folder);
  flatshard::FileStatus status_of(Node node) const;

  mutable std::mutex mutex_;
  bool dead_ = false;
  std::vector<Inode> nodes_;  // 0: the root
  std::map<int, Handle> handles_;
  int next_handle_ = 3;
};

}  // namespace flatshard_test
