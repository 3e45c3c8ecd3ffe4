// The canonical index: one number per element that knows neither padding, world size nor wrapping.
#pragma once

#include <flatshard/core/types.hpp>

#include <span>
#include <vector>

namespace flatshard {

inline constexpr Elements canonical_alignment = 32;  // elements

/// start(0) == 0; start(i) == round_up(start(i-1) + numel(i-1), 32); canonical index of element e
/// of parameter i == start(i) + e. It keys initialisation, stochastic rounding and the norm.
class CanonicalIndex {
 public:
  /// `numels`: elements of each parameter, in model order.
  explicit CanonicalIndex(std::span<const Elements> numels);
  /// Canonical index of the parameter's first element.
  Elements start(int parameter) const { return starts_[static_cast<std::size_t>(parameter)]; }
  /// End of the last parameter, rounded up to 32.
  Elements size() const { return size_; }
  friend bool operator==(const CanonicalIndex&, const CanonicalIndex&) = default;

 private:
  std::vector<Elements> starts_;
  Elements size_ = 0;
};

}  // namespace flatshard
