#include "cuda/device_worker.hpp"

namespace train_gpt::gpu {

LossRing::LossRing(flatshard::CudaDevice& device, flatshard::Stream& compute)
    : device_(device),
      compute_(compute),
      stream_(device.make_stream()),
      summed_(device.make_event()),
      pinned_(device.pinned(), static_cast<flatshard::Bytes>(sizeof(double) * (slots + 1))),
      on_device_(device.memory(), static_cast<flatshard::Bytes>(sizeof(double) * slots)) {
  for (auto& event : copied_) event = device.make_event();
  static_cast<double*>(pinned_.data())[slots] = 0;
}

double* LossRing::begin_step() {
  const auto* const zero = static_cast<const double*>(pinned_.data()) + slots;
  double* const loss = static_cast<double*>(on_device_.data()) + begun_ % slots;
  device_.copy(zero, loss, sizeof(double), compute_);
  return loss;
}

void LossRing::end_step(flatshard::Communicator& communicator) {
  const std::size_t slot = begun_++ % slots;
  double* const loss = static_cast<double*>(on_device_.data()) + slot;
  compute_.record(*summed_);
  stream_->wait(*summed_);
  communicator.all_reduce("loss", loss, loss, 1, flatshard::DType::Float64,
                          flatshard::DType::Float64, *stream_);
  device_.copy(loss, static_cast<double*>(pinned_.data()) + slot, sizeof(double), *stream_);
  stream_->record(*copied_[slot]);
}

double LossRing::take() {
  const std::size_t slot = taken_++ % slots;
  copied_[slot]->synchronize();
  return static_cast<const double*>(pinned_.data())[slot];
}

}  // namespace train_gpt::gpu
