// Adds among nodes, sorted so that many can run at once.
#pragma once

#include <flatshard/ops/kernel_table.hpp>

#include <vector>

namespace flatshard::cuda {

/// Adds that touch no value in common may change places: each gets the first level after all that
/// touched its values before. Kept from call to call, so that steady steps allocate nothing.
class AddLevels {
 public:
  void sort(std::span<const NormAdd> adds);

  /// The adds, level by level, then where each level ends.
  std::span<const std::byte> table() const { return table_; }
  /// Bytes of the adds in the table.
  std::size_t add_bytes() const { return add_bytes_; }
  int levels() const { return levels_; }
  /// All values that are touched have smaller numbers.
  int value_count() const { return static_cast<int>(written_.size()); }

 private:
  int level_of(const NormAdd& add);
  void fill_table(std::span<const NormAdd> adds);

  int levels_ = 0;
  std::size_t add_bytes_ = 0;
  std::vector<int> level_;    // of each add
  std::vector<int> written_;  // first level after which a value may be read
  std::vector<int> read_;     // first level after which it may be written
  std::vector<std::byte> table_;
};

}  // namespace flatshard::cuda
