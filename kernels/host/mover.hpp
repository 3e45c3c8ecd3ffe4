// Moves ranges of elements, converting on the way, with plain or with non-temporal stores.
#pragma once

#include "block_kernels.hpp"

namespace flatshard::host {

/// destination[i] = to(source[i]) for one pair of dtypes, rounded once; equal dtypes copy bits.
/// A small value: made per call.
class Mover {
 public:
  Mover(const BlockKernels& kernels, DType from, DType to);

  /// Plain stores. The ranges do not overlap, or are the same range of the same dtype.
  void move(const void* source, void* destination, Elements count) const;
  /// Non-temporal stores for every whole cache line of the destination: worth it out of place when
  /// the destination would not stay in the cache (copy: 50 GB/s against 34 on an EPYC of the Zen 4
  /// class, because the lines are not read before they are written). Call fence() at the end.
  void stream(const void* source, void* destination, Elements count) const;
  void move_or_stream(bool streams, const void* source, void* destination, Elements count) const {
    streams ? stream(source, destination, count) : move(source, destination, count);
  }
  /// Orders the stores of stream() before whatever the calling thread publishes next.
  static void fence();

  bool copies() const { return first_ == nullptr; }               // equal dtypes
  Bytes source_bytes() const { return source_bytes_; }            // of one element
  Bytes destination_bytes() const { return destination_bytes_; }  // of one element

 private:
  void stream_direct(const std::byte* source, std::byte* destination, Elements lines) const;
  void stream_whole_lines(const std::byte* source, std::byte* destination, Elements count) const;

  const BlockKernels* kernels_;
  Bytes source_bytes_;
  Bytes destination_bytes_;
  StreamLines stream_lines_;  // nullptr: in blocks
  Convert first_ = nullptr;   // nullptr: copy
  Convert second_ = nullptr;  // nullptr: first_ does it all; else through float
};

/// True when [a, a + a_bytes) and [b, b + b_bytes) share a byte.
bool overlap(const void* a, Bytes a_bytes, const void* b, Bytes b_bytes);

}  // namespace flatshard::host
