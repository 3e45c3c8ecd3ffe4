// A step's calls: how many micro-steps, which modules, in what order, how often.
#include <doctest/doctest.h>
#include <flatshard/core/error.hpp>

#include <algorithm>

#include "random.hpp"
#include "training.hpp"

using namespace sharder_test;

namespace {

Training training_of(StrategyName strategy, int world = 2) {
  Training training;
  training.strategy = strategy;
  training.world = world;
  training.options.max_grad_norm = 0.5;
  training.options.accumulation = Accumulation::Tree;
  training.options.reduce_moment = ReduceMoment::Micro;
  return training;
}

/// All strategies leave the same bits; returns them.
template <class Change>
Trained same_everywhere(Change&& change) {
  Trained first;
  for (const StrategyName strategy : all_strategies) {
    Training training = training_of(strategy);
    change(training);
    CAPTURE(to_string(training));
    const Trained trained = train(training);
    CHECK(trained.replicas_agree);
    if (strategy == all_strategies.front()) first = trained;
    CHECK(trained.hash() == first.hash());
  }
  return first;
}

/// Every rank's Sharder before any step.
void with_trainer(Training training, const std::function<void(Trainer&, const TestModel&)>& act) {
  training.steps = 0;
  training.hooks.before_training = [&](Trainer& trainer, Communicator&) {
    act(trainer, TestModel(training.model));
  };
  train(training);
}

}  // namespace

TEST_CASE("the count of micro-steps may change from step to step") {
  const std::array counts{3, 1, 4, 2};
  const Trained varied = same_everywhere([&](Training& training) {
    training.micro_steps = 4;
    training.steps = 4;
    training.hooks.micro_steps = [&](int step) { return counts[static_cast<std::size_t>(step)]; };
  });
  // and nothing is left of longer steps in shorter ones
  Training one = training_of(StrategyName::FullShard);
  one.steps = 1;
  Training after = one;
  one.micro_steps = 1;
  after.options.max_micro_steps = 4;
  CHECK(train(one).masters == train(after).masters);
  CHECK(varied.reports.size() == 4);
}

TEST_CASE("step() wants the last micro-step announced, and can go on when it is") {
  Training training = training_of(StrategyName::FullShard);
  training.micro_steps = 2;
  with_trainer(training, [](Trainer& trainer, const TestModel& test) {
    trainer.micro_step(false);
    run_micro_step(trainer, test, 0, 0);
    CHECK(contains(message_of([&] { trainer.step(); }), "last"));
    trainer.micro_step(true);
    run_micro_step(trainer, test, 0, 1);
    CHECK(contains(message_of([&] { trainer.micro_step(true); }), "call step() first"));
    CHECK(trainer.step().wait().step == 1);
  });
}

TEST_CASE("too many micro-steps name the limit") {
  Training training = training_of(StrategyName::FullShard);
  training.micro_steps = 2;
  with_trainer(training, [](Trainer& trainer, const TestModel& test) {
    trainer.micro_step(false);
    run_micro_step(trainer, test, 0, 0);
    trainer.micro_step(false);
    run_micro_step(trainer, test, 0, 1);
    const std::string message = message_of([&] { trainer.micro_step(true); });
    CHECK(contains(message, "max_micro_steps 2"));
    trainer.discard_step();
    trainer.micro_step(true);
    run_micro_step(trainer, test, 0, 0);
    CHECK(trainer.step().wait().step == 1);
  });
}

TEST_CASE("micro_batch numbers every micro-batch of the step once") {
  for (const ReduceMoment moment :
       {ReduceMoment::Micro, ReduceMoment::Boundary, ReduceMoment::ReplicaBoundary})
    for (const int micro_steps : {1, 2, 3}) {
      Training training = training_of(StrategyName::HybridShard, 4);
      training.options.reduce_moment = moment;
      training.micro_steps = micro_steps;
      training.steps = 0;
      std::array<Elements, 12> seen{};
      std::mutex mutex;
      training.hooks.before_training = [&](Trainer& trainer, Communicator& communicator) {
        const std::lock_guard lock(mutex);
        const int r = communicator.rank(), group = trainer.plan().shard_group;
        for (int k = 0; k < micro_steps; ++k) {
          const Elements index = trainer.micro_batch(k, micro_steps);
          ++seen[static_cast<std::size_t>(index)];
          if (moment == ReduceMoment::Micro) CHECK(index == k * 4 + r);
          if (moment == ReduceMoment::Boundary) CHECK(index == r * micro_steps + k);
          if (moment == ReduceMoment::ReplicaBoundary)
            CHECK(index == r / group * group * micro_steps + k * group + r % group);
        }
        CHECK(contains(message_of([&] { trainer.micro_batch(micro_steps, micro_steps); }),
                       "does not exist"));
      };
      train(training);
      for (int i = 0; i < 12; ++i)
        CHECK(seen[static_cast<std::size_t>(i)] == (i < 4 * micro_steps));
    }
}

