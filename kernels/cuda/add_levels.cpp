#include "add_levels.hpp"

#include <algorithm>

namespace flatshard::cuda {

void AddLevels::sort(std::span<const NormAdd> adds) {
  level_.clear();
  written_.clear();
  read_.clear();
  levels_ = 0;
  for (const NormAdd& add : adds) level_.push_back(level_of(add));
  fill_table(adds);
}

int AddLevels::level_of(const NormAdd& add) {
  const auto into = static_cast<std::size_t>(add.into), from = static_cast<std::size_t>(add.from);
  if (std::max(into, from) >= written_.size()) {
    written_.resize(std::max(into, from) + 1, 0);
    read_.resize(written_.size(), 0);
  }
  const int level = std::max({written_[into], read_[into], written_[from]});
  written_[into] = level + 1;
  read_[from] = std::max(read_[from], level + 1);
  levels_ = std::max(levels_, level + 1);
  return level;
}

void AddLevels::fill_table(std::span<const NormAdd> adds) {
  add_bytes_ = adds.size_bytes();
  table_.resize(add_bytes_ + static_cast<std::size_t>(levels_) * sizeof(int));
  auto* sorted = reinterpret_cast<NormAdd*>(table_.data());
  auto* ends = reinterpret_cast<int*>(table_.data() + add_bytes_);
  std::fill(ends, ends + levels_, 0);
  for (const int level : level_) ++ends[level];
  for (int level = 1; level < levels_; ++level) ends[level] += ends[level - 1];
  for (std::size_t k = adds.size(); k > 0; --k) sorted[--ends[level_[k - 1]]] = adds[k - 1];
  for (int level = 0; level < levels_; ++level)  // from begins back to ends
    ends[level] = level + 1 < levels_ ? ends[level + 1] : static_cast<int>(adds.size());
}

}  // namespace flatshard::cuda
