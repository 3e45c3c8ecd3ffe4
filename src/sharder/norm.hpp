// The gradients' norm over the shard group, in the order that the Plan fixed.
#pragma once

#include "runtime.hpp"

namespace flatshard::detail {

/// Leaves are summed where the gradients of a step are; then ranks exchange on the reduce stream,
/// and the result stays in device memory.
class GradientNorm {
 public:
  GradientNorm(Runtime& runtime, NormKind kind, NormHook hook);

  /// Measures the accumulated gradients. Call after their last reduction.
  void measure();
  /// Sums the leaves of a unit ahead of measure(), while its gradients are in memory; then of every
  /// unit, or of none.
  void sum_unit(int unit);
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

  void start();
  void pass(NormKind kind, double* values);
  void sum_leaves(NormKind kind, const Group& group, double* values);
  void sum_all_leaves(const Group& group);
  void send_to_device(const double* local, double* values);
  static void merge(NormKind kind, std::span<const NormAdd> adds, double* values, Lane lane);
  double* local_values(double* values) const;
  double* values_of(int pass) const { return values_ + pass * value_count_; }
  double* result_of(int pass) const;

  Runtime& runtime_;
  Lane lane_;  // of the gradients
  NormKind kind_;
  NormHook hook_;
  bool checks_largest_ = false;
  bool started_ = false;  // leaves are being summed ahead
  double* values_;
  double* host_values_;            // null: the gradients are on the device
  std::unique_ptr<Event> summed_;  // recorded on the gradients' lane
  Elements value_count_;
  std::vector<Group> groups_;
  std::vector<NormAdd> local_adds_;  // among this rank's leaves, then into its part of the exchange
  std::vector<NormAdd> global_adds_;  // among all ranks' nodes
};

}  // namespace flatshard::detail