TEST_CASE("an unused module has a zero gradient, on every strategy alike") {
  const std::array forward{0, 1, 2, 3, 5}, backward{5, 3, 2, 1, 0};  // without the last block
  const auto without = [&](Training& training) {
    training.micro_steps = 2;
    training.hooks.micro_step = [&](Trainer& trainer, const TestModel& test, std::int64_t step,
                                    Elements micro_batch) {
      if (step == 1) return run_calls(trainer, test, step, micro_batch, forward, backward);
      run_micro_step(trainer, test, step, micro_batch);
    };
  };
  const Trained unused = same_everywhere(without);
  // The same with a call of the last block's backward that adds nothing.
  const Trained zero = same_everywhere([&](Training& training) {
    without(training);
    training.hooks.micro_step = [&](Trainer& trainer, const TestModel& test, std::int64_t step,
                                    Elements micro_batch) {
      if (step == 1) trainer.backward(test.blocks[2], [](const Views&) {});
      if (step == 1) return run_calls(trainer, test, step, micro_batch, forward, backward);
      run_micro_step(trainer, test, step, micro_batch);
    };
  });
  CHECK(unused.hash() == zero.hash());
}

TEST_CASE("a module that asks for it is not updated when unused, and its time stands still") {
  const std::array forward{0, 1, 2, 3, 5}, backward{5, 3, 2, 1, 0};
  const auto run = [&](bool skip, int skipped_step) {
    return same_everywhere([=, &forward, &backward](Training& training) {
      training.model.skip_when_unused = skip;
      training.options.max_grad_norm = 0;
      training.hooks.micro_step = [=, &forward, &backward](Trainer& trainer, const TestModel& test,
                                                           std::int64_t step, Elements batch) {
        if (step == skipped_step) return run_calls(trainer, test, step, batch, forward, backward);
        run_micro_step(trainer, test, step, batch);
      };
    });
  };
  const TestModel test;
  const std::array last_block{test.weights[2], test.biases[2], test.norm};
  const auto at = [](Parameter parameter) { return static_cast<std::size_t>(parameter.index); };
  Trained before, after;
  for (const StrategyName strategy : all_strategies) {  // unused in the last step
    Training training = training_of(strategy);
    training.model.skip_when_unused = true;
    training.steps = 2;
    before = train(training);
    training.steps = 3;
    training.hooks.micro_step = [&](Trainer& trainer, const TestModel& model, std::int64_t step,
                                    Elements batch) {
      if (step == 2) return run_calls(trainer, model, step, batch, forward, backward);
      run_micro_step(trainer, model, step, batch);
    };
    after = train(training);
    for (const Parameter parameter : last_block) {
      CHECK(after.masters[at(parameter)] == before.masters[at(parameter)]);
      CHECK(after.states[0][at(parameter)] == before.states[0][at(parameter)]);
      CHECK(after.states[1][at(parameter)] == before.states[1][at(parameter)]);
    }
    CHECK(after.masters[at(test.weights[0])] != before.masters[at(test.weights[0])]);
  }
  // Unused first: its second step is its first update, with the bias correction of one.
  const Trained late = run(true, 0);
  const Trained counted = run(false, 0);
  CHECK(late.masters[at(test.weights[2])] != counted.masters[at(test.weights[2])]);
  // Unused in step 0, used in step 1: as if step 1 had been the first.
  Training first = training_of(StrategyName::FullShard);
  first.model.skip_when_unused = true;
  first.options.max_grad_norm = 0;
  first.steps = 1;
  first.hooks.micro_step = [](Trainer& trainer, const TestModel& model, std::int64_t step,
                              Elements batch) { run_micro_step(trainer, model, step + 1, batch); };
  Training second = first;
  second.steps = 2;
  second.hooks.micro_step = [&](Trainer& trainer, const TestModel& model, std::int64_t step,
                                Elements batch) {
    if (step == 0) return run_calls(trainer, model, step, batch, forward, backward);
    run_micro_step(trainer, model, step, batch);
  };
  const Trained from_first = train(first), from_second = train(second);
  for (const Parameter parameter : last_block)
    CHECK(from_second.masters[at(parameter)] == from_first.masters[at(parameter)]);
  // Used always: the option changes nothing.
  CHECK(run(true, -1).hash() == run(false, -1).hash());
}

