// Prefetch: what is gathered before whose call, and how much is whole at once.
#include <doctest/doctest.h>
#include <flatshard/comm/faulty.hpp>
#include <flatshard/comm/recording.hpp>
#include <flatshard/core/error.hpp>

#include <algorithm>
#include <atomic>
#include <thread>

#include "training.hpp"

using namespace sharder_test;

namespace {

constexpr int count = 6;  // blocks

/// Blocks of equal size, one unit each.
struct Chain {
  Chain() {
    for (int block = 0; block < count; ++block) {
      blocks.push_back(model.module("b" + std::to_string(block)));
      blocks.back().add("w", {64});
    }
  }
  Model model;
  std::vector<Module> blocks;
};

/// How many gathers were issued when each call ran.
struct Seen {
  std::vector<std::size_t> forward, backward;  // by order of calls
};

Seen third_step(int ahead, BackwardPrefetch backward, Elements* peak = nullptr) {
  Seen seen;
  ThreadWorld(2).run([&](Communicator& inner) {
    RecordingCommunicator communicator(inner);
    const Chain chain;
    const auto trainer =
        make_trainer(StrategyName::FullShard, PrecisionName::Fp32, communicator, chain.model, SGD{},
                     {.prefetch_forward = ahead, .prefetch_backward = backward});
    trainer->initialize(init::zeros{});
    const auto gathers = [&] {
      const auto records = communicator.log().records();
      return static_cast<std::size_t>(
          std::count_if(records.begin(), records.end(), [](const CollectiveRecord& record) {
            return record.operation == Operation::AllGather && record.label != "norm";
          }));
    };
    for (int step = 0; step < 3; ++step) {
      communicator.log().clear();
      Seen mine;
      for (int block = 0; block < count; ++block)
        trainer->forward(chain.blocks[static_cast<std::size_t>(block)],
                         [&](const Views&) { mine.forward.push_back(gathers()); });
      for (int block = count; block-- > 0;)
        trainer->backward(chain.blocks[static_cast<std::size_t>(block)],
                          [&](const Views&) { mine.backward.push_back(gathers()); });
      trainer->step();
      CHECK(gathers() == 2 * count);  // none is wasted
      if (communicator.rank() == 0) seen = mine;
    }
    if (peak != nullptr && communicator.rank() == 0)
      *peak = trainer->engine().peak_gathered_elements();
  });
  return seen;
}

}  // namespace

TEST_CASE("forward gathers as many units ahead as it is told") {
  for (const int ahead : {0, 1, 2, 3}) {
    const Seen seen = third_step(ahead, BackwardPrefetch::None);
    CAPTURE(ahead);
    for (int call = 0; call < count; ++call)
      CHECK(seen.forward[static_cast<std::size_t>(call)] ==
            static_cast<std::size_t>(std::min(call + 1 + ahead, count)));
    for (int call = 0; call < count; ++call)
      CHECK(seen.backward[static_cast<std::size_t>(call)] ==
            static_cast<std::size_t>(count + call + 1));
  }
}

TEST_CASE("backward gathers the next unit before a unit's work, after it, or when it is called") {
  const Seen pre = third_step(0, BackwardPrefetch::Pre);
  const Seen post = third_step(0, BackwardPrefetch::Post);
  const Seen none = third_step(0, BackwardPrefetch::None);
  for (int call = 0; call < count; ++call) {
    const auto at = static_cast<std::size_t>(call);
    CHECK(pre.backward[at] == static_cast<std::size_t>(std::min(count + call + 2, 2 * count)));
    CHECK(post.backward[at] == static_cast<std::size_t>(count + call + 1));
    CHECK(none.backward[at] == static_cast<std::size_t>(count + call + 1));
  }
}

TEST_CASE("what is whole at once is the unit in use and those ahead") {
  for (const int ahead : {0, 1, 2, 3}) {
    Elements peak = 0;
    third_step(ahead, BackwardPrefetch::None, &peak);
    CHECK(peak == 64 * (1 + ahead));
  }
  Elements peak = 0;
  third_step(0, BackwardPrefetch::Pre, &peak);
  CHECK(peak == 128);
}

TEST_CASE("a surprise costs a gather and nothing else") {
  ThreadWorld(2).run([&](Communicator& communicator) {
    Model model;
    Module root = model.root({.uses = 2});  // dedicated: kept for the step
    root.add("r", {64});
    std::vector<Module> blocks;
    std::vector<Parameter> weights;
    for (int block = 0; block < 5; ++block) {
      blocks.push_back(model.module("b" + std::to_string(block)));
      weights.push_back(blocks.back().add("w", {64}));
    }
    Sharder<strategy::FullShard, precision::Full<float>> sharder(communicator, model, SGD{});
    sharder.initialize(init::uniform{0, 1, 3});
    std::vector<float> expected;
    for (std::size_t block = 0; block < 5; ++block)
      sharder.summon_full(blocks[block],
                          [&](auto full) { expected.push_back(full[weights[block]][9]); });
    // Everything that fits is gathered ahead, then another unit is called.
    sharder.prefetch(root);
    for (const Module& block : blocks) sharder.prefetch(block);
    for (const std::size_t block : {4U, 2U, 0U, 3U, 1U})
      sharder.forward(blocks[block],
                      [&](auto values) { CHECK(values[weights[block]][9] == expected[block]); });
    for (const std::size_t block : {3U, 0U, 4U, 1U, 2U})
      sharder.backward(blocks[block], [&](auto values, auto) {
        CHECK(values[weights[block]][9] == expected[block]);
      });
    CHECK(sharder.step().wait().step == 1);
  });
}

