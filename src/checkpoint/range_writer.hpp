// One rank's hand in the files of a save: byte ranges in place, and their digests.
#pragma once

#include <flatshard/io/folder.hpp>
#include <flatshard/io/write_behind.hpp>

#include <optional>
#include <span>
#include <vector>

#include "digests.hpp"
#include "save_layout.hpp"

namespace flatshard::detail {

/// One thread at a time. Errors are IoErrors, perhaps of an earlier write.
class RangeWriter {
 public:
  /// What is written past the page cache passes through `memory`.
  RangeWriter(const SaveLayout& layout, MemoryResource& memory, const SaveOptions& options);

  /// Takes that memory now.
  void reserve() { behind_.reserve(); }
  /// Makes all files, with their sizes and heads: one rank does so before the others open them.
  void create(const Folder& stage);
  /// Elements of the job from `first` (within the piece) on, as the file has them.
  void write(const Folder& stage, const WriteJob& job, Elements first,
             std::span<const std::byte> bytes);
  /// Everything written is on the device.
  void finish();
  /// Ranges that follow each other in a tensor are one.
  const std::vector<RangeDigest>& digests() const { return digests_; }

 private:
  File& file(const Folder& stage, int index);
  void count(const WriteJob& job, Bytes first, std::span<const std::byte> bytes);

  const SaveLayout& layout_;
  std::vector<std::optional<File>> files_;
  std::vector<RangeDigest> digests_;
  WriteBehind behind_;  // after the files that it writes
};

}  // namespace flatshard::detail
