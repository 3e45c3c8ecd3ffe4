#include "host_kernels.hpp"

#include "affinity.hpp"
#include "cache_size.hpp"
#include "float_environment.hpp"
#include "mover.hpp"
#include "norm_kernels.hpp"
#include "pieces.hpp"
#include "tree_reduce.hpp"

#include <flatshard/core/error.hpp>
#include <flatshard/core/host_stream.hpp>
#include <flatshard/ops/host_device.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace flatshard::host {
namespace {

/// Runs `function` on the stream with default floating-point control.
template <class Function>
void issue(StreamRef stream, const Function& function) {
  host_stream(stream).enqueue([function] {
    const DefaultFloatEnvironment environment;
    function();
  });
}

void expect_convertible(DType from, DType to) {
  FLATSHARD_EXPECTS(from == to || (is_floating(from) && is_floating(to)),
                    fmt::format("host kernels: {} cannot be converted to {}: only floating-point "
                                "dtypes are",
                                name_of(from), name_of(to)));
}

void expect_floating(const char* call, DType dtype) {
  FLATSHARD_EXPECTS(is_floating(dtype),
                    fmt::format("host kernels: {} needs a floating-point dtype, "
                                "not {}",
                                call, name_of(dtype)));
}

const BlockKernels& block_kernels(InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::Avx512) return avx512::block_kernels;
  if (set == InstructionSet::Avx2) return avx2::block_kernels;
#endif
  static_cast<void>(set);
  return baseline::block_kernels;
}

/// Of all arrays that a step touches.
Bytes bytes_of(const StepArguments& arguments) {
  const StepRow& row = arguments.row;
  Bytes each = size_of(row.master) + size_of(row.gradient) + size_of(row.copy);
  for (const void* state : arguments.states) each += state == nullptr ? 0 : size_of(row.state);
  return arguments.count * each;
}

/// The range [begin, end) of a step's arguments.
StepArguments part_of(const StepArguments& whole, Elements begin, Elements end) {
  const auto advance = [begin](auto* pointer, DType dtype) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(pointer)>>,
                                    const std::byte, std::byte>;
    return pointer == nullptr ? pointer : static_cast<Byte*>(pointer) + begin * size_of(dtype);
  };
  StepArguments part = whole;
  part.master = advance(whole.master, whole.row.master);
  part.gradient = advance(whole.gradient, whole.row.gradient);
  for (void*& state : part.states) state = advance(state, whole.row.state);
  part.copy = advance(whole.copy, whole.row.copy);
  part.canonical = whole.canonical + begin;
  part.count = end - begin;
  return part;
}

}  // namespace

void HostKernels::zero(void* destination, Bytes bytes, StreamRef stream) const {
  issue(stream, [this, destination, bytes] {
    team_.for_chunks(bytes, [&](Bytes begin, Bytes end) {
      std::memset(static_cast<std::byte*>(destination) + begin, 0,
                  static_cast<std::size_t>(end - begin));
    });
  });
}

void HostKernels::move(const void* source, DType from, void* destination, DType to,
                       Elements count) const {
  const Mover mover(*kernels_, from, to);
  const Bytes read = count * mover.source_bytes();
  const Bytes written = count * mover.destination_bytes();
  const bool streams = written > stream_above_ && !overlap(source, read, destination, written);
  team_.for_chunks(count, [&](Elements begin, Elements end) {
    mover.move_or_stream(
        streams, static_cast<const std::byte*>(source) + begin * mover.source_bytes(),
        static_cast<std::byte*>(destination) + begin * mover.destination_bytes(), end - begin);
    Mover::fence();
  });
}

void HostKernels::cast(const void* source, DType from, void* destination, DType to, Elements count,
                       StreamRef stream) const {
  expect_convertible(from, to);
  issue(stream, [=, this] { move(source, from, destination, to, count); });
}

void HostKernels::add(const void* addend, DType addend_dtype, void* accumulator,
                      DType accumulator_dtype, Elements count, StreamRef stream) const {
  expect_floating("add", addend_dtype);
  expect_floating("add", accumulator_dtype);
  const Accumulation call{kernels_, addend, addend_dtype, accumulator, accumulator_dtype};
  issue(stream, [this, call, count] {
    team_.for_chunks(count, [&](Elements begin, Elements end) { call.run(begin, end); });
  });
}

void HostKernels::reduce_now(std::span<const void* const> sources, DType contribution,
                             void* destination, DType result, Elements count) const {
  if (sources.size() == 1) return move(sources[0], contribution, destination, result, count);
  const Bytes read = count * size_of(contribution);
  const Bytes written = count * size_of(result);
  bool in_place = false;
  for (const void* source : sources)
    in_place = in_place || overlap(source, read, destination, written);
  const TreeReduce call{kernels_,    sources, contribution,
                        destination, result,  written > stream_above_ && !in_place};
  team_.for_chunks(count, [&](Elements begin, Elements end) { call.run(begin, end); });
}