TEST_CASE("calls may nest as far as the ring goes") {
  ThreadWorld(2).run([&](Communicator& communicator) {
    const Chain chain;
    const auto trainer = make_trainer(StrategyName::FullShard, PrecisionName::Fp32, communicator,
                                      chain.model, SGD{}, {.prefetch_forward = 1});
    trainer->initialize(init::zeros{});
    for (int step = 0; step < 2; ++step) {
      trainer->forward(chain.blocks[0], [&](const Views&) {
        trainer->forward(chain.blocks[1], [&](const Views&) {});
        trainer->forward(chain.blocks[2], [&](const Views&) {});
      });
      trainer->backward(chain.blocks[0], [&](const Views&) {
        trainer->backward(chain.blocks[2], [&](const Views&) {});
        trainer->backward(chain.blocks[1], [&](const Views&) {
          CHECK(contains(
              message_of([&] { trainer->backward(chain.blocks[3], [&](const Views&) {}); }), "b3"));
        });
      });
      CHECK(trainer->step().wait().step == step + 1);
    }
  });
}

namespace {

/// One module of 200 weights on two ranks whose collectives are slow, so that whatever should have
/// waited for them has not.
void with_slow_collectives(StrategyName strategy,
                           const std::function<void(Trainer&, Module, Parameter)>& act) {
  ThreadWorld(2).run([&](Communicator& inner) {
    FaultyCommunicator communicator(
        inner, {.delay = std::chrono::milliseconds(1), .delay_every = 1, .on_stream = true});
    Model model;
    Module module = model.module("m");
    const Parameter weight = module.add("w", {200});
    HostDevice device({.form = StreamForm::Threaded});
    const auto trainer = make_trainer(strategy, PrecisionName::Fp32, communicator, model,
                                      SGD{.lr = 1}, {.device = &device});
    trainer->initialize(init::constant{100});
    act(*trainer, module, weight);
  });
}

void add_ones(const Values& gradients) {
  for (Elements i = 0; i < gradients.count; ++i) gradients.set(i, gradients.get(i) + 1);
}

void check_weights(Trainer& trainer, Module module, Parameter weight, double value) {
  trainer.summon_full(module, [&](const Views& views) {
    for (Elements i = 0; i < 200; ++i) REQUIRE(views.weights(weight).get(i) == value);
  });
}

}  // namespace

TEST_CASE("gradients are not zeroed while the step before still reads them") {
  for (const StrategyName strategy : all_strategies)
    with_slow_collectives(strategy, [](Trainer& trainer, Module module, Parameter weight) {
      Engine& engine = trainer.engine();
      for (int step = 0; step < 4; ++step) {  // without a gather that would wait for the step
        engine.open_gradients(module.index());
        add_ones({engine.gradient(weight.index, module.index()), DType::Float32, 200});
        engine.reduce(module.index());
        trainer.step();
      }
      check_weights(trainer, module, weight, 96);
    });
}

TEST_CASE("a dropped step's reductions do not reach the next step's gradients") {
  for (const StrategyName strategy : all_strategies)
    with_slow_collectives(strategy, [](Trainer& trainer, Module module, Parameter weight) {
      for (int step = 0; step < 3; ++step) {
        const auto backward = [&] {
          trainer.backward(module, [&](const Views& views) { add_ones(views.gradients(weight)); });
        };
        backward();
        trainer.discard_step();
        backward();
        trainer.step();
      }
      check_weights(trainer, module, weight, 97);
    });
}

TEST_CASE("parameters do not change while the compute stream still reads them") {
  for (const StrategyName strategy : all_strategies) {
    std::atomic<int> wrong{0};
    ThreadWorld(2).run([&](Communicator& communicator) {
      const auto compute = make_host_stream(StreamForm::Threaded);
      Model model;
      Module module = model.module("m");
      const Parameter weight = module.add("w", {200});
      HostDevice device({.form = StreamForm::Threaded});
      const auto trainer =
          make_trainer(strategy, PrecisionName::Fp32, communicator, model, SGD{.lr = 1},
                       {.device = &device, .compute_stream = compute.get()});
      trainer->initialize(init::constant{100});
      for (int step = 0; step < 3; ++step) {
        trainer->backward(module, [&](const Views& views) {
          compute->enqueue([gradients = views.gradients(weight)] { add_ones(gradients); });
        });
        trainer->evaluate(module, [&](const Views& views) {
          compute->enqueue([&wrong, step, weights = views.weights(weight)] {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            for (Elements i = 0; i < 200; ++i) wrong += weights.get(i) != 100 - step;
          });
        });
        trainer->step();
      }
      trainer->engine().synchronize();
    });
    CAPTURE(std::string(name_of(strategy)));
    CHECK(wrong == 0);
  }
}

TEST_CASE("a step may come while what was gathered ahead is not there yet") {
  for (const StrategyName strategy :
       {StrategyName::FullShard, StrategyName::FullShardSecondary, StrategyName::ShardGradOp})
    ThreadWorld(2).run([&](Communicator& inner) {
      FaultyCommunicator communicator(
          inner, {.delay = std::chrono::milliseconds(1), .delay_every = 1, .on_stream = true});
      const Chain chain;
      HostDevice device({.form = StreamForm::Threaded});
      const auto trainer = make_trainer(strategy, PrecisionName::Fp32, communicator, chain.model,
                                        SGD{.weight_decay = 0.5}, {.device = &device});
      trainer->initialize(init::constant{1});
      for (int step = 0; step < 3; ++step) {
        trainer->forward(chain.blocks[0], [](const Views&) {});
        trainer->engine().prefetch(chain.blocks[2].index());
        trainer->step();
      }
      CHECK(!trainer->step().wait().skipped);
    });
}
