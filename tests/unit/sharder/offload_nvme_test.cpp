// What rests on NVMe leaves the same bits as what rests on the device.
#include <doctest/doctest.h>
#include <flatshard/sharder/carry_over.hpp>
#include <flatshard/sharder/params_hash.hpp>

#include <filesystem>

#include "offload.hpp"
#include "random.hpp"
#include "scratch_folder.hpp"

using namespace sharder_test;
using flatshard_test::ScratchFolder;

namespace {

Training clipped(StrategyName strategy, int world, int micro_steps) {
  Training training;
  training.strategy = strategy;
  training.world = world;
  training.micro_steps = micro_steps;
  training.options.max_grad_norm = 0.5;
  training.options.accumulation = Accumulation::Tree;
  return training;
}

/// Small blocks, so that slots have several.
NvmeOptions nvme_in(const std::string& folder) {
  NvmeOptions nvme;
  nvme.folder = folder;
  nvme.queue_depth = 3;
  nvme.block_bytes = 4096;
  nvme.backend = IoBackend::Threads;
  return nvme;
}

Trained trained_at(Training training, const OffloadTraits& offload) {
  const ScratchFolder folder;
  const NvmeOptions chosen = training.options.nvme;
  training.options.nvme = nvme_in(folder.path());
  training.options.nvme.buffers = chosen.buffers;
  training.options.offload = offload;
  const Trained trained = train(training);
  CHECK(std::filesystem::is_empty(folder.path()));
  return trained;
}

void check_same(const Training& training, const OffloadTraits& offload, std::uint64_t expected) {
  CAPTURE(to_string(training));
  CAPTURE(to_string(offload));
  CAPTURE(training.options.nvme.buffers);
  const Trained trained = trained_at(training, offload);
  CHECK(trained.replicas_agree);
  CHECK(trained.hash() == expected);
}

std::uint64_t hash_at_four() {
  static const std::uint64_t hash = train(clipped(StrategyName::NoShard, 1, 4)).hash();
  return hash;
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
  check_same(training, one.offload, hash_at_four());
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
        check_same(training, pick(random, nvme_offloads), train(training).hash());
      }
}

TEST_CASE("NVMe: steps that are skipped, updates in backward, modules that are not used") {
  for (const OffloadTraits& offload : nvme_offloads) {
    Training skipping = clipped(StrategyName::FullShard, 2, 1);
    skipping.precision = PrecisionName::Fp16Torch;
    skipping.steps = 12;
    skipping.options.loss_scale = scale_settings(skipping.precision, 0x1p24);
    check_same(skipping, offload, train(skipping).hash());
    for (const StrategyName strategy : {StrategyName::ShardOptimizer, StrategyName::FullShard}) {
      Training in_backward = clipped(strategy, 2, 2);
      in_backward.precision = PrecisionName::Bf16Mixed;
      in_backward.options.max_grad_norm = 0;
      in_backward.options.step_in_backward = true;
      in_backward.host.form = StreamForm::Threaded;
      check_same(in_backward, offload, train(in_backward).hash());
      Training unused = clipped(strategy, 2, 1);
      unused.steps = 4;
      unused.model.skip_when_unused = true;
      unused.hooks.micro_step = [](Trainer& trainer, const TestModel& test, std::int64_t step,
                                   Elements micro_batch) {
        constexpr std::array forward{0, 1, 2, 3, 5}, backward{5, 3, 2, 1, 0};
        if (step % 2 == 1) return run_calls(trainer, test, step, micro_batch, forward, backward);
        run_micro_step(trainer, test, step, micro_batch);
      };
      check_same(unused, offload, train(unused).hash());
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
    options.pinned_budget = pick(random, std::array<Bytes, 3>{0, 20000, unlimited_bytes});
    options.nvme.buffers = pick(random, std::array{1, 2, 3, 5});
    training.host.form = pick(random, std::array{StreamForm::Inline, StreamForm::Threaded});
    training.threaded_compute = random() % 4 == 0;
    training.host.threads = pick(random, std::array{1, 2});
    check_same(training, pick(random, nvme_offloads), hash_at_four());
  }
}
