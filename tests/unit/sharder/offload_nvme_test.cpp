// What rests on NVMe leaves the same bits as what rests on the device.
#include <doctest/doctest.h>
#include <flatshard/comm/solo.hpp>

#include <algorithm>
#include <filesystem>

#include "offload_checks.hpp"
#include "random.hpp"
#include "scratch_folder.hpp"

using namespace sharder_test;
using flatshard_test::ScratchFolder;

namespace {

/// Small blocks, so that slots have several.
NvmeOptions nvme_in(const std::string& folder) {
  NvmeOptions nvme;
  nvme.folder = folder;
  nvme.queue_depth = 3;
  nvme.block_bytes = 4096;
  nvme.backend = IoBackend::Threads;
  return nvme;
}

Trained trained_on_nvme(Training training, const OffloadTraits& offload) {
  const ScratchFolder folder;
  const NvmeOptions chosen = training.options.nvme;
  training.options.nvme = nvme_in(folder.path());
  training.options.nvme.buffers = chosen.buffers;
  training.options.offload = offload;
  const Trained trained = train(training);
  CHECK(std::filesystem::is_empty(folder.path()));
  return trained;
}

void check_same_on_nvme(const Training& training, const OffloadTraits& offload,
                        std::uint64_t expected) {
  CAPTURE(to_string(training));
  CAPTURE(to_string(offload));
  CAPTURE(training.options.nvme.buffers);
  const Trained trained = trained_on_nvme(training, offload);
  CHECK(trained.replicas_agree);
  CHECK(trained.hash() == expected);
}

/// One case of the product.
struct Case {
  StrategyName strategy;
  OffloadTraits offload;
  int world;
  StreamForm form;
  int buffers;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const StrategyName strategy : all_strategies)
    for (const OffloadTraits& offload : nvme_offloads)
      for (const int world : {1, 2, 4})
        for (const StreamForm form : {StreamForm::Inline, StreamForm::Threaded})
          for (const int buffers : {1, 2, 3})
            cases.push_back({strategy, offload, world, form, buffers});
  return cases;
}

void check(const Case& one) {
  Training training = clipped(one.strategy, one.world, 4 / one.world);
  training.host.form = one.form;
  training.threaded_compute = one.form == StreamForm::Threaded && one.world == 2;
  training.options.nvme.buffers = one.buffers;
  check_same_on_nvme(training, one.offload, hash_at_four());
}

template <class List>
auto pick(std::mt19937_64& random, const List& list) {
  return list[random() % list.size()];
}

}  // namespace

TEST_CASE("NVMe: one hash over places, strategies, W * K == 4 and stream forms") {
  auto random = flatshard_test::generator(41);
  const std::vector<Case> cases = all_cases();
  const char* every = std::getenv("FLATSHARD_TEST_EVERY");  // "1": all, "7": every seventh case
  if (every == nullptr) {
    for (int round = 0; round < 40; ++round) check(pick(random, cases));
    return;
  }
  const auto stride = static_cast<std::size_t>(std::max(1, std::atoi(every)));
  for (std::size_t index = random() % stride; index < cases.size(); index += stride)
    check(cases[index]);
}

TEST_CASE("NVMe: the same bits in every precision, at every reduce moment") {
  auto random = flatshard_test::generator(42);
  for (const PrecisionName precision : all_precisions)
    for (const StrategyName strategy :
         {StrategyName::ShardOptimizer, StrategyName::FullShard, StrategyName::HybridShard})
      for (const ReduceMoment moment :
           {ReduceMoment::Micro, ReduceMoment::Boundary, ReduceMoment::ReplicaBoundary}) {
        const bool replicas = strategy == StrategyName::HybridShard;
        if (moment == ReduceMoment::ReplicaBoundary && !replicas) continue;
        Training training = clipped(strategy, replicas ? 4 : 2, 2);
        training.precision = precision;
        training.steps = 2;
        training.options.reduce_moment = moment;
        training.options.accumulation =
            moment == ReduceMoment::Micro ? Accumulation::Running : Accumulation::Tree;
        check_same_on_nvme(training, pick(random, nvme_offloads), train(training).hash());
      }
}

