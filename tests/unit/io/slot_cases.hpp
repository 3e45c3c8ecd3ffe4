// What the tests of slot stores share.
#pragma once

#include <flatshard/core/host_memory.hpp>
#include <flatshard/io/slot_store.hpp>

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "io_cases.hpp"

namespace slot_cases {

using namespace flatshard;
using Data = std::vector<std::byte>;

/// Those that this machine has; says so where io_uring is missing.
std::vector<IoBackend> backends();

/// Small blocks, so that slots have several.
SlotStoreOptions options_for(const std::string& folder, IoBackend backend);

/// Poisoned memory at `skew` bytes after an aligned address.
class Memory {
 public:
  explicit Memory(Bytes bytes, std::size_t skew = 0);
  std::span<std::byte> span() const { return data_; }
  Data copy() const { return {data_.begin(), data_.end()}; }

 private:
  Buffer buffer_;
  std::span<std::byte> data_;
};

void write(SlotStore& store, std::size_t slot, std::int64_t tag, std::span<const std::byte> data);
/// Through memory at `skew` bytes after an aligned address.
Data read(SlotStore& store, std::size_t slot, std::int64_t tag, std::size_t skew = 0);
/// Random bytes for a slot.
Data fresh(const SlotStore& store, std::size_t slot, std::mt19937_64& random);

/// The path through which the store's unnamed file can be reached, of the only store in `folder`.
std::string path_of_open_file(const std::string& folder);

/// Names of the entries of a folder, sorted.
std::vector<std::string> names_in(const std::string& folder);

}  // namespace slot_cases
