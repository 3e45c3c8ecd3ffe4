// The step: norm, clipping, divisor, non-finite gradients, reports.
#include <doctest/doctest.h>
#include <flatshard/core/error.hpp>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "rig.hpp"

using namespace sharder_test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const double quiet_nan = std::numeric_limits<double>::quiet_NaN();

/// Gradients of 0.5, but for one element of weight on one rank.
Fill with_value(double value, Rank where) {
  return [=](Rank rank, int, Parameter parameter, Elements i) {
    return rank == where && parameter.index == 0 && i == 200 ? value : 0.5;
  };
}
Fill ordinary() {
  return [](Rank, int, Parameter, Elements) { return 0.5; };
}

}  // namespace

TEST_CASE("norm, clipping and coefficient equal a double computation") {
  for (const StrategyName strategy : all_strategies)
    for (const double limit : {0.0, 0.25, 1e9})
      on_ranks(4, [&](Communicator& comm) {
        Rig rig(comm, strategy, PrecisionName::Fp64, {.max_grad_norm = limit});
        const auto value = [](Rank rank, int step, Parameter p, Elements i) {
          return (rank + 1) * 0.01 * static_cast<double>(i + 3 * p.index + step + 1);
        };
        double squares = 0;
        for (const int p : {0, 1})
          for (int i = 0; i < (p == 0 ? 240 : 2); ++i)
            squares += std::pow(10 * 0.01 * (i + 3 * p + 1) / 4, 2);  // mean over the ranks
        const StepReport report = rig.step(0, value).wait();
        const double norm = std::sqrt(squares);
        const double clip = limit == 0 ? 1 : std::min(1.0, limit / (norm + 1e-6));
        CHECK(report.grad_norm == doctest::Approx(norm).epsilon(1e-14));
        CHECK(report.clip_coefficient == doctest::Approx(clip).epsilon(1e-14));
        CHECK(!report.skipped);
        CHECK(rig.weight_of(rig.hand.weight, 4) ==
              doctest::Approx(1 - clip * 10 * 0.01 * 5 / 4).epsilon(1e-14));
      });
}

TEST_CASE("norm over mixed dtypes, frozen parameters and replicas counts each element once") {
  double alone = 0;
  for (const StrategyName strategy : all_strategies)
    for (const int world : {1, 4}) {
      Training training;
      training.strategy = strategy;
      training.world = world;
      training.micro_steps = 4 / world;
      training.steps = 1;
      training.options.accumulation = Accumulation::Tree;
      const double norm = train(training).reports[0].grad_norm;
      if (alone == 0) alone = norm;
      CHECK(norm == alone);  // bit for bit
    }
  CHECK(alone > 0);
}

TEST_CASE("the infinity norm is the largest magnitude, clipping follows it") {
  for (const StrategyName strategy : all_strategies)
    on_ranks(4, [&](Communicator& comm) {
      Rig rig(comm, strategy, PrecisionName::Fp32,
              {.max_grad_norm = 1, .norm = NormKind::Infinity});
      const StepReport report = rig.step(0, with_value(-38.0, 2)).wait();
      CHECK(report.grad_norm == (38.0 - 1.5) / 4);
      CHECK(report.clip_coefficient == doctest::Approx(1 / (36.5 / 4 + 1e-6)));
      const StepReport bad = [&] {
        const PendingReport pending = rig.step(1, with_value(quiet_nan, 1));
        CHECK_THROWS_AS(pending.wait(), NonFiniteError);
        return pending.wait();
      }();
      CHECK(bad.skipped);
    });
}

TEST_CASE("without clipping the norm is still reported, and a world of zeros is fine") {
  on_ranks(2, [](Communicator& comm) {
    Rig rig(comm, StrategyName::FullShard, PrecisionName::Fp32, {.max_grad_norm = 1});
    const StepReport report =
        rig.step(0, [](Rank, int, Parameter, Elements) { return 0.0; }).wait();
    CHECK(report.grad_norm == 0);
    CHECK(report.clip_coefficient == 1);
    CHECK(rig.weight_of(rig.hand.bias, 1) == 1);
  });
  on_ranks(2, [](Communicator& comm) {  // nothing trainable at all
    Model model;
    model.module("m").add("w", {4}, {.requires_grad = false});
    HostDevice device;
    const auto trainer = make_trainer(StrategyName::FullShard, PrecisionName::Fp32, comm, model,
                                      AdamW{}, {.device = &device});
    CHECK(trainer->step().wait().grad_norm == 0);
  });
}

TEST_CASE("fp64 gradients whose squares overflow are finite") {
  for (const StrategyName strategy : all_strategies)
    on_ranks(2, [&](Communicator& comm) {
      Rig rig(comm, strategy, PrecisionName::Fp64, {});
      const StepReport report = rig.step(0, with_value(1e200, 1)).wait();
      CHECK(!report.skipped);
      CHECK(report.error == StepError::None);
      CHECK(rig.weight_of(rig.hand.weight, 200) == doctest::Approx(-0.5e200));
      const PendingReport bad = rig.step(1, with_value(infinity, 0));
      CHECK_THROWS_AS(bad.wait(), NonFiniteError);
    });
}

