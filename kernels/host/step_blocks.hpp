// The step of a functor for every row by one loop per arithmetic: a block of elements is widened
// into the level-1 cache, updated there, and rounded once to what is stored. The bits are those of
// a loop for each row, which takes four times as long to compile. Part of step_kernels.cpp,
// compiled once per instruction set.
#pragma once

#include "block_kernels.hpp"

#include <flatshard/ops/step_rows.hpp>

#include <cstring>
#include <type_traits>

namespace flatshard::host::FLATSHARD_INSTRUCTION_SET {
namespace {

/// Bytes of an element; dtype_table itself would be a symbol that objects share.
struct ElementSizes {
  Bytes of[floating_dtypes];
};
constexpr ElementSizes element_sizes = [] {
  ElementSizes sizes{};
  for (int row = 0; row < floating_dtypes; ++row) sizes.of[row] = size_of(static_cast<DType>(row));
  return sizes;
}();

/// One array of a step, block by block as Real.
template <class Real>
class StepStream {
 public:
  StepStream(void* begin, DType dtype)
      : begin_(static_cast<std::byte*>(begin)), dtype_(dtype), is_real_(dtype == dtype_of<Real>) {}

  /// Elements [done, done + count): where they lie, or widened.
  Real* load(Elements done, Elements count) {
    if (is_real_) return static_cast<Real*>(place(done));
    widening()(place(done), block_, count);
    return block_;
  }
  /// Rounded to nearest; nothing to do where values lie in place.
  void store(const Real* values, Elements done, Elements count) {
    if (values != place(done)) narrowing()(values, place(done), count);
  }
  /// The same past the cache, but for what fills no whole line; begins at one. Fences are the
  /// caller's.
  void stream(const Real* values, Elements done, Elements count) {
    const auto row = static_cast<std::size_t>(dtype_);
    const Elements per_line = cache_line / element_sizes.of[row];
    const Elements lines = sizeof(Real) == sizeof(float) ? count / per_line : 0;
    if (lines > 0) block_kernels.stream_from_float[row](values, place(done), lines);
    const Elements streamed = lines * per_line;
    if (streamed < count) store(values + streamed, done + streamed, count - streamed);
  }
  /// Elements from `done` to the next cache line, at most `count`; all where there are none.
  Elements to_line(Elements done, Elements count) const {
    const auto past =
        static_cast<Bytes>(reinterpret_cast<std::uintptr_t>(place(done)) % cache_line);
    const Elements left =
        past == 0 ? count
                  : (cache_line - past) / element_sizes.of[static_cast<std::size_t>(dtype_)];
    return left < count ? left : count;
  }
  /// The same rounded stochastically where the dtype is bf16, by the words of [index, index +
  /// count).
  void store_stochastic(const Real* values, Elements done, Elements count, RandomKey key,
                        std::uint32_t index) {
    if constexpr (std::is_same_v<Real, float>)
      if (dtype_ == DType::BFloat16)
        return round_stochastically(values, static_cast<Bf16*>(place(done)), count, key, index);
    store(values, done, count);
  }

 private:
  void* place(Elements done) const {
    return begin_ + done * element_sizes.of[static_cast<std::size_t>(dtype_)];
  }
  Convert widening() const {
    const auto row = static_cast<std::size_t>(dtype_);
    return sizeof(Real) == sizeof(float) ? block_kernels.to_float[row]
                                         : block_kernels.to_double[row];
  }
  Convert narrowing() const {
    const auto row = static_cast<std::size_t>(dtype_);
    return sizeof(Real) == sizeof(float) ? block_kernels.from_float[row]
                                         : block_kernels.from_double[row];
  }
  FLATSHARD_WRAPS static void round_stochastically(const float* __restrict values,
                                                   Bf16* __restrict to, Elements count,
                                                   RandomKey key, std::uint32_t index) {
    for (Elements i = 0; i < count; ++i)
      to[i] = stochastic_bf16(values[i], random_word(key, index + static_cast<std::uint32_t>(i)));
  }

