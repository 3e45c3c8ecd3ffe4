// The engine on a CUDA device leaves the bits of the engine on the host, in every strategy; nothing
// depends on how long a stream takes.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <flatshard/core/cuda_device.hpp>
#include <flatshard/sharder/params_hash.hpp>

#include <atomic>
#include <chrono>
#include <thread>

#include "random.hpp"
#include "shared_device_world.hpp"
#include "training.hpp"

using namespace sharder_test;

namespace {

std::unique_ptr<Device> one_gpu() { return std::make_unique<CudaDevice>(0); }

Training on_gpu(Training training) {
  training.hooks.run = [](int world, const std::function<void(Communicator&)>& rank_main) {
    flatshard_test::run_on_shared_device(world, one_gpu, rank_main);
  };
  training.hooks.device = [](const HostOptions&, Rank) { return one_gpu(); };
  return training;
}

void check_equal(const Trained& found, const Trained& expected) {
  CHECK(found.hash() == expected.hash());
  CHECK(found.replicas_agree);
  CHECK(found.reports == expected.reports);
  CHECK(found.high_water == found.arena_bytes);
}

/// What slows a stream: host functions that sleep, in the stream's order.
void sleep_on(Stream& stream, std::chrono::microseconds time) {
  auto* const kept = new std::chrono::microseconds(time);
  const auto sleep = [](void* data) {
    const std::unique_ptr<std::chrono::microseconds> mine(
        static_cast<std::chrono::microseconds*>(data));
    std::this_thread::sleep_for(*mine);
  };
  REQUIRE(cudaLaunchHostFunc(static_cast<cudaStream_t>(cuda_stream(stream)), sleep, kept) ==
          cudaSuccess);
}

/// A CUDA device that knows its streams, in the order in which they were made.
class WatchedDevice final : public Device {
 public:
  DeviceKind kind() const override { return device_.kind(); }
  std::string_view name() const override { return device_.name(); }
  MemoryResource& memory() override { return device_.memory(); }
  MemoryResource& host_memory() override { return device_.host_memory(); }
  void copy(const void* source, void* destination, Bytes bytes, StreamRef stream) override {
    device_.copy(source, destination, bytes, stream);
  }
  std::unique_ptr<Stream> make_stream() override { return watched(device_.make_stream()); }
  std::unique_ptr<Stream> make_compute_stream() override {
    return watched(device_.make_compute_stream());
  }
  std::unique_ptr<Event> make_event() override { return device_.make_event(); }
  const KernelTable& kernels() const override { return device_.kernels(); }

  Stream& stream(int index) const { return *streams_[static_cast<std::size_t>(index)]; }

 private:
  std::unique_ptr<Stream> watched(std::unique_ptr<Stream> stream) {
    streams_.push_back(stream.get());
    return stream;
  }
  CudaDevice device_{0};
  std::vector<Stream*> streams_;
};

}  // namespace

TEST_CASE("engine on a GPU: every strategy has the host's bits, run to run") {
  for (const StrategyName strategy : all_strategies)
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed,
                                          PrecisionName::Fp16Torch, PrecisionName::Bf16Stochastic})
      for (const int world : {1, 2, 4}) {
        if (flatshard_test::short_run() && (world != 2 || precision != PrecisionName::Fp16Torch))
          continue;
        Training training;
        training.strategy = strategy;
        training.precision = precision;
        training.world = world;
        training.micro_steps = world == 2 ? 2 : 1;
        training.options.max_grad_norm = 1.0;
        training.options.accumulation = world == 2 ? Accumulation::Tree : Accumulation::Running;
        CAPTURE(to_string(training));
        const Trained expected = train(training);
        const Trained found = train(on_gpu(training));
        check_equal(found, expected);
        if (world == 2) check_equal(train(on_gpu(training)), expected);
      }
}

TEST_CASE("engine on a GPU: other optimizers and options") {
  for (const Optimizer& optimizer :
       {Optimizer(SGD{.lr = 0.1, .momentum = 0.9}), Optimizer(Lion{.lr = 1e-3})}) {
    Training training;
    training.world = 2;
    training.optimizer = optimizer;
    training.options.norm = NormKind::Infinity;
    training.options.max_grad_norm = 0.5;
    training.options.prefetch_backward = BackwardPrefetch::Post;
    training.options.persistence_threshold = 10;
    check_equal(train(on_gpu(training)), train(training));
  }
  Training training;
  training.world = 2;
  training.options.step_in_backward = true;
  check_equal(train(on_gpu(training)), train(training));
  training.options.step_in_backward = false;
  training.model = {.skip_when_unused = true, .backward_overwrites = true};
  check_equal(train(on_gpu(training)), train(training));
}

TEST_CASE("engine on a GPU: assignment from the host, summoning, hashes") {
  const auto hash_of = [](auto run) {
    std::atomic<std::uint64_t> hash{0};
    run([&](Communicator& comm, Device& device) {
      const TestModel test;
      Options options;
      options.device = &device;
      options.groups.resize(2);
      const auto trainer = make_trainer(StrategyName::FullShard, PrecisionName::Bf16Mixed, comm,
                                        test.model, AdamW{}, options);
      Engine& engine = trainer->engine();
      for (std::size_t p = 0; p < test.model.parameters().size(); ++p) {
        const auto count = static_cast<std::size_t>(test.model.parameters()[p].numel());
        std::vector<double> doubles(count);
        for (std::size_t i = 0; i < count; ++i)
          doubles[i] = static_cast<double>(i + p) / 7;  // another dtype than the masters'
        if (p % 2 == 0)
          engine.assign(static_cast<int>(p), doubles.data(), DType::Float64);
        else
          engine.assign_from(1, static_cast<int>(p), doubles.data(), DType::Float64);
      }
      const std::uint64_t mine = params_hash(engine);
      if (comm.rank() == 0) hash.store(mine);
    });
    return hash.load();
  };
  const std::uint64_t expected = hash_of([](const auto& act) {
    ThreadWorld(2).run([&](Communicator& comm) {
      HostDevice device;
      act(comm, device);
    });
  });
  const std::uint64_t found = hash_of([](const auto& act) {
    flatshard_test::run_on_shared_device(2, one_gpu,
                                         [&](Communicator& comm) { act(comm, *comm.device()); });
  });
  CHECK(found == expected);
}

TEST_CASE("engine on a GPU: a slow stream changes no bit") {
  Training training;
  training.world = 2;
  training.precision = PrecisionName::Bf16Mixed;
  training.options.max_grad_norm = 1.0;
  training.options.prefetch_forward = 2;
  const Trained expected = train(training);
  for (int slow = 0; slow < 3; ++slow) {  // compute, gather, reduce
    CAPTURE(slow);
    Training slowed = on_gpu(training);
    slowed.hooks.device = [](const HostOptions&, Rank) {
      return std::make_unique<WatchedDevice>();
    };
    slowed.hooks.micro_step = [slow](Trainer& trainer, const TestModel& test, std::int64_t step,
                                     Elements micro_batch) {
      auto& device = static_cast<WatchedDevice&>(trainer.engine().device());
      std::array<double, 8> activations{};
      for (int turn = 0; turn < 12; ++turn) {
        const int call = turn < 6 ? turn : 11 - turn;
        sleep_on(device.stream(slow), std::chrono::microseconds(300));
        (turn < 6 ? run_forward : run_backward)(trainer, test,
                                                {step, micro_batch, &activations, call});
      }
    };
    check_equal(train(slowed), expected);
  }
}
