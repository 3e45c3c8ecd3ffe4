// Offload from a CUDA device leaves the bits of training without it, in every strategy and place;
// the device has the Plan's bytes; nothing depends on how long a stream takes.
#include <flatshard/checkpoint/load.hpp>
#include <flatshard/checkpoint/save.hpp>
#include <flatshard/sharder/carry_over.hpp>
#include <flatshard/sharder/exported.hpp>
#include <flatshard/sharder/params_hash.hpp>

#include <atomic>
#include <cmath>
#include <cstdio>

#include "offload_gpu.hpp"
#include "scratch_folder.hpp"

using namespace sharder_test;

namespace {

/// Every bit of the numbers; one NaN is as good as another.
std::string text_of(const std::vector<StepReport>& reports) {
  std::string text;
  for (const StepReport& report : reports) {
    std::array<char, 200> line{};
    const double norm = std::isnan(report.grad_norm) ? std::nan("") : report.grad_norm;
    const double clip =
        std::isnan(report.clip_coefficient) ? std::nan("") : report.clip_coefficient;
    std::snprintf(line.data(), line.size(), "%lld%s norm %a clip %a scale %a then %a\n",
                  static_cast<long long>(report.step), report.skipped ? " skipped" : "", norm, clip,
                  report.scale_used, report.scale_next);
    text += line.data();
  }
  return text;
}

/// On the GPU with offload as on the host without, and no more of the device than planned.
void check_same(const Training& training, const OffloadTraits& offload, const Trained& expected) {
  CAPTURE(to_string(training));
  CAPTURE(to_string(offload));
  const Trained found = train(on_gpu(placed(training, offload)));
  CHECK(found.hash() == expected.hash());
  CHECK(found.replicas_agree);
  CHECK(text_of(found.reports) == text_of(expected.reports));
  CHECK(found.high_water == found.arena_bytes);
}

/// From a host that updates, also in parts.
void check_all(Training training) {
  const Trained expected = train(training);
  for (const OffloadTraits& offload : gpu_places) check_same(training, offload, expected);
  training.options.update_part = 9;
  for (const OffloadTraits& offload : gpu_places)
    if (offload.optimizer == Tier::Host) check_same(training, offload, expected);
}

}  // namespace

TEST_CASE("offload from a GPU: every strategy and place, clipped, over micro-steps") {
  for (const StrategyName strategy : all_strategies)
    for (const int world : {1, 2})
      for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed}) {
        Training training = clipped(strategy, world, world == 1 ? 2 : 1);
        training.precision = precision;
        check_all(training);
      }
}

TEST_CASE("offload from a GPU: four ranks, running sums, other precisions and moments") {
  for (const PrecisionName precision :
       {PrecisionName::Fp64, PrecisionName::DeepSpeedBf16, PrecisionName::Bf16Stochastic})
    for (const ReduceMoment moment : {ReduceMoment::Micro, ReduceMoment::Boundary}) {
      Training training = clipped(StrategyName::HybridShard, 4, 2);
      training.precision = precision;
      training.steps = 2;
      training.options.reduce_moment = moment;
      training.options.accumulation =
          moment == ReduceMoment::Micro ? Accumulation::Running : Accumulation::Tree;
      check_all(training);
    }
}

TEST_CASE("offload from a GPU: steps that overflow are skipped and move nothing") {
  for (const StrategyName strategy : {StrategyName::ShardOptimizer, StrategyName::FullShard}) {
    Training training = clipped(strategy, 2, 1);
    training.precision = PrecisionName::Fp16Torch;
    training.steps = 12;
    training.options.loss_scale = scale_settings(training.precision, 0x1p24);
    const Trained expected = train(training);
    CHECK(expected.reports.front().skipped);
    CHECK(!expected.reports.back().skipped);
    check_same(training, none, expected);
    for (const OffloadTraits& offload : gpu_places) check_same(training, offload, expected);
  }
}

