#pragma once
// Arrays on the device for the tests of train_gpt's kernels: what is not written stays poison.

#include <flatshard/core/cuda_device.hpp>
#include <flatshard/tensor/convert.hpp>
#include <flatshard/tensor/dtype.hpp>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "cuda/kernels.hpp"

namespace train_gpt_test {

/// The device and the stream of all tests of a program.
struct Gpu {
  flatshard::CudaDevice device{0};
  std::unique_ptr<flatshard::Stream> stream = device.make_compute_stream();
  train_gpt::gpu::StreamHandle handle() {
    return static_cast<train_gpt::gpu::StreamHandle>(flatshard::cuda_stream(*stream));
  }
};
inline Gpu& gpu() {
  static Gpu only;
  return only;
}

template <class T>
class Array {
 public:
  /// Every byte 0xff: NaN in each floating-point type.
  explicit Array(std::size_t count) : Array(std::vector<T>(count), true) {}
  explicit Array(const std::vector<T>& values) : Array(values, false) {}

  T* data() { return static_cast<T*>(buffer_.data()); }
  std::vector<T> values() {
    std::vector<T> out(count_);
    copy(data(), out.data());
    return out;
  }

 private:
  Array(std::vector<T> values, bool poison)
      : count_(values.size()),
        buffer_(gpu().device.memory(), static_cast<flatshard::Bytes>(sizeof(T) * (count_ + 1))) {
    if (poison && count_ > 0) std::memset(values.data(), 0xff, sizeof(T) * count_);
    copy(values.data(), data());
  }
  void copy(const void* from, void* to) {
    if (count_ == 0) return;
    gpu().device.copy(from, to, static_cast<flatshard::Bytes>(sizeof(T) * count_), *gpu().stream);
    gpu().stream->synchronize();
  }

  std::size_t count_;
  flatshard::Buffer buffer_;
};

/// normal(0, deviation), rounded to T; as T and as what T holds.
template <class T>
struct Sample {
  std::vector<T> stored;
  std::vector<double> exact;

  Sample(std::size_t count, double deviation, std::mt19937_64& random, double middle = 0) {
    std::normal_distribution<double> normal{middle, deviation};
    for (std::size_t i = 0; i < count; ++i) {
      stored.push_back(flatshard::convert<T>(static_cast<float>(normal(random))));
      exact.push_back(static_cast<double>(flatshard::convert<float>(stored.back())));
    }
  }
};

template <class T>
std::vector<double> exact(const std::vector<T>& values) {
  std::vector<double> out;
  for (const T x : values) out.push_back(static_cast<double>(flatshard::convert<float>(x)));
  return out;
}

/// |out - expected| / |expected| over all elements; NaN never passes a comparison. An element
/// counts as at least `smallest`: below its smallest normal number a type rounds no finer.
inline double relative_error(const std::vector<double>& out, const std::vector<double>& expected,
                             double smallest = 0) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (out[i] - expected[i]) * (out[i] - expected[i]);
    const double magnitude = std::fmax(std::fabs(expected[i]), smallest);
    size += magnitude * magnitude;
  }
  return std::sqrt(error / std::fmax(size, 1e-300));
}

/// Half the distance of neighbours of 1: the largest relative error of one rounding.
template <class T>
constexpr double unit_roundoff = sizeof(T) == 4 ? 0x1p-24 : 0x1p-11;
template <>
inline constexpr double unit_roundoff<flatshard::Bf16> = 0x1p-8;
template <class T>
constexpr double smallest_normal = sizeof(T) == 4 ? 0x1p-126 : 0x1p-14;
template <>
inline constexpr double smallest_normal<flatshard::Bf16> = 0x1p-126;

}  // namespace train_gpt_test
