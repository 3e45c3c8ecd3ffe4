// Loss scaling inside steps: overflow skips everywhere and changes nothing, the scale of backward
// is the one that is divided out, the minimum is an error.
#include <doctest/doctest.h>
#include <flatshard/core/error.hpp>

#include <cmath>

#include "rig.hpp"

using namespace sharder_test;

namespace {

constexpr double huge = 1e30;  // infinite in fp16, whatever the scale

Fill overflow_on(Rank where) {
  return [where](Rank rank, int, Parameter parameter, Elements i) {
    return rank == where && parameter.index == 0 && i == 200 ? huge : 0.5;
  };
}
Fill ordinary() {
  return [](Rank, int, Parameter, Elements) { return 0.5; };
}
/// 1 of every rank; the mean moves a weight by lr.
Fill ones() {
  return [](Rank, int, Parameter, Elements) { return 1.0; };
}

}  // namespace

TEST_CASE("an overflow on one rank is skipped on all, halves the scale, and training recovers") {
  for (const StrategyName strategy : all_strategies)
    on_ranks(4, [&](Communicator& comm) {
      Rig rig(comm, strategy, PrecisionName::Fp16Torch,
              {.max_grad_norm = 1, .loss_scale = LossScaler::torch(1024).settings}, AdamW{});
      CHECK(*rig.trainer->loss_scale() == 1024);
      StepReport report = rig.step(0, ordinary()).wait();
      CHECK(!report.skipped);
      CHECK(report.scale_used == 1024);
      CHECK(report.grad_norm == doctest::Approx(std::sqrt(242.0) / 2));
      const std::vector<std::byte> before = rig.state();
      report = rig.step(1, overflow_on(2)).wait();
      CHECK(report.skipped);
      CHECK(report.error == StepError::None);
      CHECK(report.scale_used == 1024);
      CHECK(report.scale_next == 512);
      CHECK(rig.state() == before);
      CHECK(*rig.trainer->loss_scale() == 512);
      report = rig.step(2, ordinary()).wait();
      CHECK(!report.skipped);
      CHECK(report.scale_used == 512);
      CHECK(report.grad_norm == doctest::Approx(std::sqrt(242.0) / 2));
      CHECK(rig.weight_of(rig.hand.weight, 200) < 0.999);
    });
}

TEST_CASE("a skipped overflow leaves no trace but the scale: same bits at the same scale") {
  std::vector<std::vector<std::byte>> states(2);
  for (const bool interrupted : {false, true})
    on_ranks(2, [&](Communicator& comm) {
      Rig rig(comm, StrategyName::FullShard, PrecisionName::Fp16Torch,
              {.loss_scale = LossScaler::torch(interrupted ? 512 : 256).settings}, AdamW{});
      if (interrupted) CHECK(rig.step(9, overflow_on(1)).wait().skipped);
      for (int step = 0; step < 3; ++step) CHECK(!rig.step(step, ordinary()).wait().skipped);
      const auto state = rig.state();
      if (comm.rank() == 0) states[interrupted] = state;
    });
  CHECK(!states[0].empty());
  CHECK(states[0] == states[1]);
}

TEST_CASE("the step on which the scale grows unscales by the scale that backward used") {
  for (const PrecisionName precision : {PrecisionName::Fp16Torch, PrecisionName::Fp16DeepSpeed})
    for (const StrategyName strategy : {StrategyName::NoShard, StrategyName::FullShard})
      on_ranks(2, [&](Communicator& comm) {
        const ScaleSettings settings = precision == PrecisionName::Fp16Torch
                                           ? LossScaler::torch(64, 2, 0.5, 2).settings
                                           : LossScaler::deepspeed(64, 1).settings;
        Rig rig(comm, strategy, precision, {.loss_scale = settings}, SGD{.lr = 0.0625});
        double scale = 64;
        int grew = 0;
        for (int step = 0; step < 6; ++step) {
          const StepReport report = rig.step(step, ones()).wait();
          CHECK(report.scale_used == scale);
          CHECK(rig.weight_of(rig.hand.weight, 200) == 1 - 0.0625 * (step + 1));
          CHECK(report.grad_norm == doctest::Approx(std::sqrt(242.0)));
          grew += report.scale_next == 2 * scale;
          scale = report.scale_next;
          CHECK(static_cast<double>(*rig.trainer->loss_scale()) == scale);
        }
        CHECK(grew >= 3);
      });
}

