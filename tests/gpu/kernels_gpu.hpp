// What the tests of the CUDA kernels share: a device and its stream, memory that exists on both
// sides, and the host kernels whose bits are the expected ones.
#pragma once

#include <flatshard/core/cuda_device.hpp>

#include "host_kernels.hpp"

namespace flatshard_test {

struct Gpu {
  CudaDevice device;
  std::unique_ptr<Stream> stream = device.make_stream();
  const KernelTable& kernels() const { return device.kernels(); }
};

inline Gpu& gpu() {
  static Gpu instance;
  return instance;
}

inline HostDevice& host() {
  static HostDevice instance;
  return instance;
}

/// Runs issue(kernels, stream) on the device, or on the host.
template <class Issue>
void run_on_gpu(const Issue& issue) {
  issue(gpu().kernels(), StreamRef(*gpu().stream));
  gpu().stream->synchronize();
}
template <class Issue>
void run_on_host(const Issue& issue) {
  run_on(host(), issue);
}

/// `count` elements on the device, `offset` elements after an aligned address, between guard zones;
/// all of it poisoned.
class OnGpu {
 public:
  OnGpu(DType dtype, Elements count, Elements offset = 0)
      : begin_(guard + offset * size_of(dtype)),
        bytes_(count * size_of(dtype)),
        image_(static_cast<std::size_t>(begin_ + bytes_ + guard), poison),
        buffer_(gpu().device.memory(), static_cast<Bytes>(image_.size())) {
    move(image_.data(), buffer_.data());
  }
  OnGpu(DType dtype, const std::vector<std::byte>& elements, Elements offset = 0)
      : OnGpu(dtype, static_cast<Elements>(elements.size()) / size_of(dtype), offset) {
    std::copy(elements.begin(), elements.end(), image_.begin() + begin_);
    move(image_.data(), buffer_.data());
  }

  std::byte* data() const { return static_cast<std::byte*>(buffer_.data()) + begin_; }
  template <class Element>
  Element* as() const {
    return reinterpret_cast<Element*>(data());
  }
  std::vector<std::byte> elements() {
    move(buffer_.data(), image_.data());
    return {image_.begin() + begin_, image_.begin() + begin_ + bytes_};
  }
  bool guards_hold() {
    move(buffer_.data(), image_.data());
    const auto is_poison = [](std::byte byte) { return byte == poison; };
    return std::all_of(image_.begin(), image_.begin() + begin_, is_poison) &&
           std::all_of(image_.begin() + begin_ + bytes_, image_.end(), is_poison);
  }

 private:
  static constexpr Bytes guard = 256;
  static constexpr std::byte poison{0xa5};

  void move(const void* from, void* to) {
    gpu().device.copy(from, to, static_cast<Bytes>(image_.size()), *gpu().stream);
    gpu().stream->synchronize();
  }

  Bytes begin_;
  Bytes bytes_;
  std::vector<std::byte> image_;
  Buffer buffer_;
};

/// Equal bits (NaN as a class), and nothing beside them touched.
inline bool equals(OnGpu& memory, const std::vector<std::byte>& expected, DType dtype) {
  const auto found = memory.elements();
  const auto count = static_cast<Elements>(expected.size()) / size_of(dtype);
  return found.size() == expected.size() && memory.guards_hold() &&
         same_elements(found.data(), expected.data(), dtype, count);
}

template <class Element>
std::vector<std::byte> bytes_of(const std::vector<Element>& elements) {
  const auto* begin = reinterpret_cast<const std::byte*>(elements.data());
  return {begin, begin + elements.size() * sizeof(Element)};
}

}  // namespace flatshard_test
