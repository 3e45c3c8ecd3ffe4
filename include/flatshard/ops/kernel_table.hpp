// What a device can do to elements. One implementation per device; every function only enqueues
// on the given stream and never blocks the host (an inline host stream does the work at once).
#pragma once

#include <flatshard/core/stream.hpp>
#include <flatshard/ops/conclude.hpp>
#include <flatshard/ops/init.hpp>
#include <flatshard/ops/step.hpp>

#include <span>

namespace flatshard {

/// One contiguous piece of a flatten or unflatten: `count` elements between a tensor and a flat
/// buffer. `tensor` is written by unflatten only.
struct FlattenPiece {
  void* tensor;          // first element of the piece
  Elements flat_offset;  // of the piece, in the flat buffer
  Elements count;        // elements
};

/// A node of the norm's tree: 2^level canonical positions, of which the first `count` are present
/// at buffer[offset ...]; the others count as zero.
struct NormNode {
  Elements offset;  // in the buffer
  Elements count;   // elements present
  int level;        // log2 of its positions
  friend constexpr bool operator==(const NormNode&, const NormNode&) = default;
};

/// values[into] = values[into] + values[from].
struct NormAdd {
  int into;  // index of the value that changes
  int from;  // index of the value that is added
  friend constexpr bool operator==(const NormAdd&, const NormAdd&) = default;
};

/// The kernels of a device. Spans and pointers to tables must stay valid until the stream has run
/// the call; element memory is the device's. Reductions and sums have one order, design: "One
/// hash".
class KernelTable {
 public:
  virtual ~KernelTable() = default;

  /// All bytes 0.
  virtual void zero(void* destination, Bytes bytes, StreamRef stream) const = 0;
  /// destination[i] = to(source[i]), rounded to nearest even; from == to copies bits.
  virtual void cast(const void* source, DType from, void* destination, DType to, Elements count,
                    StreamRef stream) const = 0;
  /// accumulator[i] = accumulator[i] + addend[i], added in fp32 (fp64 if the accumulator is),
  /// rounded once to the accumulator's dtype.
  virtual void add(const void* addend, DType addend_dtype, void* accumulator,
                   DType accumulator_dtype, Elements count, StreamRef stream) const = 0;
  /// destination[i] = result(T(sources[0][i], ..., sources[n-1][i])): the reduction tree in fp32
  /// (fp64 for fp64 contributions), rounded once. destination may be one of the sources.
  virtual void reduce(std::span<const void* const> sources, DType contribution, void* destination,
                      DType result, Elements count, StreamRef stream) const = 0;
  /// values[k] = the perfect binary tree over node k of (double)x * x.
  virtual void square_sums(const void* buffer, DType dtype, std::span<const NormNode> nodes,
                           double* values, StreamRef stream) const = 0;
  /// values[k] = the largest |x| in node k, NaN if any is NaN.
  virtual void absolute_maxima(const void* buffer, DType dtype, std::span<const NormNode> nodes,
                               double* values, StreamRef stream) const = 0;
  /// Carries out the adds in order.
  virtual void add_nodes(std::span<const NormAdd> adds, double* values, StreamRef stream) const = 0;
  /// The same with the larger of two values (NaN if either is) instead of their sum.
  virtual void max_nodes(std::span<const NormAdd> adds, double* values, StreamRef stream) const = 0;
  /// destination[i] == the initializer's value of canonical index `canonical + i`.
  virtual void fill(const Initializer& initializer, DType dtype, void* destination,
                    Elements canonical, Elements count, StreamRef stream) const = 0;
  /// control = make_step_control(scaler).
  virtual void start_control(StepControl& control, const LossScaler& scaler,
                             StreamRef stream) const = 0;
  /// flatshard::conclude(arguments).
  virtual void conclude(const ConcludeArguments& arguments, StreamRef stream) const = 0;
  /// flat[piece.flat_offset + i] = to(piece.tensor[i]) for every piece.
  virtual void flatten(std::span<const FlattenPiece> pieces, DType from, void* flat, DType to,
                       StreamRef stream) const = 0;
  /// piece.tensor[i] = to(flat[piece.flat_offset + i]) for every piece.
  virtual void unflatten(std::span<const FlattenPiece> pieces, const void* flat, DType from,
                         DType to, StreamRef stream) const = 0;
  /// One optimizer step on one range, with the function for this device's kind.
  virtual void step(const StepFunctions& functions, const StepArguments& arguments,
                    StreamRef stream) const = 0;
  /// One optimizer step on ranges of one row that do not overlap (parameter groups, flats): the
  /// same as step() on each, in one launch where that is faster. The span is read at once.
  virtual void step_ranges(const StepFunctions& functions, std::span<const StepArguments> ranges,
                           StreamRef stream) const {
    for (const StepArguments& arguments : ranges) step(functions, arguments, stream);
  }
};

}  // namespace flatshard
