#pragma once

#include <flatshard/comm/communicator.hpp>
#include <flatshard/core/cuda_device.hpp>

#include <array>
#include <optional>

#include "cuda/device_batch.hpp"
#include "cuda/device_model.hpp"
#include "metrics.hpp"
#include "micro_step.hpp"
#include "options.hpp"

namespace train_gpt::gpu {

/// The losses of the steps under way: summed on the device, joined over ranks and copied to the
/// host in a stream of their own.
class LossRing {
 public:
  LossRing(flatshard::CudaDevice& device, flatshard::Stream& compute);

  /// Where this step's loss is summed; zero in the compute stream's order.
  double* begin_step();
  void end_step(flatshard::Communicator& communicator);
  /// Waits for the oldest loss that was not taken.
  double take();

 private:
  static constexpr std::size_t slots = 4;

  flatshard::CudaDevice& device_;
  flatshard::Stream& compute_;
  std::unique_ptr<flatshard::Stream> stream_;
  std::unique_ptr<flatshard::Event> summed_;
  std::array<std::unique_ptr<flatshard::Event>, slots> copied_;
  flatshard::Buffer pinned_, on_device_;  // slots doubles; pinned: then a zero
  std::size_t begun_ = 0, taken_ = 0;
};

/// A rank's model on a GPU. Nothing here waits for the device but take_loss, and tokens() for a
/// copy of four micro-steps ago.
template <class ComputeType>
class DeviceWorker {
 public:
  using Compute = ComputeType;
  static constexpr std::size_t lag = 2;

  DeviceWorker(const Options& options, flatshard::CudaDevice& device)
      : device_((use_device(device), device)),
        compute_(device.make_compute_stream()),
        parts_(static_cast<double>(options.ranks) * options.accumulate),
        model_(options.model, options.sequences_per_micro_step(), device, *compute_),
        batches_(options.sequences_per_micro_step() * options.model.context,
                 options.model.vocabulary, device, *compute_),
        losses_(device, *compute_),
        flops_per_token_(flops_per_token(options.model)),
        peak_flops_(peak_flops(device, flatshard::dtype_of<Compute>) * options.ranks) {}

  flatshard::Device& device() { return device_; }
  flatshard::Stream* compute_stream() { return compute_.get(); }
  std::int32_t* tokens() { return batches_.tokens(); }
  std::int32_t* targets() { return batches_.targets(); }

  void begin_step() { model_.add_losses_to(losses_.begin_step(), parts_); }
  template <class Trainer>
  void micro_step(Trainer& trainer) {
    forward_and_backward(trainer, model_, batches_.load());
  }
  void end_step(flatshard::Communicator& communicator) { losses_.end_step(communicator); }
  double take_loss() { return losses_.take(); }

  std::optional<DeviceMetrics> device_metrics(double tokens_per_s) const {
    DeviceMetrics metrics;
    if (peak_flops_ > 0) metrics.mfu = tokens_per_s * flops_per_token_ / peak_flops_;
    metrics.peak_device_bytes = device_.memory().high_water();
    return metrics;
  }

 private:
  flatshard::CudaDevice& device_;
  std::unique_ptr<flatshard::Stream> compute_;
  double parts_;
  DeviceModel<Compute> model_;
  BatchLoader batches_;
  LossRing losses_;
  double flops_per_token_, peak_flops_;
};

}  // namespace train_gpt::gpu
