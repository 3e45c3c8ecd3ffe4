#include "tree_reduce.hpp"

#include <flatshard/ops/reduction_tree.hpp>

#include <algorithm>

namespace flatshard::host {
namespace {

/// The operations of a BlockKernels on the type that sums are formed in.
template <class Compute>
struct Sums;
template <>
struct Sums<float> {
  static constexpr DType dtype = DType::Float32;
  static void accumulate(const BlockKernels& kernels, const float* addend, float* sum,
                         Elements count) {
    kernels.accumulate_float(addend, sum, count);
  }
  static void add(const BlockKernels& kernels, const float* first, const float* second, float* sum,
                  Elements count) {
    kernels.add_float(first, second, sum, count);
  }
  static void add_four(const BlockKernels& kernels, const float* const* terms, float* sum,
                       Elements count) {
    kernels.add_four_float(terms, sum, count);
  }
};
template <>
struct Sums<double> {
  static constexpr DType dtype = DType::Float64;
  static void accumulate(const BlockKernels& kernels, const double* addend, double* sum,
                         Elements count) {
    kernels.accumulate_double(addend, sum, count);
  }
  static void add(const BlockKernels& kernels, const double* first, const double* second,
                  double* sum, Elements count) {
    kernels.add_double(first, second, sum, count);
  }
  static void add_four(const BlockKernels& kernels, const double* const* terms, double* sum,
                       Elements count) {
    kernels.add_four_double(terms, sum, count);
  }
};

const std::byte* at(const void* begin, Bytes offset) {
  return static_cast<const std::byte*>(begin) + offset;
}
std::byte* at(void* begin, Bytes offset) { return static_cast<std::byte*>(begin) + offset; }

/// One block of a reduction: the stack of partial sums.
template <class Compute>
class BlockTree {
 public:
  BlockTree(const BlockKernels& kernels, DType contribution)
      : kernels_(kernels), widen_(kernels, contribution, Sums<Compute>::dtype) {}

  /// At most as many elements as fit the level-1 and level-2 caches with some partial sums.
  static constexpr Elements elements = 2048 / static_cast<Elements>(sizeof(Compute));

  /// The sum of elements [begin, begin + count) of all sources; valid until the next call.
  const Compute* sum(std::span<const void* const> sources, Elements begin, Elements count) {
    const std::size_t fours = sources.size() / 4;
    for (std::size_t four = 0; four < fours; ++four) {
      take<4>(&sources[4 * four], begin, count);
      for (int i = merges_after(static_cast<std::int64_t>(four) + 1); i > 0; --i) merge(count);
    }
    const void* const* rest = sources.data() + 4 * fours;
    if (sources.size() % 4 >= 2) take<2>(rest, begin, count);
    if (sources.size() % 2 != 0) take<1>(rest + sources.size() % 4 / 2 * 2, begin, count);
    while (depth_ > 1) merge(count);
    depth_ = 0;
    return partials_[0];
  }

 private:
  static constexpr int most_partials = 32;  // of the first 2^32 terms

  /// Pushes the sum of the next 1, 2 or 4 contributions.
  template <int Terms>
  void take(const void* const* sources, Elements begin, Elements count) {
    const Compute* terms[Terms];
    for (int k = 0; k < Terms; ++k) terms[k] = leaf(sources[k], begin, count, leaves_[k]);
    Compute* sum = partials_[depth_++];
    if constexpr (Terms == 4)
      Sums<Compute>::add_four(kernels_, terms, sum, count);
    else if constexpr (Terms == 2)
      Sums<Compute>::add(kernels_, terms[0], terms[1], sum, count);
    else
      std::copy_n(terms[0], count, sum);
  }

  const Compute* leaf(const void* source, Elements begin, Elements count, Compute* space) const {
    const std::byte* first = at(source, begin * widen_.source_bytes());
    if (widen_.copies()) return reinterpret_cast<const Compute*>(first);
    widen_.move(first, space, count);
    return space;
  }

  void merge(Elements count) {
    --depth_;
    Sums<Compute>::accumulate(kernels_, partials_[depth_], partials_[depth_ - 1], count);
  }

  const BlockKernels& kernels_;
  Mover widen_;
  int depth_ = 0;
  alignas(cache_line) Compute leaves_[4][elements];
  alignas(cache_line) Compute partials_[most_partials][elements];
};

template <class Compute>
void reduce(const TreeReduce& call, Elements begin, Elements end) {
  BlockTree<Compute> tree(*call.kernels, call.contribution);
  const Mover narrow(*call.kernels, Sums<Compute>::dtype, call.result);
  constexpr Elements step = BlockTree<Compute>::elements;
  for (Elements first = begin; first < end; first += step) {
    const Elements count = std::min(step, end - first);
    const Compute* sum = tree.sum(call.sources, first, count);
    void* destination = at(call.destination, first * narrow.destination_bytes());
    narrow.move_or_stream(call.streams, sum, destination, count);
  }
}

template <class Compute>
void accumulate(const Accumulation& call, Elements begin, Elements end) {
  const BlockKernels& kernels = *call.kernels;
  constexpr DType compute = Sums<Compute>::dtype;
  const Mover widen_addend(kernels, call.addend_dtype, compute);
  const Mover widen(kernels, call.accumulator_dtype, compute);
  const Mover narrow(kernels, compute, call.accumulator_dtype);
  alignas(cache_line) Compute addends[block_elements];
  alignas(cache_line) Compute sums[block_elements];
  for (Elements first = begin; first < end; first += block_elements) {
    const Elements count = std::min(block_elements, end - first);
    const std::byte* addend = at(call.addend, first * widen_addend.source_bytes());
    std::byte* accumulator = at(call.accumulator, first * widen.source_bytes());
    widen_addend.move(addend, addends, count);
    widen.move(accumulator, sums, count);
    Sums<Compute>::accumulate(kernels, addends, sums, count);
    narrow.move(sums, accumulator, count);
  }
}

}  // namespace

void TreeReduce::run(Elements begin, Elements end) const {
  if (contribution == DType::Float64)
    reduce<double>(*this, begin, end);
  else
    reduce<float>(*this, begin, end);
  if (streams) Mover::fence();
}

void Accumulation::run(Elements begin, Elements end) const {
  if (accumulator_dtype == DType::Float64) return accumulate<double>(*this, begin, end);
  if (accumulator_dtype != DType::Float32 || addend_dtype != DType::Float32)
    return accumulate<float>(*this, begin, end);
  kernels->accumulate_float(static_cast<const float*>(addend) + begin,
                            static_cast<float*>(accumulator) + begin, end - begin);
}

}  // namespace flatshard::host
