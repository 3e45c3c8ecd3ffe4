// The gradients' norm over the shard group, in the order that the Plan fixed.
#pragma once

#include "runtime.hpp"

namespace flatshard::detail {

/// Leaves are summed where the gradients of a step are, or come by on their way to the host; then
/// ranks exchange on the reduce stream, and the result stays in device memory.
class GradientNorm {
 public:
  GradientNorm(Runtime& runtime, NormKind kind, NormHook hook);

  /// The last micro-step begins, with every gradient to be offered as it becomes complete: they
  /// may be about to leave memory. They are summed in memory of `tier`.
  void begin(Tier tier);
  /// A flat's gradient is complete in memory of `tier`, on the stream of that tier.
  void offer(Tier tier, int flat, const std::byte* slice, DType dtype);
  /// Measures the accumulated gradients, which are in memory if none were offered. Call after their
  /// last reduction.
  void measure();
  /// Sum of squares or largest magnitude, in device memory; null when nothing is trainable.
  const double* result() const { return result_of(0); }
  /// Largest magnitude of all gradients where result() being finite does not say that they are;
  /// else null.
  const double* largest() const { return checks_largest_ ? result_of(1) : nullptr; }

 private:
  /// Leaves of one flat: `count` nodes whose values start at `first`.
  struct Group {
    int flat;
    int first;
    std::vector<NormNode> nodes;
  };

  void sum(const Group& group, const std::byte* slice, DType dtype);
  void pass(NormKind kind, double* values);
  void sum_leaves(NormKind kind, const Group& group, const std::byte* slice, DType dtype,
                  double* values);
  void send_to_device(const double* local, double* values);
  Lane lane() const { return runtime_.lane(tier_); }
  static void merge(NormKind kind, std::span<const NormAdd> adds, double* values, Lane lane);
  double* local_values(double* values) const;
  double* values_of(int pass) const { return values_ + pass * value_count_; }
  double* result_of(int pass) const;

  Runtime& runtime_;
  Tier tier_ = Tier::Device;  // where this step's leaves are summed
  bool begun_ = false;        // they are, as they are offered
  NormKind kind_;
  NormHook hook_;
  bool checks_largest_ = false;
  double* values_;
  double* host_values_;            // null: leaves are never summed on the host
  std::unique_ptr<Event> summed_;  // recorded on the host stream
  Elements value_count_;
  std::vector<Group> groups_;
  std::vector<NormAdd> local_adds_;  // among this rank's leaves, then into its part of the exchange
  std::vector<NormAdd> global_adds_;  // among all ranks' nodes
};

}  // namespace flatshard::detail
