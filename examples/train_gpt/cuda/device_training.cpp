#include "device_training.hpp"

#include <flatshard/comm/nccl.hpp>
#include <flatshard/comm/solo.hpp>
#include <flatshard/comm/world_from_env.hpp>

#include <functional>
#include <optional>

#include "cuda/device_worker.hpp"
#include "option_error.hpp"
#include "rank_training.hpp"

namespace train_gpt {
namespace {

template <class Compute>
void run_rank(flatshard::Communicator& communicator, flatshard::CudaDevice& device,
              const Options& options, const Setup& setup, const TrainerType<Compute>& type,
              const Corpus& corpus, Reporter* reporter) {
  gpu::DeviceWorker<Compute> worker(options, device);
  RankTraining training(communicator, worker, options, setup, type, corpus);
  training.run(communicator.rank() == 0 ? reporter : nullptr);
}

}  // namespace

void check_devices(int ranks) {
  const int devices = flatshard::cuda_device_count();
  if (devices == 0) throw OptionError("--device cuda needs a GPU, and no CUDA device was found");
  if (devices < ranks)
    throw OptionError("--device cuda needs one GPU per rank: --ranks is " + std::to_string(ranks) +
                      ", but there are " + std::to_string(devices));
}

template <class Compute>
void run_on_devices(const Options& options, const Setup& setup, const TrainerType<Compute>& type,
                    const Corpus& corpus, Reporter* reporter) {
  // One thread is what --threads says by itself: then the device takes what is its share.
  const flatshard::CudaOptions host{
      .host_threads = options.threads > 1 ? options.threads : 0,
      .pin_as_rank = options.pin_threads ? std::optional(0) : std::nullopt};
  if (options.ranks == 1 && !options.launched) {
    flatshard::CudaDevice device(0, host);
    flatshard::Solo communicator(device);
    return run_rank(communicator, device, options, setup, type, corpus, reporter);
  }
  const auto rank_main = [&](flatshard::Communicator& communicator) {
    auto& device = dynamic_cast<flatshard::CudaDevice&>(*communicator.device());
    run_rank(communicator, device, options, setup, type, corpus, reporter);
  };
  if (options.launched)
    flatshard::world_from_env(flatshard::DeviceKind::Cuda, {.devices = host}).run(rank_main);
  else
    flatshard::NcclWorld(options.ranks, {.devices = host}).run(rank_main);
}

template <>
void run_on_devices(const Options&, const Setup&, const TrainerType<double>&, const Corpus&,
                    Reporter*) {
  throw OptionError("--device cuda does not compute in fp64");
}

template void run_on_devices(const Options&, const Setup&, const TrainerType<float>&, const Corpus&,
                             Reporter*);
template void run_on_devices(const Options&, const Setup&, const TrainerType<flatshard::Bf16>&,
                             const Corpus&, Reporter*);
template void run_on_devices(const Options&, const Setup&, const TrainerType<flatshard::Half>&,
                             const Corpus&, Reporter*);

}  // namespace train_gpt