void HostKernels::reduce(std::span<const void* const> sources, DType contribution,
                         void* destination, DType result, Elements count, StreamRef stream) const {
  expect_floating("reduce", contribution);
  expect_floating("reduce", result);
  FLATSHARD_EXPECTS(!sources.empty(), "host kernels: reduce needs at least one contribution");
  issue(stream, [=, this] { reduce_now(sources, contribution, destination, result, count); });
}

void HostKernels::square_sums(const void* buffer, DType dtype, std::span<const NormNode> nodes,
                              double* values, StreamRef stream) const {
  expect_floating("square_sums", dtype);
  const NodeValues call{kernels_, buffer, dtype, nodes, values};
  issue(stream, [this, call] { call.square_sums(team_); });
}

void HostKernels::absolute_maxima(const void* buffer, DType dtype, std::span<const NormNode> nodes,
                                  double* values, StreamRef stream) const {
  expect_floating("absolute_maxima", dtype);
  const NodeValues call{kernels_, buffer, dtype, nodes, values};
  issue(stream, [this, call] { call.absolute_maxima(team_); });
}

void HostKernels::add_nodes(std::span<const NormAdd> adds, double* values, StreamRef stream) const {
  issue(stream, [adds, values] {
    for (const NormAdd& add : adds) values[add.into] += values[add.from];
  });
}

void HostKernels::max_nodes(std::span<const NormAdd> adds, double* values, StreamRef stream) const {
  issue(stream, [adds, values] {
    for (const NormAdd& add : adds)
      values[add.into] = larger_magnitude(values[add.into], values[add.from]);
  });
}

void HostKernels::fill(const Initializer& initializer, DType dtype, void* destination,
                       Elements canonical, Elements count, StreamRef stream) const {
  flatshard::fill(initializer, dtype, destination, canonical, 0);  // refuses here what it refuses
  issue(stream, [=, this] {
    team_.for_chunks(count, [&](Elements begin, Elements end) {
      void* first = static_cast<std::byte*>(destination) + begin * size_of(dtype);
      flatshard::fill(initializer, dtype, first, canonical + begin, end - begin);
    });
  });
}

void HostKernels::start_control(StepControl& control, const LossScaler& scaler,
                                StreamRef stream) const {
  issue(stream, [place = &control, scaler] { *place = make_step_control(scaler); });
}

void HostKernels::conclude(const ConcludeArguments& arguments, StreamRef stream) const {
  issue(stream, [arguments] { flatshard::conclude(arguments); });
}

void HostKernels::flatten(std::span<const FlattenPiece> pieces, DType from, void* flat, DType to,
                          StreamRef stream) const {
  expect_convertible(from, to);
  const Mover mover(*kernels_, from, to);
  issue(stream, [=, this] {
    const bool streams = elements_of(pieces) * mover.destination_bytes() > stream_above_;
    host::flatten(mover, pieces, flat, streams, team_);
  });
}

void HostKernels::unflatten(std::span<const FlattenPiece> pieces, const void* flat, DType from,
                            DType to, StreamRef stream) const {
  expect_convertible(from, to);
  const Mover mover(*kernels_, from, to);
  issue(stream, [=, this] {
    const bool streams = elements_of(pieces) * mover.destination_bytes() > stream_above_;
    host::unflatten(mover, pieces, flat, streams, team_);
  });
}

void HostKernels::step(const StepFunctions& functions, const StepArguments& arguments,
                       StreamRef stream) const {
  const HostStep host_step = functions.host;
  FLATSHARD_EXPECTS(host_step != nullptr, "host kernels: a step without a function");
  StepArguments whole = arguments;
  whole.copy_past_cache = arguments.row.writes_copy && bytes_of(arguments) / 2 > stream_above_;
  issue(stream, [this, host_step, whole] {
    team_.for_chunks(whole.count, [&](Elements begin, Elements end) {
      host_step(part_of(whole, begin, end));
      Mover::fence();
    });
  });
}

}  // namespace flatshard::host

namespace flatshard {

std::unique_ptr<const KernelTable> make_host_kernels(const HostOptions& options) {
  const InstructionSet set = options.instruction_set.value_or(best_instruction_set());
  FLATSHARD_EXPECTS(options.threads >= 1,
                    fmt::format("host device: {} threads; at least 1", options.threads));
  FLATSHARD_EXPECTS(is_available(set),
                    fmt::format("host device: this processor or build has no {}; the best it has "
                                "is {}",
                                name_of(set), name_of(best_instruction_set())));
  const std::vector<int> cores = options.pin_as_rank
                                     ? host::cores_of_rank(*options.pin_as_rank, options.threads)
                                     : std::vector<int>{};
  return std::make_unique<host::HostKernels>(
      options.threads, cores, host::block_kernels(set),
      options.stream_above.value_or(host::last_level_cache() / 2));
}

}  // namespace flatshard