TEST_CASE("offload from a GPU: a step in backward, units that are not used") {
  for (const StrategyName strategy : {StrategyName::NoShard, StrategyName::FullShard}) {
    Training training = clipped(strategy, 2, 2);
    training.precision = PrecisionName::Bf16Mixed;
    training.options.max_grad_norm = 0;
    training.options.step_in_backward = true;
    check_all(training);
    Training at_once = clipped(strategy, 2, 1);
    at_once.precision = PrecisionName::Bf16Mixed;
    at_once.options.max_grad_norm = 0;
    at_once.options.step_in_backward = true;
    check_all(at_once);
    training.options.step_in_backward = false;
    training.options.on_nonfinite = OnNonFinite::Apply;
    check_all(training);
    training.model.skip_when_unused = true;
    check_all(training);
  }
}

TEST_CASE("offload from a GPU: memory beyond the budget is pageable and has the same bits") {
  for (const Bytes budget : {Bytes{0}, Bytes{1000}, Bytes{5000}, unlimited_bytes})
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed}) {
      Training training = clipped(StrategyName::ShardOptimizer, 2, 2);
      training.precision = precision;
      const Trained expected = train(training);
      std::atomic<int> warnings = 0;
      training.options.pinned_budget = budget;
      training.options.on_warning = [&](std::string_view) { ++warnings; };
      for (const OffloadTraits& offload : gpu_places) check_same(training, offload, expected);
      CHECK((warnings == 0) == (budget == unlimited_bytes));
    }
}

TEST_CASE("offload from a GPU to NVMe: the bits of none") {
  const flatshard_test::ScratchFolder folder;
  for (const StrategyName strategy : {StrategyName::ShardOptimizer, StrategyName::FullShard})
    for (const int world : {1, 2}) {
      Training training = clipped(strategy, world, 2);
      training.precision = PrecisionName::Bf16Mixed;
      const Trained expected = train(training);
      training.options.nvme.folder = folder.path();
      training.options.nvme.block_bytes = 4096;
      for (const OffloadTraits& offload : nvme_offloads) check_same(training, offload, expected);
    }
}

TEST_CASE("offload from a GPU: pinned bytes are the Plan's") {
  Training training = clipped(StrategyName::FullShard, 1, 1);
  const auto pinned_with = [&](const OffloadTraits& offload) {
    Bytes pinned = 0, planned = 0;
    Training measured = on_gpu(placed(training, offload));
    measured.hooks.after_training = [&](Trainer& trainer, Communicator&) {
      pinned = trainer.engine().device().host_memory().high_water();
      planned = trainer.plan().pinned_bytes;
    };
    train(measured);
    return pinned - planned;
  };
  const Bytes beside = pinned_with(none);  // reports
  for (const OffloadTraits& offload : gpu_places) CHECK(pinned_with(offload) == beside);
}

TEST_CASE("offload from a GPU: a slow stream, or a slow host, changes no bit") {
  for (const bool clips : {true, false}) {
    Training training = clipped(StrategyName::FullShard, 2, 1);
    training.precision = PrecisionName::Bf16Mixed;
    training.options.max_grad_norm = clips ? 0.5 : 0;
    training.options.step_in_backward = !clips;
    training.options.update_part = 20;
    training.options.prefetch_forward = 2;
    const Trained expected = train(training);
    for (int slow = -1; slow < 5; ++slow) {  // host; compute, gather, reduce, upload, download
      CAPTURE(slow);
      Training slowed = training;
      slowed.hooks.device = [](const HostOptions&, Rank) {
        return std::make_unique<OffloadDevice>();
      };
      slowed.hooks.micro_step = [slow](Trainer& trainer, const TestModel& test, std::int64_t step,
                                       Elements micro_batch) {
        const auto& device = static_cast<OffloadDevice&>(trainer.engine().device());
        REQUIRE(device.streams() == 5);
        std::array<double, 8> activations{};
        for (int turn = 0; turn < 12; ++turn) {
          device.sleep_on(slow, std::chrono::microseconds(500));
          (turn < 6 ? run_forward : run_backward)(
              trainer, test, {step, micro_batch, &activations, turn < 6 ? turn : 11 - turn});
        }
      };
      check_same(slowed, all_on_host, expected);
      check_same(slowed, optimizer_on_host, expected);
    }
  }
}

