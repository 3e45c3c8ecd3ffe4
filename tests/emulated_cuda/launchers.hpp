// What the stand-ins of kernels share: host kernels that a stream's thread calls at once.
#pragma once

#include <flatshard/core/host_stream.hpp>
#include <flatshard/ops/host_device.hpp>
#include <flatshard/ops/kernel_table.hpp>

#include <cstring>
#include <span>

#include "memory.hpp"
#include "stream.hpp"

namespace emulated {

using namespace flatshard;  // NOLINT: tests only

/// Calls act(kernels, stream) with the calling thread's kernels of the host and an inline stream.
template <class Act>
void on_host(const Act& act) {
  static thread_local const auto kernels = make_host_kernels({.stream_above = Bytes{1} << 40});
  InlineStream stream;
  act(*kernels, stream);
}

inline void touch_elements(const void* begin, DType dtype, Elements count) {
  touch(begin, static_cast<std::size_t>(count * size_of(dtype)));
}

/// A table of `count` from device memory.
template <class Entry>
std::span<const Entry> table_at(const Entry* table, std::size_t count) {
  touch(table, count * sizeof(Entry));
  return {table, count};
}

/// Memory that a kernel leaves with any bytes.
inline void spoil(void* begin, Bytes bytes) {
  touch(begin, static_cast<std::size_t>(bytes));
  std::memset(begin, 0xff, static_cast<std::size_t>(bytes));
}

}  // namespace emulated
