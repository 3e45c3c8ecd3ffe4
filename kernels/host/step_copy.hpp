// The step of a functor for a row with a compute copy, by a loop of its own. A copy that would not
// stay in the cache is made in blocks in the level-1 cache and stored past the others: its lines
// are not read before they are written. Part of step_kernels.cpp, compiled once per instruction
// set.
#pragma once

#include "step_blocks.hpp"

namespace flatshard::host::FLATSHARD_INSTRUCTION_SET {
namespace {

/// Elements from `copy` to the next cache line, at most `count`; a whole block from a line.
template <class Copy>
Elements block_from(const Copy* copy, Elements count) {
  const auto past = static_cast<Bytes>(reinterpret_cast<std::uintptr_t>(copy) % cache_line);
  const Elements most =
      past == 0 ? block_elements : (cache_line - past) / static_cast<Bytes>(sizeof(Copy));
  return most < count ? most : count;
}

/// Whole lines past the cache, the rest as usual.
template <class Copy>
void store_past_cache(const Copy* from, Copy* to, Elements count) {
  constexpr Elements per_line = cache_line / static_cast<Bytes>(sizeof(Copy));
  const bool from_line = reinterpret_cast<std::uintptr_t>(to) % cache_line == 0;
  const Elements lines = from_line ? count / per_line : 0;
  block_kernels.stream_copy(from, to, lines);
  for (Elements i = lines * per_line; i < count; ++i) to[i] = from[i];
}

/// A HostStep.
template <class Functor, class Types>
void step_with_copy(const StepArguments& arguments) {
  using Real = typename Types::Real;
  using State = typename Types::State;
  using Copy = typename Types::Copy;
  static_assert(Types::writes_copy && !Types::stochastic);
  if (arguments.scalars->apply == 0) return;
  const auto shared = shared_of<Functor, Real>(arguments);
  alignas(cache_line) Copy block[block_elements];
  const bool past_cache = arguments.copy_past_cache;
  for (Elements done = 0; done < arguments.count;) {
    Copy* copy = static_cast<Copy*>(arguments.copy) + done;
    const Elements left = arguments.count - done;
    const Elements count = past_cache ? block_from(copy, left) : left;
    detail::step_elements<Functor, Types, Real>(
        shared, 0, count, static_cast<typename Types::Master*>(arguments.master) + done,
        static_cast<const typename Types::Gradient*>(arguments.gradient) + done,
        detail::element_at<State>(arguments.states[0], done),
        detail::element_at<State>(arguments.states[1], done),
        detail::element_at<State>(arguments.states[2], done), past_cache ? block : copy);
    if (past_cache) store_past_cache(block, copy, count);
    done += count;
  }
}

}  // namespace
}  // namespace flatshard::host::FLATSHARD_INSTRUCTION_SET