TEST_CASE("use in a dropped step is no use") {
  const std::array forward{0, 1, 2, 3, 5}, backward{5, 3, 2, 1, 0};
  for (const StrategyName strategy : all_strategies) {
    Training training = training_of(strategy);
    training.model.skip_when_unused = true;
    training.hooks.micro_step = [&](Trainer& trainer, const TestModel& test, std::int64_t step,
                                    Elements batch) {
      if (step == 1) return run_calls(trainer, test, step, batch, forward, backward);
      run_micro_step(trainer, test, step, batch);
    };
    const Trained plain = train(training);
    training.hooks.before_step = [](Trainer& trainer, Communicator&, int step) {
      if (step != 1) return;
      trainer.micro_step(true);
      run_micro_step(trainer, TestModel({.skip_when_unused = true}), 9, 9);
      trainer.discard_step();
    };
    CHECK(train(training).hash() == plain.hash());
  }
}

TEST_CASE("an unused module that promised to overwrite its gradients has zero ones all the same") {
  const std::array forward{0, 2, 3, 5}, backward{5, 3, 2, 0};  // without both that promise
  const auto run = [&](bool overwrites) {
    return same_everywhere([&](Training& training) {
      training.model.backward_overwrites = overwrites;
      training.hooks.micro_step = [&](Trainer& trainer, const TestModel& test, std::int64_t step,
                                      Elements batch) {
        if (step == 1) return run_calls(trainer, test, step, batch, forward, backward);
        run_micro_step(trainer, test, step, batch);
      };
    });
  };
  CHECK(run(true).hash() == run(false).hash());
}

TEST_CASE("a unit of used and unused modules that skip is cut by module") {
  for (const StrategyName strategy : all_strategies) {
    Training training = training_of(strategy);
    training.model.skip_when_unused = true;
    training.options.wrap = wrap::all_in_one();
    Training plain = training_of(strategy);
    plain.model.skip_when_unused = true;
    CHECK(train(training).hash() == train(plain).hash());
  }
}

TEST_CASE("a tied storage that only one of its modules uses") {
  const std::array forward{0, 1, 2, 3, 4}, backward{4, 3, 2, 1, 0};  // without the head
  same_everywhere([&](Training& training) {
    training.micro_steps = 2;
    training.hooks.micro_step = [&](Trainer& trainer, const TestModel& test, std::int64_t step,
                                    Elements micro_batch) {
      if (step == 1) return run_calls(trainer, test, step, micro_batch, forward, backward);
      run_micro_step(trainer, test, step, micro_batch);
    };
  });
}

TEST_CASE("a backward after the unit was reduced says how to declare it") {
  for (const WrapPolicy& wrap : {wrap::each_module(), wrap::by_prefix({"h"})}) {
    Training training = training_of(StrategyName::FullShard);
    training.options.wrap = wrap;
    with_trainer(training, [](Trainer& trainer, const TestModel& test) {
      std::array<double, 8> activations{};
      for (const int call : {0, 1, 2, 3, 4, 5})
        run_forward(trainer, test, {0, 0, &activations, call});
      for (const int call : {5, 4, 3, 2, 1})
        run_backward(trainer, test, {0, 0, &activations, call});
      const std::string message = message_of([&] {
        run_backward(trainer, test, {0, 0, &activations, 1});
      });
      CHECK(contains(message, "'h.0'"));
      CHECK(contains(message, "uses"));
      run_backward(trainer, test, {0, 0, &activations, 0});  // the step goes on
    });
  }
}

