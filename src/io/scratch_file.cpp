#include "scratch_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <random>
#include <span>
#include <string_view>

namespace flatshard::detail {
namespace {

constexpr std::string_view own_prefix = "flatshard-slots-";
constexpr std::size_t own_digits = 16;
constexpr const char* own_file = "slots";
constexpr int most_names = 100;  // each lost to a sweep of another process, or taken

#if defined(O_DIRECT)
constexpr int past_page_cache = O_DIRECT;
#else
constexpr int past_page_cache = 0;
#endif

std::string fresh_name() {
  std::random_device device;
  const auto word = [&] { return std::uint32_t{device()}; };
  return fmt::format("{}{:08x}{:08x}", own_prefix, word(), word());
}

bool is_own_name(std::string_view name) {
  return name.starts_with(own_prefix) && name.size() == own_prefix.size() + own_digits &&
         name.find_first_not_of("0123456789abcdef", own_prefix.size()) == std::string_view::npos;
}

/// Nothing but what a scratch file leaves is removed; what else is in the folder keeps it.
void remove_own(const Folder& parent, const std::string& name, const Folder& folder) noexcept {
  FileOperations& operations = parent.operations();
  operations.unlink(folder.descriptor(), own_file);
  operations.rmdir(parent.descriptor(), name);
}

void remove_if_dead(const Folder& parent, const std::string& name) try {
  const Folder folder = parent.open_folder(name);
  if (parent.operations().lock(folder.descriptor()) >= 0) remove_own(parent, name, folder);
} catch (const IoError&) {
  // Another user's, or just removed by somebody else.
}

/// What cannot be removed stays: it harms nobody.
void sweep(const Folder& parent) try {
  for (const FolderEntry& entry : parent.list())
    if (entry.kind == FileKind::Folder && is_own_name(entry.name))
      remove_if_dead(parent, entry.name);
} catch (const IoError&) {
}

/// Nothing in it has to last: its own parent is synchronized only when it is new.
Folder opened_or_made(const std::string& path, FileOperations& operations) try {
  return Folder::open(path, operations);
} catch (const IoError& error) {
  if (error.code() != ENOENT) throw;
  return Folder::open_or_create(path, operations);
}

template <class Call>
int while_interrupted(Call call) {
  int result = call();
  for (int tries = 1; result == -EINTR && tries < 1000; ++tries) result = call();
  return result;
}

File open_unnamed(const Folder& folder, bool direct) {
  FileOperations& operations = folder.operations();
  const std::string path = folder.path_of(own_file);
  const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | (direct ? past_page_cache : 0);
  const int opened = while_interrupted(
      [&] { return operations.open(folder.descriptor(), own_file, flags, 0600); });
  if (opened < 0) throw IoError("create", path, -1, -opened);
  File file = File::adopt(opened, path, operations);
  folder.remove_file(own_file);
  return file;
}

/// A file system may take the flag and then refuse transfers.
void expect_direct_transfers(File& file) {
  alignas(ScratchFile::alignment) std::array<std::byte, ScratchFile::alignment> page = {};
  file.write(0, page);
  file.read(0, page);
}

bool takes_no_direct(const IoError& error) {
  return error.code() == EINVAL || error.code() == EOPNOTSUPP;
}

bool lost_a_race(const IoError& error) {
  return error.code() == EEXIST || error.code() == ENOENT || error.code() == EWOULDBLOCK;
}

/// False: the file system cannot reserve, but has room now.
bool reserve(File& file, Bytes bytes, FileOperations& operations) {
  if (bytes == 0) return true;
  const int result =
      while_interrupted([&] { return operations.fallocate(file.descriptor(), 0, bytes); });
  if (result >= 0) return true;
  const std::string detail = fmt::format("{} bytes", bytes);
  if (result != -EOPNOTSUPP && result != -ENOSYS)
    throw IoError("allocate", file.path(), -1, -result, detail);
  const Bytes room = operations.free_bytes(file.descriptor());
  if (room < bytes)
    throw IoError("allocate", file.path(), -1, room < 0 ? static_cast<int>(-room) : ENOSPC, detail);
  file.resize(bytes);
  return false;
}

}  // namespace

class ScratchFile::OwnFolder {
 public:
  OwnFolder(const Folder& parent, std::string name)
      : parent_(parent), name_(std::move(name)), folder_(parent.create_folder(name_)) {
    // Held until the folder is closed. Where there are no locks nothing is swept either.
    const int locked = parent.operations().lock(folder_.descriptor());
    if (locked != -EWOULDBLOCK) return;
    remove_own(parent_, name_, folder_);
    throw IoError("lock", folder_.path(), -1, EWOULDBLOCK);
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  ~OwnFolder() { remove_own(parent_, name_, folder_); }
  const Folder& folder() const { return folder_; }

 private:
  const Folder& parent_;
  std::string name_;
  Folder folder_;
};

struct ScratchFile::Place {
  Place(const Folder& parent, bool direct)
      : folder(parent, fresh_name()), file(open_unnamed(folder.folder(), direct)) {}

  static std::unique_ptr<Place> make(const Folder& parent, bool direct) {
    for (int tries = 1;; ++tries) {
      try {
        return std::make_unique<Place>(parent, direct);
      } catch (const IoError& error) {
        if (!lost_a_race(error) || tries == most_names) throw;
      }
    }
  }
  /// Null: not here.
  static std::unique_ptr<Place> try_make_direct(const Folder& parent) try {
    auto place = make(parent, true);
    expect_direct_transfers(place->file);
    return place;
  } catch (const IoError& error) {
    if (!takes_no_direct(error)) throw;
    return nullptr;
  }

  OwnFolder folder;
  File file;
};

ScratchFile::ScratchFile(const ScratchRequest& request)
    : parent_(opened_or_made(request.folder, request.operations)) {
  sweep(parent_);
  if (request.direct && past_page_cache != 0) place_ = Place::try_make_direct(parent_);
  direct_ = place_ != nullptr;
  if (!direct_) place_ = Place::make(parent_, false);
  reserved_ = reserve(place_->file, request.bytes, request.operations);
}

ScratchFile::~ScratchFile() = default;

const File& ScratchFile::file() const { return place_->file; }

}  // namespace flatshard::detail
