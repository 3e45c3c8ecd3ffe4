// One hash: what must not change a bit of the parameters, the states and the norm.
#include <flatshard/ops/nadam.hpp>
#include <flatshard/ops/rmsprop.hpp>

#include <doctest/doctest.h>

#include <optional>

#include "random.hpp"
#include "training.hpp"

using namespace sharder_test;

namespace {

/// Moments that a strategy allows.
std::vector<ReduceMoment> moments_of(StrategyName strategy) {
  if (is_hybrid(strategy))
    return {ReduceMoment::Micro, ReduceMoment::Boundary, ReduceMoment::ReplicaBoundary};
  return {ReduceMoment::Micro, ReduceMoment::Boundary};
}

/// Shard groups that matter to a strategy at a world size.
std::vector<int> groups_of(StrategyName strategy, int world, const std::vector<int>& sizes) {
  if (!has_groups(strategy)) return {0};
  std::vector<int> groups;
  for (const int size : sizes)
    if (world % size == 0) groups.push_back(size);
  return groups;
}

/// The hash that all trainings of a family must have.
class Same {
 public:
  void check(const Training& training) {
    CAPTURE(to_string(training));
    const Trained trained = train(training);
    CHECK(trained.replicas_agree);
    for (const StepReport& report : trained.reports) CHECK(!report.skipped);
    if (!hash_) hash_ = trained.hash();
    CHECK(trained.hash() == *hash_);
  }
  std::uint64_t value() const { return *hash_; }

 private:
  std::optional<std::uint64_t> hash_;
};

std::uint64_t hash_at_eight() {
  static const std::uint64_t hash = train(clipped(StrategyName::NoShard, 1, 8)).hash();
  return hash;
}

void check_at_eight(const Training& training) {
  CAPTURE(to_string(training));
  const Trained trained = train(training);
  CHECK(trained.replicas_agree);
  CHECK(trained.hash() == hash_at_eight());
}

std::vector<WrapPolicy> wraps() {
  return {wrap::each_module(),
          wrap::all_in_one(),
          wrap::up_to(100),
          wrap::up_to(300),
          wrap::by_prefix({"h", "head"}),
          wrap::by_prefix({"h.0", "h.2"})};
}

}  // namespace

TEST_CASE("tree accumulation: one hash over W * K == 8, strategies, groups and reduce moments") {
  for (const int world : {1, 2, 4, 8})
    for (const StrategyName strategy : all_strategies)
      for (const int group : groups_of(strategy, world, {1, 2, 4, 8}))
        for (const ReduceMoment moment : moments_of(strategy)) {
          Training training = clipped(strategy, world, 8 / world);
          training.options.shard_group = group;
          training.options.reduce_moment = moment;
          check_at_eight(training);
        }
}

TEST_CASE("one hash over wraps") {
  for (const StrategyName strategy : all_strategies)
    for (const WrapPolicy& wrap : wraps()) {
      Training training = clipped(strategy, 4, 2);
      training.options.wrap = wrap;
      check_at_eight(training);
    }
}

TEST_CASE("one hash over prefetch depths, forward and backward") {
  for (const StrategyName strategy :
       {StrategyName::FullShard, StrategyName::ShardGradOp, StrategyName::FullShardSecondary})
    for (const int ahead : {0, 1, 2})
      for (const BackwardPrefetch backward :
           {BackwardPrefetch::Pre, BackwardPrefetch::Post, BackwardPrefetch::None}) {
        Training training = clipped(strategy, 2, 4);
        training.options.prefetch_forward = ahead;
        training.options.prefetch_backward = backward;
        training.host.form = ahead == 1 ? StreamForm::Threaded : StreamForm::Inline;
        check_at_eight(training);
      }
}

