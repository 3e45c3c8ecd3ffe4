#pragma once

#include <flatshard/core/host_stream.hpp>
#include <flatshard/ops/host_device.hpp>

#include <optional>
#include <vector>

#include "micro_step.hpp"
#include "options.hpp"

namespace train_gpt {

/// A rank's model on the host, whose work is done when a call returns.
template <class ComputeType>
class HostWorker {
 public:
  using Compute = ComputeType;
  static constexpr std::size_t lag = 0;

  /// The rank is counted among those that share the cores.
  HostWorker(const Options& options, flatshard::Rank local_rank)
      : micro_batches_(static_cast<double>(options.ranks) * options.accumulate),
        device_({.form = options.stream == StreamForm::threaded ? flatshard::StreamForm::Threaded
                                                                : flatshard::StreamForm::Inline,
                 .threads = options.threads,
                 .pin_as_rank = options.pin_threads ? std::optional(local_rank) : std::nullopt}),
        model_(options.model, options.sequences_per_micro_step()),
        tokens_(static_cast<std::size_t>(model_.sequences() * options.model.context)),
        targets_(tokens_.size()) {}

  flatshard::Device& device() { return device_; }
  flatshard::Stream* compute_stream() { return nullptr; }
  std::int32_t* tokens() { return tokens_.data(); }
  std::int32_t* targets() { return targets_.data(); }

  void begin_step() { sum_ = 0; }
  template <class Trainer>
  void micro_step(Trainer& trainer) {
    sum_ += run_micro_step(trainer, model_, tokens_.data(), targets_.data());
  }
  /// Joins the losses of all ranks.
  void end_step(flatshard::Communicator& communicator) {
    communicator.all_reduce("loss", &sum_, &sum_, 1, flatshard::DType::Float64,
                            flatshard::DType::Float64, stream_);
    stream_.synchronize();
  }
  /// The mean over the global batch of the oldest step that was not taken.
  double take_loss() { return sum_ / micro_batches_; }

  std::optional<DeviceMetrics> device_metrics(double) const { return {}; }

 private:
  double micro_batches_, sum_ = 0;
  flatshard::HostDevice device_;
  flatshard::InlineStream stream_;
  Model<Compute> model_;
  std::vector<std::int32_t> tokens_, targets_;
};

}  // namespace train_gpt
