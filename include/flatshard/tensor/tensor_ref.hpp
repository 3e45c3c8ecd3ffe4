// A view of a tensor: pointer, shape, element type. Trivially copyable; owns nothing.
#pragma once

#include <flatshard/tensor/dtype.hpp>

#include <span>
#include <type_traits>

namespace flatshard {

/// Elements of a shape: the product of its dimensions (1 for a 0-dim tensor).
constexpr Elements numel_of(std::span<const std::int64_t> shape) {
  Elements count = 1;
  for (std::int64_t dimension : shape) count *= dimension;
  return count;
}

/// View of a row-major tensor. The memory and the shape belong to whoever made the view (for the
/// views of a Sharder: valid until the lambda returns or the handle is released).
template <class Element>
class TensorRef {
 public:
  /// Views `data`, row-major, of this shape; both must outlive the view.
  TensorRef(Element* data, std::span<const std::int64_t> shape) : data_(data), shape_(shape) {}
  Element* data() const { return data_; }  // first element
  /// Dimensions, outermost first.
  std::span<const std::int64_t> shape() const { return shape_; }
  Elements numel() const { return numel_of(shape_); }  // elements
  /// All elements in row-major order.
  std::span<Element> flat() const { return {data_, static_cast<std::size_t>(numel())}; }
  Element& operator[](Elements index) const { return data_[index]; }  // row-major position
  /// The dtype of Element.
  static constexpr DType dtype() { return dtype_of<std::remove_const_t<Element>>; }

 private:
  Element* data_;
  std::span<const std::int64_t> shape_;
};

static_assert(std::is_trivially_copyable_v<TensorRef<float>>);

}  // namespace flatshard
