// Calls in the wrong place and ranks that disagree are refused with a sentence, and change nothing.
#include <doctest/doctest.h>
#include <flatshard/flatshard.hpp>

#include <functional>
#include <string>

namespace {

using namespace flatshard;
using Trainer = Sharder<strategy::FullShard, precision::Full<float>, offload::None>;

struct OneModule {
  explicit OneModule(std::int64_t elements = 5) { weight = module.add("weight", {elements}); }
  Model model;
  Module module = model.module("a");
  Parameter weight;
};

/// What `call` throws as UsageError; empty: nothing.
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

/// One step whose gradient is 8 everywhere; returns the parameter's first element afterwards.
float train(Trainer& trainer, OneModule& one) {
  trainer.forward(one.module, [](auto) {});
  trainer.backward(one.module, [&](auto, auto gradients) {
    for (float& gradient : gradients[one.weight].flat()) gradient = 8;
  });
  trainer.step().wait();
  float first = 0;
  trainer.summon_full(one.module, [&](auto full) { first = full[one.weight][0]; });
  return first;
}

TEST_CASE("a call that changes parameters or the step is refused inside forward and backward") {
  ThreadWorld(2).run([](Communicator& communicator) {
    OneModule one;
    Trainer trainer(communicator, one.model, SGD{.lr = 1});
    trainer.initialize(init::constant{1});
    const std::function<void()> calls[] = {
        [&] { trainer.step(); },
        [&] { trainer.discard_step(); },
        [&] { trainer.micro_step({}); },
        [&] { trainer.initialize(init::constant{2}); },
        [&] {
          trainer.summon_full(
              one.module, [](auto) {}, true);
        },
    };
    for (const auto& call : calls) {
      trainer.forward(one.module, [&](auto weights) {
        CHECK(contains(refusal(call), "inside a forward or backward function"));
        CHECK(weights[one.weight][0] == 1);
      });
      trainer.backward(one.module, [&](auto, auto gradients) {
        CHECK(contains(refusal(call), "inside a forward or backward function"));
        gradients[one.weight][0] = 3;
      });
      trainer.discard_step();
    }
    CHECK(train(trainer, one) == 1 - 8);
  });
}

TEST_CASE("parameters cannot be set while a gather handle shows them") {
  ThreadWorld(2).run([](Communicator& communicator) {
    OneModule one;
    Trainer trainer(communicator, one.model, SGD{.lr = 1});
    trainer.initialize(init::constant{1});
    {
      const auto gathered = trainer.gather(one.module);
      const auto again = [&] { trainer.initialize(init::constant{2}); };
      CHECK(contains(refusal(again), "while unit 'a' is held"));
      CHECK(gathered[one.weight][0] == 1);
    }
    CHECK(train(trainer, one) == 1 - 8);
  });
}

/// What every rank is told when rank 1 differs.
void check_disagreement(const std::function<void(Communicator&, bool differs)>& construct) {
  ThreadWorld(3).run([&](Communicator& communicator) {
    const auto call = [&] { construct(communicator, communicator.rank() == 1); };
    CHECK(contains(refusal(call), "rank 1 was given another model, policy or options than rank 0"));
  });
}

TEST_CASE("ranks that were given different things are told at construction") {
  SUBCASE("a shape that fits the same slices") {
    check_disagreement([](Communicator& communicator, bool differs) {
      OneModule one(differs ? 23 : 3);
      Trainer(communicator, one.model, SGD{});
    });
  }
  SUBCASE("when units are updated") {
    check_disagreement([](Communicator& communicator, bool differs) {
      OneModule one;
      Trainer(communicator, one.model, SGD{}, {.step_in_backward = differs});
    });
  }
  SUBCASE("an option that changes no collective") {
    check_disagreement([](Communicator& communicator, bool differs) {
      OneModule one;
      Trainer(communicator, one.model, SGD{}, {.max_grad_norm = differs ? 1.0 : 2.0});
    });
  }
  SUBCASE("another optimizer with as many states") {
    check_disagreement([](Communicator& communicator, bool differs) {
      OneModule one;
      Trainer(communicator, one.model, differs ? Optimizer(SGD{}) : Optimizer(Lion{}));
    });
  }
}

TEST_CASE("a loss scale out of range is refused with the Plan") {
  using Scaled = Sharder<strategy::FullShard, precision::Fp16Mixed, offload::None>;
  OneModule one;
  Options options;
  options.loss_scale = LossScaler::torch(1e300).settings;
  CHECK_THROWS_AS(Scaled::plan_for(one.model, SGD{}, 2, options), UsageError);
}

}  // namespace
