// Parameters -> one padded index space -> equal slices, one per rank. A host-only algebra.
#pragma once

#include <flatshard/core/types.hpp>

#include <span>
#include <vector>

namespace flatshard {

/// Half-open range of elements.
struct Range {
  Elements begin = 0;                             // first element
  Elements end = 0;                               // one past the last
  Elements count() const { return end - begin; }  // elements in it
  friend constexpr bool operator==(const Range&, const Range&) = default;
};

/// Places parameters one after the other, each start a multiple of `alignment` elements.
///   start(0) == 0;  start(i) == round_up(start(i-1) + numel(i-1), alignment)
///   total() == end of the last parameter (0 without parameters)
class FlatLayout {
 public:
  /// `numels`: elements of each parameter; `alignment` in elements.
  FlatLayout(std::span<const Elements> numels, Elements alignment);
  /// Number of parameters.
  int parameters() const { return static_cast<int>(numels_.size()); }
  Elements alignment() const { return alignment_; }  // of starts, in elements
  /// Position of the parameter's first element.
  Elements start(int parameter) const { return starts_[static_cast<std::size_t>(parameter)]; }
  /// Elements of the parameter.
  Elements numel(int parameter) const { return numels_[static_cast<std::size_t>(parameter)]; }
  /// [start, start + numel) of the parameter.
  Range range(int parameter) const {
    return {start(parameter), start(parameter) + numel(parameter)};
  }
  Elements total() const { return total_; }  // elements, padding between parameters included
  friend bool operator==(const FlatLayout&, const FlatLayout&) = default;

 private:
  std::vector<Elements> numels_;
  std::vector<Elements> starts_;
  Elements alignment_;
  Elements total_ = 0;
};

/// Cuts an index space of `total` elements into `world` equal slices.
///   slice() == round_up(ceil_div(total, world), alignment);  padded() == world * slice()
///   range(r) == [r * slice(), (r + 1) * slice());  the ranges are disjoint and cover [0, padded())
class Partition {
 public:
  /// `alignment`, of slices, in elements.
  Partition(Elements total, int world, Elements alignment);
  int world() const { return world_; }                 // number of slices
  Elements slice() const { return slice_; }            // elements of each slice
  Elements padded() const { return slice_ * world_; }  // elements of all slices
  Elements total() const { return total_; }            // elements before the last padding
  /// Positions of slice `rank`.
  Range range(Rank rank) const { return {rank * slice_, (rank + 1) * slice_}; }
  /// Elements of slice `rank` that lie past total().
  Elements padding(Rank rank) const;
  /// The rank whose range holds `element`; the last rank for element == padded().
  Rank owner(Elements element) const;
  friend bool operator==(const Partition&, const Partition&) = default;

 private:
  Elements total_;
  int world_;
  Elements slice_;
};

/// The part of one parameter that lies in one slice.
struct Fragment {
  int parameter = 0;              // of the layout
  Elements parameter_offset = 0;  // first element, within the parameter
  Elements slice_offset = 0;      // where it lies within the slice
  Elements count = 0;  // 0 only for a zero-element parameter, which has exactly one owner
  friend constexpr bool operator==(const Fragment&, const Fragment&) = default;
};

/// Fragments of slice `rank`, in parameter order. Over all ranks each element of each parameter is
/// in exactly one fragment, and each zero-element parameter has exactly one (empty) fragment.
std::vector<Fragment> fragments(const FlatLayout& layout, const Partition& partition, Rank rank);

}  // namespace flatshard