TEST_CASE("modules may come in another order in every step") {
  auto random = flatshard_test::generator(2);
  std::vector<std::array<int, 4>> orders;
  for (int step = 0; step < 4; ++step) {
    std::array order{1, 2, 3, 4};
    std::shuffle(order.begin(), order.end(), random);
    orders.push_back(order);
  }
  for (const BackwardPrefetch prefetch : {BackwardPrefetch::Pre, BackwardPrefetch::Post})
    same_everywhere([&](Training& training) {
      training.steps = 4;
      training.options.prefetch_forward = 2;
      training.options.prefetch_backward = prefetch;
      training.hooks.micro_step = [&](Trainer& trainer, const TestModel& test, std::int64_t step,
                                      Elements micro_batch) {
        const auto& order = orders[static_cast<std::size_t>(step)];
        const std::array forward{0, order[0], order[1], order[2], order[3], 5};
        const std::array backward{5, order[2], order[3], order[0], order[1], 0};
        run_calls(trainer, test, step, micro_batch, forward, backward);
      };
    });
}

TEST_CASE("recomputing forward inside backward changes nothing") {
  const auto recompute = [](Trainer& trainer, const TestModel& test, std::int64_t step,
                            Elements micro_batch) {
    std::array<double, 8> activations{};
    for (int call = 0; call < 6; ++call)
      run_forward(trainer, test, {step, micro_batch, &activations, call});
    for (int call = 6; call-- > 0;) {
      activations[static_cast<std::size_t>(call)] = 0;
      trainer.forward(test.calls[static_cast<std::size_t>(call)], [&](const Views&) {});
      run_forward(trainer, test, {step, micro_batch, &activations, call});
      run_backward(trainer, test, {step, micro_batch, &activations, call});
    }
  };
  const Trained plain = same_everywhere([](Training&) {});
  const Trained again =
      same_everywhere([&](Training& training) { training.hooks.micro_step = recompute; });
  CHECK(plain.hash() == again.hash());
  // nested: forward of the same module within its backward, as checkpointing does
  const Trained nested = same_everywhere([&](Training& training) {
    training.hooks.micro_step = [](Trainer& trainer, const TestModel& test, std::int64_t step,
                                   Elements micro_batch) {
      std::array<double, 8> activations{};
      for (int call = 0; call < 6; ++call)
        run_forward(trainer, test, {step, micro_batch, &activations, call});
      for (int call = 6; call-- > 0;) {
        const Batch batch{step, micro_batch, &activations, call};
        const Module& module = test.calls[static_cast<std::size_t>(call)];
        if (call == 1 || call == 4)
          trainer.backward(module, [&](const Views& views) {
            run_forward(trainer, test, batch);
            for (const Parameter parameter : test.parameters_of(module))
              if (parameter != test.frozen) add_gradient(batch, views, parameter);
          });
        else
          run_backward(trainer, test, batch);
      }
    };
  });
  CHECK(plain.hash() == nested.hash());
}

TEST_CASE("evaluation between steps changes nothing and releases") {
  const Trained plain = same_everywhere([](Training&) {});
  const Trained evaluated = same_everywhere([](Training& training) {
    training.hooks.before_step = [](Trainer& trainer, Communicator&, int) {
      const TestModel test;
      for (const Module& module : test.calls)
        trainer.evaluate(module, [&](const Views& views) {
          for (const Parameter parameter : test.parameters_of(module))
            CHECK(views.weights(parameter).data != nullptr);
        });
    };
  });
  CHECK(plain.hash() == evaluated.hash());
  with_trainer(training_of(StrategyName::FullShard), [](Trainer& trainer, const TestModel& test) {
    const Module& block = test.blocks[0];
    trainer.evaluate(block, [](const Views&) {});
    CHECK(contains(
        message_of([&] { trainer.engine().weights(test.weights[0].index, block.index()); }),
        "not whole"));
  });
}

TEST_CASE("a step without any call updates with zero gradients on every rank") {
  same_everywhere([](Training& training) {
    training.micro_steps = 2;
    training.hooks.micro_step = [](Trainer& trainer, const TestModel& test, std::int64_t step,
                                   Elements micro_batch) {
      if (step != 1) run_micro_step(trainer, test, step, micro_batch);
    };
  });
}