TEST_CASE("a non-finite gradient on one rank: error, skip or apply, on all ranks alike") {
  for (const StrategyName strategy : all_strategies)
    for (const double bad : {quiet_nan, infinity, -infinity})
      for (const OnNonFinite policy : {OnNonFinite::Error, OnNonFinite::Skip, OnNonFinite::Apply})
        on_ranks(4, [&](Communicator& comm) {
          Rig rig(comm, strategy, PrecisionName::Bf16Mixed,
                  {.max_grad_norm = 1, .on_nonfinite = policy}, AdamW{});
          rig.step(0, ordinary()).wait();
          const std::vector<std::byte> before = rig.state();
          const PendingReport pending = rig.step(1, with_value(bad, 3));
          if (policy == OnNonFinite::Error) {
            const std::string message = message_of([&] { pending.wait(); });
            CHECK(contains(message, "step 2"));
            CHECK(contains(message, "nothing was updated"));
          }
          const StepReport report = pending.wait();  // an error is raised once
          CHECK(report.skipped == (policy != OnNonFinite::Apply));
          CHECK(!std::isfinite(report.grad_norm));
          if (policy != OnNonFinite::Apply) {
            CHECK(rig.state() == before);
            const StepReport next = rig.step(2, ordinary()).wait();
            CHECK(!next.skipped);
            CHECK(std::isfinite(next.grad_norm));
          } else {
            CHECK(!std::isfinite(rig.weight_of(rig.hand.weight, 200)));
          }
        });
}

TEST_CASE("a skipped step leaves time where it was: going on is as if it had not been") {
  std::vector<std::byte> with, without;
  for (const bool interrupted : {false, true})
    on_ranks(2, [&](Communicator& comm) {
      Rig rig(comm, StrategyName::HybridShard, PrecisionName::Fp32,
              {.on_nonfinite = OnNonFinite::Skip}, AdamW{});
      rig.step(0, ordinary()).wait();
      if (interrupted) rig.step(9, with_value(quiet_nan, 0)).wait();
      rig.step(1, ordinary()).wait();
      const auto state = rig.state();
      if (comm.rank() == 0) (interrupted ? with : without) = state;
    });
  CHECK(!with.empty());
  CHECK(with == without);
}

TEST_CASE("an error nobody asked for is raised by the step after the next, once") {
  on_ranks(2, [](Communicator& comm) {
    Rig rig(comm, StrategyName::FullShard, PrecisionName::Fp32, {});
    rig.step(0, with_value(quiet_nan, 1));
    rig.step(1, ordinary());
    rig.backward(2, ordinary());
    CHECK(contains(message_of([&] { rig.trainer->step(); }), "step 1"));
    CHECK(rig.trainer->step().wait().step == 3);  // the gradients of step 3 were not lost
    CHECK(rig.weight_of(rig.hand.bias, 0) == 0);
  });
}

TEST_CASE("reports are kept for the latest four steps") {
  on_ranks(2, [](Communicator& comm) {
    Rig rig(comm, StrategyName::FullShard, PrecisionName::Fp32, {});
    std::vector<PendingReport> reports;
    for (int step = 0; step < 6; ++step) reports.push_back(rig.step(step, ordinary()));
    for (std::size_t step = 2; step < 6; ++step)
      CHECK(reports[step].wait().step == static_cast<std::int64_t>(step) + 1);
    CHECK(contains(message_of([&] { reports[1].wait(); }), "step 2"));
  });
}

TEST_CASE("step() waits for the report of the step before the last and for nothing later") {
  on_ranks(1, [](Communicator& comm) {
    const Hand hand;
    const auto compute = make_host_stream(StreamForm::Threaded);
    HostDevice device({.form = StreamForm::Threaded});
    const auto late = make_trainer(StrategyName::NoShard, PrecisionName::Fp32, comm, hand.model,
                                   SGD{}, {.device = &device, .compute_stream = compute.get()});
    late->initialize(init::zeros{});
    std::atomic<bool> open{false};
    const auto backward = [&] {
      late->backward(hand.module, [&](const Views&) {
        compute->enqueue([&open] {
          while (!open) std::this_thread::yield();
        });
      });
    };
    backward();
    late->step();  // two steps may be issued although no gradient of the first is there
    backward();
    const PendingReport second = late->step();
    CHECK(!open);
    open = true;
    backward();
    CHECK(late->step().wait().step == 3);
    CHECK(second.wait().step == 2);
  });
}

