// A new Sharder from an old one on a CUDA device has the host's bits; its tensors are exported with
// their device.
#include <doctest/doctest.h>
#include <flatshard/core/cuda_device.hpp>
#include <flatshard/sharder/carry_over.hpp>
#include <flatshard/sharder/exported.hpp>
#include <flatshard/sharder/params_hash.hpp>

#include <atomic>

#include "random.hpp"
#include "shared_device_world.hpp"
#include "training.hpp"

using namespace sharder_test;

namespace {

struct Side {
  StrategyName strategy;
  PrecisionName precision;
};

std::unique_ptr<Trainer> make(const Side& side, const TestModel& test, Communicator& communicator,
                              Device& device) {
  Options options;
  options.device = &device;
  options.groups.resize(2);
  options.loss_scale = scale_settings(side.precision);
  return make_trainer(side.strategy, side.precision, communicator, test.model, AdamW{.lr = 1e-2},
                      options);
}

void steps(Trainer& trainer, const TestModel& test, int from, int to) {
  for (int step = from; step < to; ++step) {
    run_micro_step(trainer, test, step, trainer.micro_batch(0, 1));
    trainer.step().wait();
  }
}

/// Two steps, another Sharder, two steps more.
std::uint64_t hash_after(const Side& from, const Side& to, Communicator& communicator,
                         Device& device) {
  const TestModel test;
  const auto old = make(from, test, communicator, device);
  old->initialize(init::normal{0.5, 1});
  steps(*old, test, 0, 2);
  const auto fresh = make(to, test, communicator, device);
  carry_over(old->engine(), fresh->engine(), {.allow_downcast = true, .block_bytes = 4096});
  steps(*fresh, test, 2, 4);
  CHECK(fresh->engine().training_state().steps == 4);
  return params_hash(fresh->engine());
}

std::uint64_t on_host(const Side& from, const Side& to, int world) {
  std::atomic<std::uint64_t> hash{0};
  ThreadWorld(world).run([&](Communicator& communicator) {
    HostDevice device;
    hash.store(hash_after(from, to, communicator, device));
  });
  return hash.load();
}

std::unique_ptr<Device> one_gpu() { return std::make_unique<CudaDevice>(0); }

std::uint64_t on_gpu(const Side& from, const Side& to, int world) {
  std::atomic<std::uint64_t> hash{0};
  flatshard_test::run_on_shared_device(world, one_gpu, [&](Communicator& communicator) {
    hash.store(hash_after(from, to, communicator, *communicator.device()));
  });
  return hash.load();
}

}  // namespace

TEST_CASE("carry_over on a GPU has the host's bits") {
  for (const StrategyName strategy : all_strategies)
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed,
                                          PrecisionName::Fp16Torch, PrecisionName::Bf16Stochastic})
      for (const int world : {1, 2}) {
        if (flatshard_test::short_run() &&
            (world == 1 || precision != PrecisionName::Bf16Stochastic))
          continue;
        const Side from{StrategyName::FullShard, PrecisionName::Bf16Mixed}, to{strategy, precision};
        CAPTURE(name_of(strategy));
        CAPTURE(name_of(precision));
        CHECK(on_gpu(from, to, world) == on_host(from, to, world));
        CHECK(on_gpu(to, from, world) == on_host(to, from, world));
      }
}

TEST_CASE("exported tensors say that they are on the GPU") {
  CudaDevice device(0);
  CHECK(dlpack::device_of(device) == dlpack::DLDevice{dlpack::DeviceType::Cuda, 0});
  flatshard_test::run_on_shared_device(1, one_gpu, [](Communicator& communicator) {
    const TestModel test;
    const auto trainer = make({StrategyName::FullShard, PrecisionName::Fp32}, test, communicator,
                              *communicator.device());
    Engine& engine = trainer->engine();
    ExportedShard shard = export_local(engine, test.table.index, nullptr);
    const LocalShard local = engine.local(test.table.index);
    CHECK(shard.gradient->dl_tensor.device == dlpack::DLDevice{dlpack::DeviceType::Cuda, 0});
    CHECK(shard.gradient->dl_tensor.data == local.gradient);
    const dlpack::Imported state(shard.states[1].release());
    CHECK(state.view<float>({dlpack::DeviceType::Cuda, 0}).data() ==
          reinterpret_cast<float*>(local.states[1]));
    CHECK_THROWS_AS((void)state.view<float>(), UsageError);
  });
}