TEST_CASE("offload from a GPU: a task that fails ends every rank, and nobody hangs") {
  for (const int world : {1, 2})
    for (const OffloadTraits& offload : gpu_places) {
      Training training = on_gpu(placed(clipped(StrategyName::FullShard, world, 1), offload));
      training.steps = 6;
      training.hooks.device = [](const HostOptions&, Rank) {
        return std::make_unique<OffloadDevice>();
      };
      training.hooks.before_step = [](Trainer& trainer, Communicator& communicator, int step) {
        if (step != 2 || communicator.rank() != 0) return;
        static_cast<OffloadDevice&>(trainer.engine().device()).lane().enqueue([] {
          throw std::runtime_error("poison");
        });
      };
      std::vector<std::string> failures(static_cast<std::size_t>(world));
      CHECK_THROWS(train(training, &failures));
      for (const std::string& failure : failures) CHECK(contains(failure, "poison"));
    }
}

TEST_CASE("offload from a GPU: assigned and summoned values, evaluation, a discarded step") {
  for (const Bytes budget : {Bytes{0}, unlimited_bytes})
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed}) {
      Training training = clipped(StrategyName::FullShard, 2, 1);
      training.precision = precision;
      training.options.pinned_budget = budget;
      training.hooks.before_step = [](Trainer& trainer, Communicator&, int step) {
        const TestModel test;
        Engine& engine = trainer.engine();
        std::vector<float> table(37 * 5);
        for (std::size_t i = 0; i < table.size(); ++i)
          table[i] = static_cast<float>(i) / 64 + static_cast<float>(step);
        if (step == 0) engine.assign(test.table.index, table.data(), DType::Float32);
        const std::vector<double> wide(table.begin(), table.end());
        if (step == 1) engine.assign(test.table.index, wide.data(), DType::Float64);
        if (step == 2)
          engine.assign_from(1, test.table.index, trainer.rank() == 1 ? table.data() : nullptr,
                             DType::Float32);
        const std::vector<float> frozen{1, 2, 3, 4, static_cast<float>(step)};
        engine.assign(test.frozen.index, frozen.data(), DType::Float32);
        run_micro_step(trainer, test, 100, trainer.rank());
        trainer.discard_step();
      };
      const Trained expected = train(training);
      for (const OffloadTraits& offload : gpu_places) {
        CAPTURE(to_string(offload));
        const Trained found = train(on_gpu(placed(training, offload)));
        CHECK(found.hash() == expected.hash());
      }
    }
}

TEST_CASE("offload from a GPU: a new Sharder elsewhere goes on where the old one stands") {
  const auto hash_after = [](const OffloadTraits& before, const OffloadTraits& after,
                             Bytes budget) {
    std::atomic<std::uint64_t> hash{0};
    flatshard_test::run_on_shared_device(2, offload_gpu, [&](Communicator& communicator) {
      const TestModel test;
      Options options;
      options.device = communicator.device();
      options.groups.resize(2);
      options.pinned_budget = budget;
      const auto make = [&](const OffloadTraits& offload) {
        options.offload = offload;
        return make_trainer(StrategyName::FullShard, PrecisionName::Bf16Mixed, communicator,
                            test.model, AdamW{.lr = 1e-2}, options);
      };
      const auto steps = [&](Trainer& trainer, int from) {
        for (int step = from; step < from + 2; ++step) {
          run_micro_step(trainer, test, step, trainer.rank());
          trainer.step().wait();
        }
      };
      const auto old = make(before);
      old->initialize(init::normal{0.5, 1});
      steps(*old, 0);
      const auto fresh = make(after);
      carry_over(old->engine(), fresh->engine(), {.block_bytes = 4096});
      steps(*fresh, 2);
      const std::uint64_t mine = params_hash(fresh->engine());
      if (communicator.rank() == 0) hash.store(mine);
    });
    return hash.load();
  };
  const std::uint64_t expected = hash_after(none, none, unlimited_bytes);
  for (const OffloadTraits& offload : gpu_places)
    for (const Bytes budget : {Bytes{0}, unlimited_bytes}) {
      CAPTURE(to_string(offload));
      CAPTURE(budget);
      CHECK(hash_after(none, offload, budget) == expected);
      CHECK(hash_after(offload, none, budget) == expected);
    }
}