TEST_CASE("the gradient divisor: from the host, from device memory, wrong ones") {
  for (const StrategyName strategy : all_strategies)
    on_ranks(2, [&](Communicator& comm) {
      Rig rig(comm, strategy, PrecisionName::Fp32, {});
      rig.step(0, ordinary()).wait();  // 1 - (0.5 + 0.5) / 2
      CHECK(rig.weight_of(rig.hand.weight, 14) == 0.5);
      rig.step(1, ordinary(), {.gradient_divisor = 4}).wait();
      CHECK(rig.weight_of(rig.hand.weight, 14) == 0.25);
      const double tokens = 8;
      const StepReport report =
          rig.step(2, ordinary(), {.gradient_divisor = 4, .device_gradient_divisor = &tokens})
              .wait();
      CHECK(rig.weight_of(rig.hand.weight, 14) == 0.125);
      CHECK(report.grad_norm == doctest::Approx(std::sqrt(242.0) / 8));
      for (const double wrong : {-1.0, infinity, quiet_nan, 0.0}) {
        const std::vector<std::byte> before = rig.state();
        const PendingReport pending = rig.step(3, ordinary(), {.device_gradient_divisor = &wrong});
        CHECK(contains(message_of([&] { pending.wait(); }), "divisor"));
        CHECK(rig.state() == before);
      }
    });
}

TEST_CASE("clipping bounds what a step moves") {
  for (const StrategyName strategy : all_strategies)
    on_ranks(4, [&](Communicator& comm) {
      Rig rig(comm, strategy, PrecisionName::Fp32, {.max_grad_norm = 0.5});
      const StepReport report = rig.step(0, with_value(100, 0)).wait();
      double moved = 0;
      for (Elements i = 0; i < 240; ++i)
        moved += std::pow(rig.weight_of(rig.hand.weight, i) - 1, 2);
      for (Elements i = 0; i < 2; ++i) moved += std::pow(rig.weight_of(rig.hand.bias, i) - 1, 2);
      CHECK(std::sqrt(moved) == doctest::Approx(0.5).epsilon(1e-5));
      CHECK(report.grad_norm > 20);
    });
}

TEST_CASE("bf16 accumulates in fp32: small gradients are not lost") {
  for (const StrategyName strategy : all_strategies)
    on_ranks(2, [&](Communicator& comm) {  // 1 + 511 * 2^-9 stays 1 in bf16
      Rig rig(comm, strategy, PrecisionName::Bf16Mixed, {.max_micro_steps = 257});
      for (int k = 0; k < 257; ++k) {
        rig.trainer->micro_step(k == 256);
        rig.backward(k, [&](Rank, int, Parameter, Elements) { return k == 0 ? 1.0 : 0x1p-9; });
      }
      const StepReport report = rig.trainer->step({.gradient_divisor = 2}).wait();
      CHECK(report.grad_norm == doctest::Approx(std::sqrt(242.0) * (1 + 256 * 0x1p-9)));
    });
}

TEST_CASE("a step in backward reports norm and non-finite gradients afterwards") {
  on_ranks(2, [](Communicator& comm) {
    Rig rig(comm, StrategyName::FullShard, PrecisionName::Fp32, {.step_in_backward = true});
    const StepReport good = rig.step(0, ordinary()).wait();
    CHECK(good.grad_norm == doctest::Approx(std::sqrt(242.0) / 2));
    CHECK(!good.skipped);
    const PendingReport bad = rig.step(1, with_value(infinity, 1));
    CHECK(contains(message_of([&] { bad.wait(); }), "may already have been updated"));
    CHECK(contains(message_of([&] {
                     rig.backward(2, ordinary());
                     rig.trainer->step({.gradient_divisor = 3});
                   }),
                   "gradient_divisor"));
  });
}

TEST_CASE("a hook adds other parallel dimensions' part to the norm, clipping follows") {
  for (const StrategyName strategy : all_strategies)
    for (const NormKind kind : {NormKind::Two, NormKind::Infinity})
      on_ranks(2, [&](Communicator& comm) {
        int calls = 0;
        const auto hook = [&](double* measure, NormKind found, StreamRef stream) {
          ++calls;
          CHECK(found == kind);
          host_stream(stream).enqueue([measure] { *measure = *measure * 4; });
        };
        Rig rig(comm, strategy, PrecisionName::Fp32,
                {.max_grad_norm = 0.5, .norm = kind, .norm_hook = hook});
        const StepReport report = rig.step(0, ordinary()).wait();
        const bool two = kind == NormKind::Two;
        CHECK(report.grad_norm == doctest::Approx(two ? std::sqrt(4 * 242.0) / 2 : 4 * 0.5));
        CHECK(report.clip_coefficient == doctest::Approx(0.5 / report.grad_norm));
        CHECK(calls == 1);
      });
}

TEST_CASE("the mean of ones is one, whatever they are divided by") {
  for (const int world : {1, 2, 3, 6, 7})
    for (const int micro_steps : {1, 8})
      on_ranks(world, [&](Communicator& comm) {
        Rig rig(comm, StrategyName::FullShard, PrecisionName::Fp32,
                {.max_micro_steps = micro_steps});
        for (int k = 0; k < micro_steps; ++k) {
          rig.trainer->micro_step(k + 1 == micro_steps);
          rig.backward(0, [](Rank, int, Parameter, Elements) { return 1.0; });
        }
        rig.trainer->step();
        CHECK(rig.weight_of(rig.hand.weight, 200) == 0);
      });
}
