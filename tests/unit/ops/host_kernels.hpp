// What the tests of the host kernels share: every device, random bits of any dtype, guarded memory.
#pragma once

#include <flatshard/ops/host_device.hpp>
#include <flatshard/tensor/convert.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "random.hpp"

namespace flatshard_test {

using namespace flatshard;

inline constexpr DType floating[] = {DType::Float64, DType::Float32,    DType::BFloat16,
                                     DType::Float16, DType::Float8E4M3, DType::Float8E5M2};

/// A few of every length that matters to vectors of 4 to 64 elements and to blocks of 1024.
inline constexpr Elements lengths[] = {0,  1,  2,  7,  8,   15,  16,  17,   31,   32,
                                       33, 63, 64, 65, 127, 511, 513, 1023, 1024, 1025};
inline constexpr Elements long_length = (1 << 20) + 3;  // shared by all threads of a team

struct NamedDevice {
  std::string name;
  std::unique_ptr<HostDevice> device;
};

inline std::vector<InstructionSet> available_sets() {
  std::vector<InstructionSet> sets;
  for (auto set : {InstructionSet::Baseline, InstructionSet::Avx2, InstructionSet::Avx512})
    if (is_available(set)) sets.push_back(set);
  return sets;
}

/// Every instruction set with 1, 2 and 3 threads, with and without stores past the cache, and a
/// threaded stream: all must leave the same bits.
inline const std::vector<NamedDevice>& devices() {
  static const std::vector<NamedDevice> all = [] {
    std::vector<NamedDevice> made;
    for (InstructionSet set : available_sets())
      for (int threads : {1, 2, 3}) {
        HostOptions options;
        options.threads = threads;
        options.instruction_set = set;
        options.form = threads == 2 ? StreamForm::Threaded : StreamForm::Inline;
        if (threads != 1) options.stream_above = 0;
        made.push_back({std::string(name_of(set)) + ", " + std::to_string(threads) + " threads",
                        std::make_unique<HostDevice>(options)});
      }
    return made;
  }();
  return all;
}

/// Runs issue(kernels, stream) on a stream of the device and waits for it.
template <class Issue>
void run_on(HostDevice& device, const Issue& issue) {
  const auto stream = device.make_stream();
  issue(device.kernels(), StreamRef(*stream));
  stream->synchronize();
}

/// Memory for `count` elements between guard zones, `offset` elements after an aligned address,
/// filled with a poison that no kernel should leave or read.
class Guarded {
 public:
  Guarded(DType dtype, Elements count, Elements offset = 0)
      : begin_(guard + offset * size_of(dtype)),
        bytes_(count * size_of(dtype)),
        lines_(static_cast<std::size_t>(ceil_div(begin_ + bytes_ + guard, 64))) {
    std::fill(memory(), memory() + size(), poison);
  }
  std::byte* data() { return memory() + begin_; }
  const std::byte* data() const { return memory() + begin_; }
  Bytes bytes() const { return bytes_; }
  void fill(const std::vector<std::byte>& bytes) {
    if (!bytes.empty()) std::memcpy(data(), bytes.data(), bytes.size());
  }
  std::vector<std::byte> copy() const { return {data(), data() + bytes_}; }
  bool guards_hold() const {
    const auto is_poison = [](std::byte byte) { return byte == poison; };
    return std::all_of(memory(), data(), is_poison) &&
           std::all_of(data() + bytes_, memory() + size(), is_poison);
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  static constexpr Bytes guard = 192;  // a multiple of 64
  static constexpr std::byte poison{0xa5};

  std::byte* memory() { return lines_.data()->bytes; }
  const std::byte* memory() const { return lines_.data()->bytes; }
  Bytes size() const { return static_cast<Bytes>(lines_.size() * sizeof(Line)); }

  Bytes begin_;
  Bytes bytes_;
  std::vector<Line> lines_;
};

/// The value of element i as double.
inline double value_at(const std::byte* data, DType dtype, Elements i) {
  const auto load = [&](auto element) {
    std::memcpy(&element, data + i * size_of(dtype), sizeof element);
    return to_double(element);
  };
  switch (dtype) {
    case DType::Float64:
      return load(double{});
    case DType::Float32:
      return load(float{});
    case DType::BFloat16:
      return load(Bf16{});
    case DType::Float16:
      return load(Half{});
    case DType::Float8E4M3:
      return load(Float8E4M3{});
    default:
      return load(Float8E5M2{});
  }
}

/// element i = value, rounded once.
inline void set_value(std::byte* data, DType dtype, Elements i, double value) {
  const auto store = [&](auto element) {
    element = from_double<decltype(element)>(value);
    std::memcpy(data + i * size_of(dtype), &element, sizeof element);
  };
  switch (dtype) {
    case DType::Float64:
      return store(double{});
    case DType::Float32:
      return store(float{});
    case DType::BFloat16:
      return store(Bf16{});
    case DType::Float16:
      return store(Half{});
    case DType::Float8E4M3:
      return store(Float8E4M3{});
    default:
      return store(Float8E5M2{});
  }
}

/// Half of the elements near 1, a quarter any bits at all, a quarter zeros, denormals, infinities,
/// NaN and the largest numbers.
inline std::vector<std::byte> random_elements(std::mt19937_64& random, DType dtype,
                                              Elements count) {
  const Bytes width = size_of(dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * width));
  for (Elements i = 0; i < count; ++i) {
    const std::uint64_t word = random();
    const double sign = (word & 8) != 0 ? -1.0 : 1.0;
    const double specials[] = {0.0,     1e-310, 1e-40,   6e-8,     2e-5,
                               65504.0, 3e38,   1.7e308, INFINITY, NAN};
    if ((word & 1) != 0)
      set_value(bytes.data(), dtype, i, sign * std::ldexp(double(word >> 11), -53));
    else if ((word & 2) != 0)
      std::memcpy(bytes.data() + i * width, &word, static_cast<std::size_t>(width));
    else
      set_value(bytes.data(), dtype, i, sign * specials[(word >> 4) % 10]);
  }
  return bytes;
}

/// Finite elements of magnitude up to 1.
inline std::vector<std::byte> random_finite(std::mt19937_64& random, DType dtype, Elements count) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_of(dtype)));
  for (Elements i = 0; i < count; ++i)
    set_value(bytes.data(), dtype, i, std::ldexp(double(std::int64_t(random()) >> 11), -52));
  return bytes;
}

/// Equal bits, NaN as a class.
inline bool same_elements(const std::byte* a, const std::byte* b, DType dtype, Elements count) {
  const Bytes width = size_of(dtype);
  if (count == 0 || std::memcmp(a, b, static_cast<std::size_t>(count * width)) == 0) return true;
  for (Elements i = 0; i < count; ++i) {
    if (std::memcmp(a + i * width, b + i * width, static_cast<std::size_t>(width)) == 0) continue;
    if (!is_floating(dtype)) return false;
    if (!std::isnan(value_at(a, dtype, i)) || !std::isnan(value_at(b, dtype, i))) return false;
  }
  return true;
}

}  // namespace flatshard_test