TEST_CASE("NVMe: steps that are skipped, updates in backward, modules that are not used") {
  for (const OffloadTraits& offload : nvme_offloads) {
    Training skipping = clipped(StrategyName::FullShard, 2, 1);
    skipping.precision = PrecisionName::Fp16Torch;
    skipping.steps = 12;
    skipping.options.loss_scale = scale_settings(skipping.precision, 0x1p24);
    check_same_on_nvme(skipping, offload, train(skipping).hash());
    for (const StrategyName strategy : {StrategyName::ShardOptimizer, StrategyName::FullShard}) {
      Training in_backward = clipped(strategy, 2, 2);
      in_backward.precision = PrecisionName::Bf16Mixed;
      in_backward.options.max_grad_norm = 0;
      in_backward.options.step_in_backward = true;
      in_backward.host.form = StreamForm::Threaded;
      check_same_on_nvme(in_backward, offload, train(in_backward).hash());
      in_backward.micro_steps = 1;
      in_backward.options.update_part = 9;
      check_same_on_nvme(in_backward, offload, train(in_backward).hash());
      Training unused = clipped(strategy, 2, 1);
      unused.steps = 4;
      unused.model.skip_when_unused = true;
      unused.hooks.micro_step = [](Trainer& trainer, const TestModel& test, std::int64_t step,
                                   Elements micro_batch) {
        constexpr std::array forward{0, 1, 2, 3, 5}, backward{5, 3, 2, 1, 0};
        if (step % 2 == 1) return run_calls(trainer, test, step, micro_batch, forward, backward);
        run_micro_step(trainer, test, step, micro_batch);
      };
      check_same_on_nvme(unused, offload, train(unused).hash());
    }
  }
}

TEST_CASE("NVMe: one hash at random options") {
  auto random = flatshard_test::generator(43);
  for (int trial = 0; trial < 40; ++trial) {
    const int world = pick(random, std::array{1, 2, 4});
    const StrategyName strategy = pick(random, all_strategies);
    Training training = clipped(strategy, world, 4 / world);
    Options& options = training.options;
    if (has_groups(strategy)) options.shard_group = pick(random, std::array{1, world});
    options.reduce_moment = pick(random, std::array{ReduceMoment::Micro, ReduceMoment::Boundary});
    options.wrap = pick(random, std::vector<WrapPolicy>{wrap::each_module(), wrap::all_in_one(),
                                                        wrap::up_to(100), wrap::by_prefix({"h"})});
    options.prefetch_forward = pick(random, std::array{0, 1, 2, 3});
    options.prefetch_backward = pick(
        random, std::array{BackwardPrefetch::Pre, BackwardPrefetch::Post, BackwardPrefetch::None});
    options.persistence_threshold = pick(random, std::array<Elements, 3>{0, 5, 80});
    options.max_micro_steps = pick(random, std::array{4, 7});
    options.update_part = pick(random, std::array<Elements, 3>{0, 3, 20});
    options.pinned_budget = pick(random, std::array<Bytes, 3>{0, 20000, unlimited_bytes});
    options.nvme.buffers = pick(random, std::array{1, 2, 3, 5});
    training.host.form = pick(random, std::array{StreamForm::Inline, StreamForm::Threaded});
    training.threaded_compute = random() % 4 == 0;
    training.host.threads = pick(random, std::array{1, 2});
    check_same_on_nvme(training, pick(random, nvme_offloads), hash_at_four());
  }
}

TEST_CASE("NVMe: assigned and summoned values, evaluation, a discarded step") {
  for (const OffloadTraits& offload : nvme_offloads)
    for (const int buffers : {1, 3}) {
      Training training = clipped(StrategyName::FullShard, 2, 1);
      training.precision = PrecisionName::Bf16Mixed;
      training.options.nvme.buffers = buffers;
      training.hooks.before_step = [](Trainer& trainer, Communicator& communicator, int step) {
        const TestModel test;
        Engine& engine = trainer.engine();
        std::vector<float> table(37 * 5, static_cast<float>(step) + 1);
        engine.assign(test.table.index, table.data(), DType::Float32);
        trainer.summon_full(
            test.blocks[0],
            [&](const Views& views) {
              const Values weights = views.weights(test.weights[0]);
              for (Elements i = 0; i < weights.count; ++i) weights.set(i, weights.get(i) * 0.5);
            },
            step != 1);
        const std::vector<float> frozen{1, 2, 3, 4, static_cast<float>(step)};
        engine.assign(test.frozen.index, frozen.data(), DType::Float32);
        trainer.evaluate(test.blocks[2], [&](const Views& views) {
          CHECK(views.weights(test.frozen).get(4) == step);
        });
        run_micro_step(trainer, test, 100, communicator.rank());
        trainer.discard_step();
        trainer.evaluate(test.embedding, [&](const Views& views) {
          CHECK(views.weights(test.table).get(64) == 1 + step);
        });
      };
      check_same_on_nvme(training, offload, train(training).hash());
    }
}

