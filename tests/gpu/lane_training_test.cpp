// Trainings whose host half runs in a lane, on a device that is not there: the bits of none.
#include <doctest/doctest.h>

#include "fake_lane_device.hpp"
#include "offload.hpp"

using namespace sharder_test;

namespace {

constexpr std::array places{all_on_host, optimizer_on_host, parameters_on_host};

void check_all(const Training& training) {
  CAPTURE(to_string(training));
  const Trained expected = train(training);
  for (const OffloadTraits& offload : places) {
    CAPTURE(to_string(offload));
    Training found = training;
    found.options.offload = offload;
    found.hooks.device = [](const HostOptions&, Rank) {
      return std::make_unique<FakeLaneDevice>();
    };
    const Trained trained = train(found);
    CHECK(trained.hash() == expected.hash());
    CHECK(trained.reports == expected.reports);
  }
}

}  // namespace

TEST_CASE("lane: every strategy and place, clipped, over micro-steps") {
  for (const StrategyName strategy : all_strategies)
    for (const int world : {1, 2}) {
      Training training;
      training.strategy = strategy;
      training.precision = PrecisionName::Bf16Mixed;
      training.world = world;
      training.micro_steps = 3 - world;
      training.options.max_grad_norm = 0.5;
      training.options.accumulation = Accumulation::Tree;
      check_all(training);
    }
}

TEST_CASE("lane: a step in backward") {
  for (const StrategyName strategy : {StrategyName::ShardOptimizer, StrategyName::FullShard})
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed}) {
      Training training;
      training.strategy = strategy;
      training.precision = precision;
      training.world = 2;
      training.steps = 20;
      training.options.step_in_backward = true;
      check_all(training);
    }
}
