// Packs: neighbouring elements that a thread loads and stores at once, whatever the alignment of
// the ends of a range.
#pragma once

#include <flatshard/tensor/convert.hpp>

#include <cuda_runtime.h>

namespace flatshard::cuda {

inline constexpr int block_threads = 256;

/// Blocks that give `packs` one thread each.
inline Elements blocks_for(Elements packs) { return ceil_div(packs, block_threads); }

namespace detail {
template <int Bytes>
struct WordOf;
template <>
struct WordOf<1> {
  using Type = unsigned char;
};
template <>
struct WordOf<2> {
  using Type = unsigned short;
};
template <>
struct WordOf<4> {
  using Type = unsigned;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<16> {
  using Type = uint4;
};
}  // namespace detail

/// `Count` neighbours; in memory at most 16 bytes.
template <class Element, int Count>
struct Pack {
  Element at[Count];
};

/// What a pack is loaded and stored as.
template <class Element, int Count>
using PackWord = typename detail::WordOf<Count* static_cast<int>(sizeof(Element))>::Type;

/// The most elements of every type that fit 16 bytes.
template <class... Element>
inline constexpr int pack_elements = [] {
  int count = 16;
  ((count = 16 / static_cast<int>(sizeof(Element)) < count ? 16 / static_cast<int>(sizeof(Element))
                                                           : count),
   ...);
  return count;
}();

/// How a range is cut into packs: pack k holds elements [k * Count - lead, (k + 1) * Count - lead)
/// of the range, as far as there are such, and begins at a multiple of its size in memory.
template <int Count, class Element>
FLATSHARD_HOST_DEVICE int lead_of(const Element* begin) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(begin) / sizeof(Element) % Count);
}
template <int Count>
FLATSHARD_HOST_DEVICE Elements packs_of(Elements count, int lead) {
  return count == 0 ? 0 : (count + lead + Count - 1) / Count;
}

template <int Count>
FLATSHARD_INLINE __device__ bool is_whole(Elements index, Elements count) {
  return index >= 0 && index + Count <= count;
}

/// Elements [index, index + Count) by one access. Decide once per thread whether all of its packs
/// can be loaded so: loads inside branches of their own wait for one another.
template <int Count, class Element>
FLATSHARD_INLINE __device__ Pack<Element, Count> load_pack(const Element* from, Elements index) {
  using Word = PackWord<Element, Count>;
  return bit_cast<Pack<Element, Count>>(*reinterpret_cast<const Word*>(from + index));
}
template <int Count, class Element>
FLATSHARD_INLINE __device__ void store_pack(const Pack<Element, Count>& pack, Element* to,
                                            Elements index) {
  using Word = PackWord<Element, Count>;
  *reinterpret_cast<Word*>(to + index) = bit_cast<Word>(pack);
}

/// The same one by one, at any alignment and only what lies in [0, count): the rest is zero.
template <int Count, class Element>
FLATSHARD_INLINE __device__ Pack<Element, Count> gather_pack(const Element* from, Elements index,
                                                             Elements count) {
  Pack<Element, Count> pack{};
#pragma unroll
  for (int i = 0; i < Count; ++i)
    if (index + i >= 0 && index + i < count) pack.at[i] = from[index + i];
  return pack;
}
template <int Count, class Element>
FLATSHARD_INLINE __device__ void scatter_pack(const Pack<Element, Count>& pack, Element* to,
                                              Elements index, Elements count) {
#pragma unroll
  for (int i = 0; i < Count; ++i)
    if (index + i >= 0 && index + i < count) to[index + i] = pack.at[i];
}

namespace detail {

/// Types of which the GPU converts two floats at once.
template <class To>
inline constexpr bool converts_in_pairs = std::is_same_v<To, Bf16> || std::is_same_v<To, Half>;

/// The second in the upper half.
template <class To>
FLATSHARD_INLINE __device__ std::uint32_t narrow_pair(float first, float second) {
  std::uint32_t pair;
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<To, Bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
#else
  pair = from_float<To>(first).bits | std::uint32_t{from_float<To>(second).bits} << 16;
#endif
  return pair;
}

}  // namespace detail

/// Every element converted.
template <class To, int Count, class From>
FLATSHARD_INLINE __device__ Pack<To, Count> convert_pack(const From (&from)[Count]) {
  Pack<To, Count> to;
  if constexpr (std::is_same_v<From, float> && detail::converts_in_pairs<To> && Count % 2 == 0) {
#pragma unroll
    for (int i = 0; i < Count; i += 2) {
      const std::uint32_t pair = detail::narrow_pair<To>(from[i], from[i + 1]);
      to.at[i].bits = static_cast<std::uint16_t>(pair & 0xffffU);
      to.at[i + 1].bits = static_cast<std::uint16_t>(pair >> 16);
    }
  } else if constexpr (std::is_same_v<From, Bf16> && std::is_same_v<To, float> && Count % 2 == 0) {
    std::uint32_t pairs[Count / 2];
    __builtin_memcpy(pairs, from, sizeof pairs);
#pragma unroll
    for (int i = 0; i < Count; i += 2) {
      to.at[i] = bit_cast<float>(pairs[i / 2] << 16);
      to.at[i + 1] = bit_cast<float>(pairs[i / 2] & 0xffff0000U);
    }
  } else {
#pragma unroll
    for (int i = 0; i < Count; ++i) to.at[i] = convert<To>(from[i]);
  }
  return to;
}

/// The entry of a table in device memory, sorted by first_block, that block `block` works on: the
/// last with first_block_of(entry) <= block. A warp looks at 32 places at once, because every look
/// costs the latency of a load before the block's own loads can begin. All threads of a warp call
/// it.
template <class FirstBlockOf>
FLATSHARD_INLINE __device__ int entry_of_block(int entries, Elements block,
                                               const FirstBlockOf& first_block_of) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int low = 0;
  for (int size = entries; size > 1;) {
    const int step = (size + 31) / 32;
    const int place = lane * step;
    const bool before = place < size && first_block_of(low + place) <= block;
    const int passed = __popc(__ballot_sync(0xffffffffU, before)) - 1;
    low += passed * step;
    size = size - passed * step < step ? size - passed * step : step;
  }
  return low;
}

}  // namespace flatshard::cuda