TEST_CASE("NVMe: what has no address is refused, the rest is as the Plan says") {
  Training training = clipped(StrategyName::FullShard, 2, 2);
  Bytes host = 0;
  training.hooks.after_training = [&](Trainer& trainer, Communicator& communicator) {
    if (communicator.rank() == 0) host = trainer.engine().device().host_memory().high_water();
  };
  train(training);
  const Bytes beside = host;  // reports
  training.hooks.after_training = [&](Trainer& trainer, Communicator& communicator) {
    if (communicator.rank() != 0) return;
    Engine& engine = trainer.engine();
    const TestModel test;
    const Plan& plan = engine.plan();
    const bool on_nvme = plan.request.offload.optimizer == Tier::Nvme;
    const std::string refused = message_of([&] { engine.local(test.table.index); });
    CHECK(contains(refused, "rests on NVMe, where it has no address") == on_nvme);
    CHECK(engine.device().host_memory().high_water() == beside + plan.pinned_bytes);
    CHECK(engine.device().memory().high_water() == plan.arena_bytes);
    CHECK(plan.bytes(Memory::Nvme) > 0);
    CHECK(contains(engine.nvme(), "threads, "));
  };
  for (const OffloadTraits& offload : nvme_offloads) trained_on_nvme(training, offload);
}

TEST_CASE("NVMe: what is initialised is on the disk before its buffer has the next") {
  Model model;
  std::vector<Module> modules;
  std::vector<Parameter> weights;
  for (int index = 0; index < 4; ++index) {
    modules.push_back(model.module("h." + std::to_string(index)));
    weights.push_back(modules.back().add("weight", {3000}, {.requires_grad = index == 0}));
  }
  const ScratchFolder folder;
  for (int trial = 0; trial < 80; ++trial) {
    HostDevice device({.form = StreamForm::Threaded});
    Solo communicator(device);
    Options options;
    options.offload = trial % 2 == 0 ? OffloadTraits{Tier::Nvme, Tier::Device}
                                     : OffloadTraits{Tier::Nvme, Tier::Host};
    options.device = &device;
    options.nvme = nvme_in(folder.path());
    options.nvme.buffers = 1;
    const auto trainer = make_trainer(StrategyName::FullShard, PrecisionName::Fp32, communicator,
                                      model, SGD{}, options);
    trainer->initialize(init::constant{1});
    for (std::size_t index = 0; index < modules.size(); ++index)
      trainer->summon_full(modules[index], [&](const Views& views) {
        const auto* values = reinterpret_cast<const float*>(views.weights(weights[index]).data);
        CHECK(std::count(values, values + 3000, 1.0f) == 3000);
      });
  }
}

TEST_CASE("NVMe: a thousand steps leave memory, file and their number as they were") {
  if (flatshard_test::short_run()) return;
  const auto open_files = [] {
    std::ptrdiff_t count = 0;
    std::uintmax_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      ++count;
      const auto size = std::filesystem::file_size(entry.path(), gone);
      if (!gone) bytes += size;
    }
    return std::pair(count, bytes);
  };
  Training training = clipped(StrategyName::FullShard, 1, 1);
  training.steps = 1000;
  std::pair<std::ptrdiff_t, std::uintmax_t> files_after_ten;
  std::int64_t blocks_after_ten = 0;
  training.hooks.after_step = [&](Trainer& trainer, Communicator&, int step) {
    if (step != 9 && step != 999) return;
    trainer.engine().synchronize();
    Device& device = trainer.engine().device();
    const std::int64_t blocks = device.memory().allocations() + device.host_memory().allocations();
    if (step == 9) {
      files_after_ten = open_files();
      blocks_after_ten = blocks;
      return;
    }
    CHECK(open_files() == files_after_ten);
    CHECK(blocks == blocks_after_ten);
  };
  trained_on_nvme(training, {Tier::Nvme, Tier::Nvme});
}
