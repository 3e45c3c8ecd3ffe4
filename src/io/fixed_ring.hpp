// A queue that never allocates after construction.
#pragma once

#include <cstddef>
#include <vector>

namespace flatshard::detail {

/// First in, first out, at most `capacity` values.
template <class Value>
class FixedRing {
 public:
  explicit FixedRing(std::size_t capacity) : values_(capacity) {}

  bool empty() const { return count_ == 0; }
  /// The ring must not be full.
  void push(const Value& value) { values_[(first_ + count_++) % values_.size()] = value; }
  /// The ring must not be empty.
  Value pop() {
    const Value value = values_[first_];
    first_ = (first_ + 1) % values_.size();
    --count_;
    return value;
  }

 private:
  std::vector<Value> values_;
  std::size_t first_ = 0, count_ = 0;
};

}  // namespace flatshard::detail
