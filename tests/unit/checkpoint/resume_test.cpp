// The resume rule: half a training, saved, loaded elsewhere and ended there, leaves the state of a
// whole one.
#include <flatshard/ops/adam.hpp>
#include <flatshard/ops/amsgrad.hpp>
#include <flatshard/ops/nadam.hpp>
#include <flatshard/ops/rmsprop.hpp>

#include <doctest/doctest.h>

#include <cstdlib>

#include "checkpointing.hpp"
#include "random.hpp"

namespace sharder_test {
namespace {

struct Resume {
  StrategyName before, after;
  PrecisionName precision;
  int optimizer;  // index of optimizers()
  int from, to;   // world sizes
};

constexpr int common_optimizers = 3;  // of optimizers(), those that meet every precision

std::vector<Optimizer> optimizers() {
  return {AdamW{.lr = 1e-2},
          SGD{.lr = 1e-2, .momentum = 0.9},
          Lion{.lr = 1e-3},
          Adam{.lr = 1e-2, .weight_decay = 0.1, .maximize = true},
          AMSGrad{.lr = 1e-2, .decoupled_weight_decay = true},
          NAdam{.lr = 1e-2},
          RMSProp{.lr = 1e-3},
          RMSPropMomentum{.lr = 1e-3, .momentum = 0.9},
          CenteredRMSProp{.lr = 1e-3},
          CenteredRMSPropMomentum{.lr = 1e-3, .momentum = 0.9}};
}

std::string to_string(const Resume& resume) {
  return std::string(name_of(resume.before)) + " to " + std::string(name_of(resume.after)) + ", " +
         std::string(name_of(resume.precision)) + ", optimizer " +
         std::to_string(resume.optimizer) + ", ranks " + std::to_string(resume.from) + " to " +
         std::to_string(resume.to);
}

bool is_power(int world) { return (world & (world - 1)) == 0; }

bool sums_wide(PrecisionName precision) {
  return precision == PrecisionName::Fp64 || precision == PrecisionName::Fp32 ||
         precision == PrecisionName::Bf16Mixed || precision == PrecisionName::Bf16Stochastic ||
         precision == PrecisionName::Bf16StochasticState;
}

/// DESIGN.md, One hash: at equal world size always; else with as many micro-batches, summed by the
/// tree in wide precision.
bool one_hash(const Resume& resume) {
  if (resume.from == resume.to) return true;
  return is_power(resume.from) && is_power(resume.to) && sums_wide(resume.precision);
}

/// A scale that grows within the four steps, if its count of good steps is carried over.
std::optional<ScaleSettings> growing_scale(PrecisionName precision) {
  if (precision == PrecisionName::Fp16Torch) return LossScaler::torch(256, 2, 0.5, 3).settings;
  if (precision == PrecisionName::Fp16DeepSpeed) return LossScaler::deepspeed(256, 3).settings;
  return {};
}

Part part_of(const Resume& resume, StrategyName strategy, int world) {
  Part part;
  part.strategy = strategy;
  part.precision = resume.precision;
  part.world = world;
  part.optimizer = optimizers()[static_cast<std::size_t>(resume.optimizer)];
  part.options.loss_scale = growing_scale(resume.precision);
  part.options.max_grad_norm = 1;
  part.options.seed = 7;
  if (resume.from != resume.to && is_power(world)) {
    part.micro_steps = 8 / world;
    part.options.accumulation = Accumulation::Tree;
  }
  return part;
}

void check(const Resume& resume) {
  CAPTURE(to_string(resume));
  const ScratchFolder folder;
  Part first = part_of(resume, resume.before, resume.from);
  first.to = 2;
  first.save = folder / "run";
  const Trained saved = train_part(first);

  Part second = part_of(resume, resume.after, resume.to);
  second.options.seed = 0;  // the checkpoint's counts
  second.load = first.save;
  second.from = second.to = 2;
  CHECK(same_state(train_part(second), saved));  // bit for bit, in every case

  if (!one_hash(resume)) return;
  second.to = 4;
  const Trained resumed = train_part(second);
  Part whole = part_of(resume, resume.before, resume.from);
  whole.to = 4;
  const Trained expected = train_part(whole);
  CHECK(same_state(resumed, expected));
  CHECK(resumed.reports.back() == expected.reports.back());  // step number and loss scale too
}

constexpr std::array worlds{1, 2, 3, 4, 8};

template <class Array>
auto any(std::mt19937_64& random, const Array& values) {
  return values[random() % values.size()];
}

/// The full product, 44100 cases.
std::vector<Resume> all_cases() {
  std::vector<Resume> cases;
  for (const StrategyName before : all_strategies)
    for (const StrategyName after : all_strategies)
      for (const PrecisionName precision : all_precisions)
        for (int optimizer = 0; optimizer < common_optimizers; ++optimizer)
          for (const int from : worlds)
            for (const int to : worlds)
              cases.push_back({before, after, precision, optimizer, from, to});
  return cases;
}

TEST_CASE("resuming under any strategy and world size leaves the state of an unbroken run") {
  auto random = flatshard_test::generator();
  const std::vector<Resume> cases = all_cases();
  const char* every = std::getenv("FLATSHARD_TEST_EVERY");  // "1": all, "7": every seventh case
  if (every == nullptr) {
    for (int round = 0; round < 40; ++round) check(any(random, cases));
    return;
  }
  const auto stride = static_cast<std::size_t>(std::max(1, std::atoi(every)));
  for (std::size_t index = random() % stride; index < cases.size(); index += stride)
    check(cases[index]);
}

TEST_CASE("every precision resumes at an equal world size under another strategy") {
  for (const PrecisionName precision : all_precisions)
    check({StrategyName::FullShard, StrategyName::ShardOptimizer, precision, 0, 4, 4});
}

TEST_CASE("every optimizer resumes with all of its states and the number of its update") {
  const auto all = static_cast<int>(optimizers().size());
  for (int optimizer = common_optimizers; optimizer < all; ++optimizer) {
    check(
        {StrategyName::FullShard, StrategyName::ShardGradOp, PrecisionName::Fp32, optimizer, 2, 4});
    check({StrategyName::ShardOptimizer, StrategyName::FullShard,
           PrecisionName::Bf16StochasticState, optimizer, 3, 3});
  }
}

TEST_CASE("SGD's first update stays the first: momentum is not started again") {
  check({StrategyName::FullShard, StrategyName::NoShard, PrecisionName::Fp32, 1, 2, 2});
}

TEST_CASE("wrapping, persistence and accumulation may change") {
  const ScratchFolder folder;
  Part first;
  first.world = 4;
  first.to = 2;
  first.save = folder / "run";
  const Trained saved = train_part(first);
  Part second = first;
  second.load = first.save;
  second.save.clear();
  second.from = 2;
  second.to = 4;
  second.options.wrap = wrap::all_in_one();
  second.options.persistence_threshold = 30;
  Part whole = first;
  whole.save.clear();
  whole.to = 4;
  CHECK(same_state(train_part(second), train_part(whole)));
}

TEST_CASE("a module that was not always used keeps its own time step") {
  const ScratchFolder folder;
  const auto train_some = [&](int from, int to, const std::string& load, const std::string& save) {
    Training training;
    training.world = 2;
    training.steps = to - from;
    training.model.skip_when_unused = true;
    training.hooks.micro_step = [from](Trainer& trainer, const TestModel& test, std::int64_t step,
                                       Elements micro_batch) {
      constexpr std::array all{0, 1, 2, 3, 4, 5}, back{5, 4, 3, 2, 1, 0};
      constexpr std::array some{0, 1, 2, 3, 5}, some_back{5, 3, 2, 1, 0};
      const bool leaves_out = (step + from) % 2 == 1;
      if (leaves_out)
        run_calls(trainer, test, step + from, micro_batch, some, some_back);
      else
        run_calls(trainer, test, step + from, micro_batch, all, back);
    };
    training.hooks.before_training = [&](Trainer& trainer, Communicator&) {
      if (!load.empty()) load_checkpoint(trainer.engine(), load);
    };
    training.hooks.after_training = [&](Trainer& trainer, Communicator&) {
      if (!save.empty()) save_checkpoint(trainer.engine(), {.folder = save});
    };
    return train(training);
  };
  train_some(0, 3, "", folder / "run");
  const Manifest manifest = read_manifest(folder / "run/step-3");
  REQUIRE(manifest.optimizer);
  CHECK(manifest.optimizer->time == 3);
  REQUIRE(manifest.optimizer->times.size() == 3);  // weight, bias, norm of the last block
  CHECK(manifest.optimizer->times[0] == std::pair<std::string, std::int64_t>{"h.2.weight", 2});
  CHECK(same_state(train_some(3, 5, folder / "run", ""), train_some(0, 5, "", "")));

  Part together;  // one flat cannot have two times
  together.load = folder / "run";
  together.precision = PrecisionName::Fp32;
  together.options.wrap = wrap::all_in_one();
  const std::string message = message_of([&] { train_part(together); });
  CHECK(contains(message, "wrap them apart"));
}

TEST_CASE("reports of the earlier run are gone, and numbers go on") {
  const ScratchFolder folder;
  Part first;
  first.to = 3;
  first.save = folder / "run";
  train_part(first);
  Training training;
  training.precision = first.precision;
  training.world = 2;
  training.steps = 1;
  training.hooks.before_training = [&](Trainer& trainer, Communicator&) {
    load_checkpoint(trainer.engine(), first.save);
    CHECK(contains(message_of([&] { trainer.engine().wait(3); }), "report of step 3 is gone"));
  };
  const Trained trained = train(training);
  REQUIRE(trained.reports.size() == 1);
  CHECK(trained.reports[0].step == 4);
}

TEST_CASE("step in backward resumes too") {
  Part part;
  part.options.step_in_backward = true;
  const ScratchFolder folder;
  Part first = part;
  first.to = 2;
  first.save = folder / "run";
  train_part(first);
  Part second = part;
  second.load = first.save;
  second.from = 2;
  second.to = 4;
  Part whole = part;
  whole.to = 4;
  const Trained resumed = train_part(second), expected = train_part(whole);
  CHECK(same_state(resumed, expected));
  CHECK(resumed.reports.back() == expected.reports.back());
}

}  // namespace
}  // namespace sharder_test
