// What a kernel is measured against: the same bytes moved by the plainest code that the processor
// runs well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#define FLATSHARD_BENCH_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FLATSHARD_BENCH_CLONES
#endif

namespace flatshard_bench {

/// Copies `bytes` (a multiple of 64; the destination is aligned to 64) past the cache.
#if defined(__x86_64__)
__attribute__((target("avx512f"))) inline void stream_copy_wide(const std::byte* source,
                                                                std::byte* destination,
                                                                std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(destination + i),
                        _mm512_loadu_si512(source + i));
  _mm_sfence();
}
inline void stream_copy(const std::byte* source, std::byte* destination, std::size_t bytes) {
  if (__builtin_cpu_supports("avx512f")) return stream_copy_wide(source, destination, bytes);
  for (std::size_t i = 0; i < bytes; i += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(destination + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i)));
  _mm_sfence();
}
#else
inline void stream_copy(const std::byte* source, std::byte* destination, std::size_t bytes) {
  std::memcpy(destination, source, bytes);
}
#endif

/// Reads `words` and gives a value that depends on all of them.
FLATSHARD_BENCH_CLONES
inline std::uint64_t read_all(const std::uint64_t* words, std::size_t count) {
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < count; ++i) all ^= words[i];
  return all;
}

/// In-place updates: g is read, the other streams are read and written.
FLATSHARD_BENCH_CLONES
inline void update1(const float* __restrict g, float* __restrict a, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) a[i] = a[i] * 0.5F + g[i];
}
FLATSHARD_BENCH_CLONES
inline void update2(const float* __restrict g, float* __restrict a, float* __restrict b,
                    std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    a[i] = a[i] * 0.5F + g[i];
    b[i] = b[i] * 0.5F + g[i];
  }
}
FLATSHARD_BENCH_CLONES
inline void update3(const float* __restrict g, float* __restrict a, float* __restrict b,
                    float* __restrict c, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    a[i] = a[i] * 0.5F + g[i];
    b[i] = b[i] * 0.5F + g[i];
    c[i] = c[i] * 0.5F + g[i];
  }
}
/// Also writes a stream of 2-byte elements, cut off from a.
FLATSHARD_BENCH_CLONES
inline void update3_and_copy(const float* __restrict g, float* __restrict a, float* __restrict b,
                             float* __restrict c, std::uint16_t* __restrict copy,
                             std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    a[i] = a[i] * 0.5F + g[i];
    b[i] = b[i] * 0.5F + g[i];
    c[i] = c[i] * 0.5F + g[i];
    copy[i] = static_cast<std::uint16_t>(__builtin_bit_cast(std::uint32_t, a[i]) >> 16);
  }
}
/// The same from a g of 2-byte elements, the upper halves of floats.
FLATSHARD_BENCH_CLONES
inline void update3_and_copy(const std::uint16_t* __restrict g, float* __restrict a,
                             float* __restrict b, float* __restrict c,
                             std::uint16_t* __restrict copy, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto wide = __builtin_bit_cast(float, static_cast<std::uint32_t>(g[i]) << 16);
    a[i] = a[i] * 0.5F + wide;
    b[i] = b[i] * 0.5F + wide;
    c[i] = c[i] * 0.5F + wide;
    copy[i] = static_cast<std::uint16_t>(__builtin_bit_cast(std::uint32_t, a[i]) >> 16);
  }
}

}  // namespace flatshard_bench