  std::byte* begin_;
  DType dtype_;
  bool is_real_;
  alignas(cache_line) Real block_[block_elements];
};

/// The arrays of a range. Those that a functor or row does not have are never touched.
template <class Real>
struct StepStreams {
  explicit StepStreams(const StepArguments& arguments)
      : master(arguments.master, arguments.row.master),
        gradient(const_cast<void*>(arguments.gradient), arguments.row.gradient),  // only read
        states{{arguments.states[0], arguments.row.state},
               {arguments.states[1], arguments.row.state},
               {arguments.states[2], arguments.row.state}},
        copy(arguments.copy, arguments.row.copy) {}

  StepStream<Real> master, gradient, states[max_optimizer_states], copy;
};

/// Elements [done, done + count), at most block_elements, whose canonical indices have equal high
/// words; `index` is the low word of the first.
template <class Functor, class Real>
void step_block(const StepRow& row, const detail::StepShared<Functor, Real>& shared,
                StepStreams<Real>& streams, Elements done, Elements count, std::uint32_t index,
                bool past_cache) {
  constexpr std::size_t states = state_count<Functor>;
  Real* master = streams.master.load(done, count);
  const Real* gradient = streams.gradient.load(done, count);
  Real* state[max_optimizer_states] = {};
  for (std::size_t k = 0; k < states; ++k) state[k] = streams.states[k].load(done, count);
  detail::step_elements<Functor, StepTypes<Real, Real, Real>, Real>(
      shared, 0, count, master, gradient, state[0], state[1], state[2], nullptr);
  const auto store = [&](StepStream<Real>& stream, const Real* values, RandomKey key) {
    if (row.stochastic)
      stream.store_stochastic(values, done, count, key, index);
    else
      stream.store(values, done, count);
  };
  store(streams.master, master, shared.keys[0]);
  for (std::size_t k = 0; k < states; ++k) store(streams.states[k], state[k], shared.keys[1 + k]);
  if (!row.writes_copy) return;
  if (past_cache)
    streams.copy.stream(master, done, count);
  else
    streams.copy.store(master, done, count);
}

/// What all elements share; its keys are to be filled.
template <class Functor, class Real>
FLATSHARD_INLINE detail::StepShared<Functor, Real> shared_of(const StepArguments& arguments) {
  Functor functor;
  const bool by_value = arguments.device_functor == nullptr;
  std::memcpy(&functor, by_value ? arguments.functor.data() : arguments.device_functor,
              sizeof(Functor));
  return {functor.template coefficients<Real>(*arguments.time),
          exact::round_to<Real>(arguments.scalars->coefficient),
          {}};
}

/// A HostStep for every row with this arithmetic.
template <class Functor, class Real>
void step_by_blocks(const StepArguments& arguments) {
  if (arguments.scalars->apply == 0) return;
  auto shared = shared_of<Functor, Real>(arguments);
  StepStreams<Real> streams(arguments);
  constexpr Elements indices = Elements{1} << 32;  // with the same high word, hence the same keys
  for (Elements done = 0; done < arguments.count;) {
    const Elements canonical = arguments.canonical + done;
    const Elements left = arguments.count - done;
    const Elements same_high = indices - canonical % indices;
    const Elements most = left < block_elements ? left : block_elements;
    Elements count = same_high < most ? same_high : most;
    if (arguments.copy_past_cache) count = streams.copy.to_line(done, count);
    if (arguments.row.stochastic)
      detail::fill_keys(shared.keys, arguments.seed, *arguments.time, canonical);
    step_block<Functor, Real>(arguments.row, shared, streams, done, count,
                              static_cast<std::uint32_t>(canonical % indices),
                              arguments.copy_past_cache);
    done += count;
  }
}

template <class... Types>
bool is_step_row(const StepRow& row, StepRowList<Types...>) {
  return ((Types::row() == row) || ...);
}

template <class Functor>
HostStep find_step_by_blocks(const StepRow& row) {
  if (!is_step_row(row, HostStepRows{})) return nullptr;
  return row.master == DType::Float64 ? step_by_blocks<Functor, double>
                                      : step_by_blocks<Functor, float>;
}

}  // namespace
}  // namespace flatshard::host::FLATSHARD_INSTRUCTION_SET