TEST_CASE("offload from a GPU: a checkpoint of one place goes on in another") {
  const auto run = [](const OffloadTraits& offload, Bytes budget, int from, int to,
                      const std::string& load, const std::string& save) {
    std::uint64_t hash = 0;
    flatshard_test::run_on_shared_device(2, offload_gpu, [&](Communicator& communicator) {
      const TestModel test;
      Options options;
      options.device = communicator.device();
      options.groups.resize(2);
      options.max_grad_norm = 0.5;
      options.offload = offload;
      options.pinned_budget = budget;
      const auto trainer = make_trainer(StrategyName::FullShard, PrecisionName::Bf16Mixed,
                                        communicator, test.model, AdamW{.lr = 1e-2}, options);
      trainer->initialize(init::normal{0.5, 1});
      if (!load.empty()) load_checkpoint(trainer->engine(), load);
      for (int step = from; step < to; ++step) {
        run_micro_step(*trainer, test, step, trainer->rank());
        trainer->step().wait();
      }
      if (!save.empty()) save_checkpoint(trainer->engine(), {.folder = save});
      const std::uint64_t mine = params_hash(trainer->engine());
      if (communicator.rank() == 0) hash = mine;
    });
    return hash;
  };
  const std::uint64_t expected = run(none, unlimited_bytes, 0, 4, "", "");
  for (const OffloadTraits& before : gpu_places)
    for (const Bytes budget : {Bytes{0}, unlimited_bytes}) {
      CAPTURE(to_string(before));
      CAPTURE(budget);
      const flatshard_test::ScratchFolder folder;
      run(before, budget, 0, 2, "", folder / "run");
      CHECK(run(none, budget, 2, 4, folder / "run", folder / "other") == expected);
      CHECK(run(before, budget, 4, 4, folder / "other", "") == expected);
      CHECK(run(before, budget, 2, 4, folder / "run", "") == expected);
    }
}

TEST_CASE("offload from a GPU: exported tensors say where they lie; a capture is refused") {
  flatshard_test::run_on_shared_device(1, offload_gpu, [](Communicator& communicator) {
    const TestModel test;
    Options options;
    options.device = communicator.device();
    options.groups.resize(2);
    options.offload = optimizer_on_host;
    const auto kind_of_state = [&] {
      const auto trainer = make_trainer(StrategyName::FullShard, PrecisionName::Bf16Mixed,
                                        communicator, test.model, AdamW{}, options);
      Engine& engine = trainer->engine();
      CHECK_THROWS_AS(engine.capture([] {}), UsageError);
      return export_local(engine, test.table.index, nullptr)
          .states[1]
          ->dl_tensor.device.device_type;
    };
    CHECK(kind_of_state() == dlpack::DeviceType::CudaHost);
    options.pinned_budget = 0;
    CHECK(kind_of_state() == dlpack::DeviceType::Cpu);
    options.offload = parameters_on_host;
    CHECK(kind_of_state() == dlpack::DeviceType::Cuda);
  });
}