TEST_CASE("primitives do what the structured calls do") {
  const Trained structured = same_everywhere([](Training&) {});
  for (const bool prefetch : {false, true}) {
    Training training = training_of(StrategyName::FullShard);
    training.hooks.micro_step = [prefetch](Trainer& trainer, const TestModel& test,
                                           std::int64_t step, Elements micro_batch) {
      std::array<double, 8> activations{};
      Engine& engine = trainer.engine();
      const auto name = [&](int call) {
        return test.calls[static_cast<std::size_t>(call)].index();
      };
      const auto values = [&](std::byte* data, Parameter parameter) {
        const auto& spec = test.model.parameters()[static_cast<std::size_t>(parameter.index)];
        return Values{data, engine.compute_dtype(parameter.index), spec.numel()};
      };
      for (int call = 0; call < 6; ++call) {
        if (prefetch && call + 1 < 6) engine.prefetch(name(call + 1));
        engine.hold(name(call));
        for (const Parameter parameter :
             test.parameters_of(test.calls[static_cast<std::size_t>(call)]))
          activations[static_cast<std::size_t>(call)] =
              activation_of(activations[static_cast<std::size_t>(call)],
                            values(engine.weights(parameter.index, name(call)), parameter));
        engine.release(name(call));
      }
      for (int call = 6; call-- > 0;) {
        engine.hold(name(call));
        engine.open_gradients(name(call));
        for (const Parameter parameter :
             test.parameters_of(test.calls[static_cast<std::size_t>(call)]))
          if (parameter != test.frozen)
            add_gradient({step, micro_batch, &activations, call},
                         values(engine.weights(parameter.index, name(call)), parameter),
                         values(engine.gradient(parameter.index, name(call)), parameter),
                         parameter.index);
        engine.release(name(call));
        engine.reduce(name(call));
      }
    };
    CHECK(train(training).hash() == structured.hash());
  }
}

TEST_CASE("parameters held at step() are refused before anything changes") {
  for (const StrategyName strategy : all_strategies) {
    Training training = training_of(strategy);
    training.steps = 2;
    const Trained plain = train(training);
    training.hooks.micro_step = [](Trainer& trainer, const TestModel& test, std::int64_t step,
                                   Elements micro_batch) {
      run_micro_step(trainer, test, step, micro_batch);
      const int block = test.blocks[0].index();
      trainer.engine().hold(block);
      CHECK(contains(message_of([&] { trainer.step(); }), "held"));
      trainer.engine().release(block);
    };
    CHECK(train(training).hash() == plain.hash());
  }
}

TEST_CASE("too many modules in use at once: a clear error, and nothing stays held") {
  Training training = training_of(StrategyName::FullShard);
  training.options.prefetch_forward = 0;
  training.options.prefetch_backward = BackwardPrefetch::None;
  const Trained plain = train(training);
  training.hooks.micro_step = [](Trainer& trainer, const TestModel& test, std::int64_t step,
                                 Elements micro_batch) {
    Engine& engine = trainer.engine();
    engine.hold(test.blocks[0].index());
    CHECK(contains(message_of([&] { engine.hold(test.blocks[2].index()); }), "h.2"));
    CHECK(contains(
        message_of([&] { trainer.forward(test.blocks[2], [](const Views&) { CHECK(false); }); }),
        "prefetch_forward"));
    engine.release(test.blocks[0].index());
    run_micro_step(trainer, test, step, micro_batch);
  };
  CHECK(train(training).hash() == plain.hash());
}

TEST_CASE("a call that cannot gather all its units holds none") {
  ThreadWorld(2).run([](Communicator& communicator) {
    Model model;
    Module first = model.module("first"), busy = model.module("busy"), both = model.module("both");
    const Parameter shared = first.add("weight", {40});
    busy.add("weight", {30});
    both.add("weight", {50});
    both.tie("shared", shared);
    Sharder<strategy::FullShard, precision::Full<float>, offload::None> sharder(
        communicator, model, SGD{},
        {.prefetch_forward = 0, .prefetch_backward = BackwardPrefetch::None});
    sharder.initialize(init::constant{1});
    {
      const auto held = sharder.gather(busy);
      CHECK_THROWS_AS((void)sharder.gather(both), UsageError);
      CHECK_THROWS_AS(sharder.forward(both, [](auto) {}), UsageError);
      CHECK_THROWS_AS(sharder.backward(both, [](auto, auto) {}), UsageError);
    }
    sharder.forward(both, [&](auto weights) { CHECK(weights[shared][39] == 1); });
    CHECK(sharder.step().wait().step == 1);
  });
}