TEST_CASE("one hash over stream forms, kernel threads and instruction sets") {
  for (const StrategyName strategy : all_strategies) {
    Training training = clipped(strategy, 4, 2);
    training.host.form = StreamForm::Threaded;
    check_at_eight(training);
    training.threaded_compute = true;
    check_at_eight(training);
    training.host.form = StreamForm::Inline;
    check_at_eight(training);
  }
  for (const int threads : {2, 3}) {
    Training training = clipped(StrategyName::FullShard, 2, 4);
    training.host.threads = threads;
    check_at_eight(training);
  }
  for (const InstructionSet set :
       {InstructionSet::Baseline, InstructionSet::Avx2, InstructionSet::Avx512}) {
    if (!is_available(set)) continue;
    Training training = clipped(StrategyName::HybridShard, 4, 2);
    training.host.instruction_set = set;
    check_at_eight(training);
  }
}

TEST_CASE("one hash over persistence and caps") {
  for (const StrategyName strategy : all_strategies) {
    Training training = clipped(strategy, 4, 2);
    for (const Elements threshold : {5, 80, 1000}) {
      training.options.persistence_threshold = threshold;
      check_at_eight(training);
    }
  }
  for (const StrategyName strategy : {StrategyName::FullShard, StrategyName::HybridShard}) {
    Training training = clipped(strategy, 4, 2);
    training.options.prefetch_forward = 2;
    training.options.max_live_elements = 1100;
    training.host.form = StreamForm::Threaded;
    check_at_eight(training);
  }
}

TEST_CASE("tree accumulation: one hash at random options") {
  auto random = flatshard_test::generator(1);
  const auto pick = [&](const auto& list) { return list[random() % list.size()]; };
  for (int trial = 0; trial < 40; ++trial) {
    const int world = pick(std::array{1, 2, 4, 8});
    const StrategyName strategy = pick(all_strategies);
    Training training = clipped(strategy, world, 8 / world);
    training.options.shard_group = pick(groups_of(strategy, world, {1, 2, 4, 8}));
    training.options.reduce_moment = pick(moments_of(strategy));
    training.options.wrap = pick(wraps());
    training.options.prefetch_forward = pick(std::array{0, 1, 2, 3});
    training.options.prefetch_backward =
        pick(std::array{BackwardPrefetch::Pre, BackwardPrefetch::Post, BackwardPrefetch::None});
    training.options.persistence_threshold = pick(std::array<Elements, 3>{0, 5, 80});
    training.options.max_micro_steps = pick(std::array{8, 11});
    training.host.form = pick(std::array{StreamForm::Inline, StreamForm::Threaded});
    training.threaded_compute = random() % 4 == 0;
    training.host.threads = pick(std::array{1, 2});
    check_at_eight(training);
  }
}

TEST_CASE("world sizes that are no powers of two: one hash each") {
  for (const int world : {3, 6}) {
    Same same;
    for (const StrategyName strategy : all_strategies)
      for (const int group : groups_of(strategy, world, {1, 2, world}))
        for (const ReduceMoment moment : moments_of(strategy)) {
          Training training = clipped(strategy, world, 1);
          training.options.shard_group = group;
          training.options.reduce_moment = moment;
          training.options.wrap = wraps()[static_cast<std::size_t>(group % 3)];
          same.check(training);
        }
  }
}

TEST_CASE("a group of another size sums T over T and the Plan says so") {
  Training training = clipped(StrategyName::HybridShard, 6, 1);
  training.options.shard_group = 3;
  training.hooks.before_training = [](Trainer& trainer, Communicator&) {
    CHECK(trainer.plan().promises.front().find("groups of 3") != std::string::npos);
  };
  CHECK(train(training).replicas_agree);
}

TEST_CASE("running accumulation: one hash over strategies at equal W, K and moment") {
  for (const ReduceMoment moment : {ReduceMoment::Micro, ReduceMoment::Boundary}) {
    Same same;
    for (const StrategyName strategy : all_strategies)
      for (const int group : groups_of(strategy, 4, {1, 2, 4})) {
        Training training = clipped(strategy, 4, 3);
        training.options.accumulation = Accumulation::Running;
        training.options.shard_group = group;
        training.options.reduce_moment = moment;
        same.check(training);
      }
  }
  for (const StrategyName strategy : {StrategyName::HybridShard, StrategyName::HybridShardGradOp}) {
    Training training = clipped(strategy, 4, 3);
    training.options.accumulation = Accumulation::Running;
    training.options.shard_group = 2;
    training.options.reduce_moment = ReduceMoment::ReplicaBoundary;
    CHECK(train(training).replicas_agree);
  }
}