TEST_CASE("DeepSpeed's hysteresis: the first overflow only spends it") {
  on_ranks(2, [](Communicator& comm) {
    Rig rig(comm, StrategyName::HybridShard, PrecisionName::Fp16DeepSpeed,
            {.loss_scale = LossScaler::deepspeed(1024, 1000, 2).settings});
    CHECK(rig.step(0, overflow_on(0)).wait().scale_next == 1024);
    CHECK(rig.step(1, overflow_on(1)).wait().scale_next == 512);
    CHECK(rig.step(2, overflow_on(1)).wait().scale_next == 256);
    const StepReport report = rig.step(3, ordinary()).wait();
    CHECK(!report.skipped);
    CHECK(report.scale_next == 256);
  });
}

TEST_CASE("a static scale never moves, and overflow is skipped all the same") {
  on_ranks(2, [](Communicator& comm) {
    Rig rig(comm, StrategyName::ShardGradOp, PrecisionName::Fp16Static,
            {.loss_scale = LossScaler::constant(128).settings});
    const auto before = rig.state();
    const StepReport report = rig.step(0, overflow_on(1)).wait();
    CHECK(report.skipped);
    CHECK(report.scale_next == 128);
    CHECK(rig.state() == before);
    CHECK(!rig.step(1, ordinary()).wait().skipped);
  });
}

TEST_CASE("an overflow at the minimum scale is an error on every rank, nothing is updated") {
  for (const PrecisionName precision : {PrecisionName::Fp16Torch, PrecisionName::Fp16DeepSpeed})
    on_ranks(2, [&](Communicator& comm) {
      const bool torch = precision == PrecisionName::Fp16Torch;
      ScaleSettings settings =
          torch ? LossScaler::torch(4).settings : LossScaler::deepspeed(4, 1000, 1, 2).settings;
      settings.minimum = 2;
      Rig rig(comm, StrategyName::FullShard, precision, {.loss_scale = settings});
      CHECK(rig.step(0, overflow_on(1)).wait().scale_next == 2);
      const auto before = rig.state();
      const PendingReport pending = rig.step(1, overflow_on(1));
      const std::string message = message_of([&] { pending.wait(); });
      CHECK(contains(message, "minimum"));
      CHECK(contains(message, "2"));
      CHECK(pending.wait().error == StepError::ScaleAtMinimum);
      CHECK(rig.state() == before);
      CHECK(!rig.step(2, ordinary()).wait().skipped);  // and the run may go on
    });
}

TEST_CASE("without loss scaling the scale is one") {
  on_ranks(1, [](Communicator& comm) {
    Rig rig(comm, StrategyName::NoShard, PrecisionName::Bf16Mixed, {});
    CHECK(*rig.trainer->loss_scale() == 1);
    CHECK(rig.step(0, ordinary()).wait().scale_used == 1);
  });
}

TEST_CASE("the fp16 sum over ranks is formed in fp32: it overflows where its result does") {
  for (const StrategyName strategy : all_strategies)
    on_ranks(4, [&](Communicator& comm) {
      Rig rig(comm, strategy, PrecisionName::Fp16Static,
              {.loss_scale = LossScaler::constant(1).settings}, SGD{.lr = 0});
      const auto fill = [](Rank rank, int step, Parameter, Elements) {
        return step == 0 ? (rank < 2 ? 60000.0 : -60000.0) : 60000.0;
      };
      const StepReport fits = rig.step(0, fill).wait();  // 60000 + 60000 - 60000 - 60000
      CHECK(!fits.skipped);
      CHECK(fits.grad_norm == 0);
      CHECK(rig.step(1, fill).wait().skipped);
    });
}
