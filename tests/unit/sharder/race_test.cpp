// Whatever two streams do to the same memory is ordered by events, and every kind of edge between
// two streams is needed.
#include <doctest/doctest.h>

#include <mutex>

#include "race_device.hpp"
#include "training.hpp"

using namespace sharder_test;

namespace {

enum : int { compute, gather, reduce };  // streams in the order in which the engine makes them

/// Calls of a micro-step that read weights and write gradients, as far as streams are told.
void touch(Trainer& trainer, const TestModel& test, const Module& module, bool backward) {
  Stream& stream = trainer.engine().compute_stream();
  const auto body = [&](const Views& views) {
    std::vector<Access> accesses;
    for (const Parameter parameter : test.parameters_of(module)) {
      const Values weights = views.weights(parameter);
      accesses.push_back(reads(weights.data, weights.count * size_of(weights.dtype)));
      if (!backward || parameter == test.frozen) continue;
      const Values gradients = views.gradients(parameter);
      accesses.push_back(writes(gradients.data, gradients.count * size_of(gradients.dtype)));
    }
    note(stream, backward ? "backward" : "forward", std::move(accesses));
  };
  if (backward)
    trainer.backward(module, body);
  else
    trainer.forward(module, body);
}

void touch_all(Trainer& trainer, const TestModel& test, std::int64_t, Elements) {
  for (const Module& module : test.calls) touch(trainer, test, module, false);
  for (auto module = test.calls.rbegin(); module != test.calls.rend(); ++module)
    touch(trainer, test, *module, true);
}

/// What nothing orders in four steps, on all ranks.
std::vector<std::string> races_of(Training training, std::pair<int, int> dropped = {-1, -1}) {
  std::vector<std::string> found;
  std::mutex mutex;
  training.steps = 4;
  training.hooks.device = [&](const HostOptions&, Rank) {
    auto device = std::make_unique<RaceDevice>();
    device->history.dropped = dropped;
    return device;
  };
  training.hooks.decorate = [](Communicator& comm) {
    return std::make_unique<RaceCommunicator>(comm);
  };
  if (!training.hooks.micro_step) training.hooks.micro_step = touch_all;
  training.hooks.after_training = [&](Trainer& trainer, Communicator&) {
    const auto races = static_cast<RaceDevice&>(trainer.engine().device()).history.races();
    const std::lock_guard lock(mutex);
    found.insert(found.end(), races.begin(), races.end());
  };
  train(training);
  return found;
}

void check_ordered(const Training& training) {
  CAPTURE(to_string(training));
  const auto races = races_of(training);
  CAPTURE(races.empty() ? std::string() : races.front());
  CHECK(races.empty());
}

}  // namespace

TEST_CASE("streams: everything that conflicts is ordered by events, in every strategy") {
  for (const StrategyName strategy : all_strategies)
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed}) {
      Training training;
      training.strategy = strategy;
      training.precision = precision;
      training.world = 2;
      training.micro_steps = 2;
      training.options.max_grad_norm = 1;
      check_ordered(training);
      training.options.prefetch_forward = 3;
      training.options.prefetch_backward = BackwardPrefetch::Post;
      training.options.accumulation = Accumulation::Tree;
      check_ordered(training);
      training.options.max_grad_norm = 0;
      training.options.step_in_backward = true;
      check_ordered(training);
    }
  Training hybrid;
  hybrid.strategy = StrategyName::HybridShard;
  hybrid.world = 4;
  hybrid.micro_steps = 2;
  hybrid.options.shard_group = 2;
  hybrid.options.reduce_moment = ReduceMoment::ReplicaBoundary;
  check_ordered(hybrid);
}

TEST_CASE("streams: no kind of edge may be left out") {
  Training training;
  training.world = 2;
  for (const auto& edge : {std::pair<int, int>{gather, compute},
                           {compute, gather},
                           {compute, reduce},
                           {reduce, compute},
                           {reduce, gather}}) {
    CAPTURE(edge.first);
    CAPTURE(edge.second);
    CHECK_FALSE(races_of(training, edge).empty());
  }
  // A step writes the slices that a gather of what nobody uses any more still sends.
  training.hooks.micro_step = [](Trainer& trainer, const TestModel& test, std::int64_t step,
                                 Elements micro_batch) {
    touch_all(trainer, test, step, micro_batch);
    trainer.engine().prefetch(test.blocks[0].index());
  };
  check_ordered(training);
  CHECK_FALSE(races_of(training, {gather, reduce}).empty());
}
