#include "slot_cases.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "io_cases.hpp"

namespace slot_cases {
namespace {

HostMemory& test_memory() {
  static HostMemory resource;
  return resource;
}

}  // namespace

std::vector<IoBackend> backends() {
  std::vector<IoBackend> found{IoBackend::Threads};
  const MadeQueue made = make_transfer_queue({}, 1);
  if (made.queue->backend() == IoBackend::Uring)
    found.push_back(IoBackend::Uring);
  else
    MESSAGE("io_uring is not tested: " << made.fallback);
  return found;
}

SlotStoreOptions options_for(const std::string& folder, IoBackend backend) {
  return {.folder = folder,
          .backend = backend,
          .queue_depth = 3,
          .block_bytes = 4096,
          .bounce_buffers = 2};
}

Memory::Memory(Bytes bytes, std::size_t skew)
    : buffer_(test_memory(), bytes + static_cast<Bytes>(skew)),
      data_(static_cast<std::byte*>(buffer_.data()) + skew, static_cast<std::size_t>(bytes)) {
  std::fill(data_.begin(), data_.end(), std::byte{0xee});
}

void write(SlotStore& store, std::size_t slot, std::int64_t tag, std::span<const std::byte> data) {
  store.begin_write(slot, tag, data);
  store.wait(slot);
}

Data read(SlotStore& store, std::size_t slot, std::int64_t tag, std::size_t skew) {
  const Memory memory(store.bytes(slot), skew);
  store.begin_read(slot, tag, memory.span());
  store.wait(slot);
  return memory.copy();
}

Data fresh(const SlotStore& store, std::size_t slot, std::mt19937_64& random) {
  return io_cases::random_bytes(random, static_cast<std::size_t>(store.bytes(slot)));
}

std::string path_of_open_file(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!gone && target.starts_with(folder + "/") && target.ends_with("/slots (deleted)"))
      return entry.path().string();
  }
  return {};
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace slot_cases