TEST_CASE("every precision: one hash over strategies at equal W, K and moment") {
  for (const PrecisionName precision : all_precisions)
    for (const ReduceMoment moment : {ReduceMoment::Micro, ReduceMoment::Boundary}) {
      Same same;
      for (const StrategyName strategy : all_strategies) {
        Training training = clipped(strategy, 4, 2);
        training.precision = precision;
        training.options.reduce_moment = moment;
        training.options.accumulation =
            moment == ReduceMoment::Micro ? Accumulation::Running : Accumulation::Tree;
        same.check(training);
      }
    }
}

TEST_CASE("precisions that sum wide: one hash over W, K and moments too") {
  for (const PrecisionName precision :
       {PrecisionName::Fp64, PrecisionName::Bf16Mixed, PrecisionName::Bf16Stochastic,
        PrecisionName::Bf16StochasticState}) {
    Same same;
    for (const int world : {1, 2, 4})
      for (const StrategyName strategy :
           {StrategyName::NoShard, StrategyName::FullShard, StrategyName::HybridShard})
        for (const ReduceMoment moment : moments_of(strategy)) {
          Training training = clipped(strategy, world, 4 / world);
          training.precision = precision;
          training.options.reduce_moment = moment;
          same.check(training);
        }
  }
}

TEST_CASE("one hash with a step in backward and without") {
  Same same;
  for (const int world : {1, 2, 4})
    for (const StrategyName strategy : all_strategies)
      for (const bool in_backward : {false, true}) {
        Training training = clipped(strategy, world, 4 / world);
        training.options.max_grad_norm = 0;
        training.options.step_in_backward = in_backward;
        training.host.form = world == 2 ? StreamForm::Threaded : StreamForm::Inline;
        training.threaded_compute = world == 4;
        same.check(training);
      }
}

TEST_CASE("a step in backward updates unused modules too, the same as the step would") {
  const std::array forward{0, 1, 2, 3, 5}, backward{5, 3, 2, 1, 0};  // without the last block
  Same same;
  for (const StrategyName strategy : all_strategies)
    for (const bool in_backward : {false, true}) {
      Training training = clipped(strategy, 2, 2);
      training.options.max_grad_norm = 0;
      training.options.step_in_backward = in_backward;
      training.hooks.micro_step = [&](Trainer& trainer, const TestModel& test, std::int64_t step,
                                      Elements micro_batch) {
        if (step == 1) return run_calls(trainer, test, step, micro_batch, forward, backward);
        run_micro_step(trainer, test, step, micro_batch);
      };
      same.check(training);
    }
}

TEST_CASE("other optimizers: one hash over strategies and world sizes") {
  const std::vector<Optimizer> optimizers{
      SGD{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
      Lion{.lr = 0.01, .weight_decay = 0.1}, NAdam{.lr = 0.01, .weight_decay = 0.1},
      CenteredRMSPropMomentum{.lr = 0.01, .weight_decay = 0.1, .momentum = 0.5}};
  for (const Optimizer& optimizer : optimizers) {
    Same same;
    for (const int world : {1, 2, 4})
      for (const StrategyName strategy : all_strategies) {
        Training training = clipped(strategy, world, 4 / world);
        training.optimizer = optimizer;
        same.check(training);
      }
  }
}

TEST_CASE("the hash depends on what it should") {
  Training training = clipped(StrategyName::FullShard, 2, 4);
  training.options.max_grad_norm = 0.25;
  CHECK(train(training).hash() != hash_at_eight());
  training = clipped(StrategyName::FullShard, 2, 4);
  training.optimizer = AdamW{.lr = 1.01e-2};
  CHECK(train(training).hash() != hash_at_eight());
  training = clipped(StrategyName::FullShard, 2, 4);
  training.steps = 4;
  CHECK(train(training).hash() != hash_at_eight());
}
