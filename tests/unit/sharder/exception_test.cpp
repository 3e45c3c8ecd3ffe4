// What goes wrong: exceptions from the user's functions, on all ranks and on one; collectives that
// fail. Nothing hangs, every rank hears of it, and what can go on goes on.
#include <doctest/doctest.h>
#include <flatshard/comm/faulty.hpp>
#include <flatshard/core/error.hpp>

#include <optional>

#include "training.hpp"

using namespace sharder_test;

namespace {

struct Boom : std::runtime_error {
  Boom() : std::runtime_error("boom") {}
};

Training training_of(StrategyName strategy, StreamForm form = StreamForm::Inline) {
  Training training;
  training.strategy = strategy;
  training.world = 4;
  training.micro_steps = 2;
  training.steps = 2;
  training.options.accumulation = Accumulation::Tree;
  training.host.form = form;
  return training;
}

void fail_forward(Trainer& trainer, const Module& module) {
  CHECK_THROWS_AS(trainer.forward(module, [](const Views&) { throw Boom(); }), Boom);
}
void fail_backward(Trainer& trainer, const Module& module) {
  CHECK_THROWS_AS(trainer.backward(module, [](const Views&) { throw Boom(); }), Boom);
}

/// Runs a training that must fail: what ThreadWorld::run says. `heard` counts the ranks that got
/// that very message, or threw it.
std::string failure_of(const Training& training, int& heard) {
  std::string failure = "nothing failed";
  std::vector<std::string> messages(static_cast<std::size_t>(training.world));
  try {
    train(training, &messages);
  } catch (const CommunicationError& error) {
    failure = error.what();
  }
  heard = 0;
  for (const std::string& message : messages)
    heard += contains(failure, message) && !message.empty();
  return failure;
}

}  // namespace

TEST_CASE("after an exception from forward on all ranks it is as if the call had not been made") {
  for (const StreamForm form : {StreamForm::Inline, StreamForm::Threaded})
    for (const StrategyName strategy : all_strategies) {
      Training training = training_of(strategy, form);
      const Trained plain = train(training);
      training.hooks.micro_step = [](Trainer& trainer, const TestModel& test, std::int64_t step,
                                     Elements micro_batch) {
        std::array<double, 8> activations{};
        for (int call = 0; call < 6; ++call) {
          fail_forward(trainer, test.calls[static_cast<std::size_t>(call)]);
          run_forward(trainer, test, {step, micro_batch, &activations, call});
        }
        for (int call = 6; call-- > 0;) {
          if (call == 2) fail_forward(trainer, test.blocks[0]);
          run_backward(trainer, test, {step, micro_batch, &activations, call});
        }
      };
      CAPTURE(to_string(training));
      CHECK(train(training).hash() == plain.hash());
    }
}

TEST_CASE("after an exception from backward the step must be dropped, and can be repeated") {
  for (const StreamForm form : {StreamForm::Inline, StreamForm::Threaded})
    for (const StrategyName strategy : all_strategies)
      for (int failing = 0; failing < 6; ++failing) {
        Training training = training_of(strategy, form);
        const Trained plain = train(training);
        training.hooks.before_step = [&](Trainer& trainer, Communicator&, int step) {
          const TestModel test;
          for (const int micro_steps : {1, 2}) {  // fails in the first, in the last
            for (int k = 0; k < micro_steps; ++k) {
              trainer.micro_step(k == 1);
              std::array<double, 8> activations{};
              const Batch batch{step + 100, k, &activations, 0};
              for (int call = 0; call < 6; ++call) {
                Batch next = batch;
                next.call = call;
                run_forward(trainer, test, next);
              }
              for (int call = 6; call-- > 0;) {
                Batch next = batch;
                next.call = call;
                if (call == failing && k + 1 == micro_steps) {
                  fail_backward(trainer, test.calls[static_cast<std::size_t>(call)]);
                  break;
                }
                run_backward(trainer, test, next);
              }
              trainer.engine().compute_stream().synchronize();
            }
            CHECK(contains(message_of([&] { trainer.forward(test.head, [](const Views&) {}); }),
                           "discard_step"));
            CHECK(contains(message_of([&] { trainer.step(); }), "discard_step"));
            trainer.discard_step();
          }
        };
        CAPTURE(to_string(training));
        CAPTURE(failing);
        CHECK(train(training).hash() == plain.hash());
      }
}

TEST_CASE("a step in backward that is dropped half-way leaves the same on every strategy") {
  std::optional<std::uint64_t> hash;
  for (const StrategyName strategy : all_strategies) {
    Training training = training_of(strategy);
    training.options.step_in_backward = true;
    training.steps = 3;
    training.hooks.before_step = [&](Trainer& trainer, Communicator& communicator, int step) {
      if (step != 1) return;
      const TestModel test;
      std::array<double, 8> activations{};
      trainer.micro_step(true);
      for (int call = 0; call < 6; ++call)
        run_forward(trainer, test, {7, communicator.rank(), &activations, call});
      for (int call = 6; call-- > 3;)
        run_backward(trainer, test, {7, communicator.rank(), &activations, call});
      fail_backward(trainer, test.blocks[1]);
      trainer.discard_step();
    };
    const Trained trained = train(training);
    CHECK(trained.replicas_agree);
    if (!hash) hash = trained.hash();
    CAPTURE(to_string(training));
    CHECK(trained.hash() == *hash);
  }
}

TEST_CASE("an exception on one rank reaches every rank as its message") {
  for (const StreamForm form : {StreamForm::Inline, StreamForm::Threaded})
    for (const StrategyName strategy : all_strategies)
      for (const bool in_backward : {false, true}) {
        Training training = training_of(strategy, form);
        training.hooks.micro_step = [&](Trainer& trainer, const TestModel& test, std::int64_t step,
                                        Elements micro_batch) {
          const bool fails = step == 1 && trainer.rank() == 1;
          std::array<double, 8> activations{};
          for (int call = 0; call < 6; ++call)
            if (fails && call == 2 && !in_backward)
              trainer.forward(test.blocks[1], [](const Views&) { throw Boom(); });
            else
              run_forward(trainer, test, {step, micro_batch, &activations, call});
          for (int call = 6; call-- > 0;)
            if (fails && call == 2)
              trainer.backward(test.blocks[1], [](const Views&) { throw Boom(); });
            else
              run_backward(trainer, test, {step, micro_batch, &activations, call});
        };
        CAPTURE(to_string(training));
        int heard = 0;
        CHECK(failure_of(training, heard) == "rank 1: boom");
        CHECK(heard == 4);
      }
}

TEST_CASE("ranks that make different calls are both named") {
  for (const StreamForm form : {StreamForm::Inline, StreamForm::Threaded}) {
    Training training = training_of(StrategyName::FullShard, form);
    training.hooks.micro_step = [](Trainer& trainer, const TestModel& test, std::int64_t step,
                                   Elements micro_batch) {
      const bool other = trainer.rank() == 1;
      trainer.forward(test.blocks[other ? 0 : 2], [](const Views&) {});
      run_micro_step(trainer, test, step, micro_batch);
    };
    int heard = 0;
    const std::string failure = failure_of(training, heard);
    CHECK(contains(failure, "h.0/0"));
    CHECK(contains(failure, "h.2/0"));
    CHECK(heard == 4);
  }
}

TEST_CASE("a collective that fails, any of them, on one rank: every rank hears of it") {
  for (const bool on_stream : {false, true})
    for (const StreamForm form : {StreamForm::Inline, StreamForm::Threaded})
      for (const StrategyName strategy :
           {StrategyName::NoShard, StrategyName::HybridShard, StrategyName::FullShardSecondary}) {
        Training training = training_of(strategy, form);
        training.world = 2;
        training.options.shard_group = strategy == StrategyName::HybridShard ? 2 : 1;
        training.micro_steps = 1;
        std::int64_t calls = 0;
        std::vector<FaultyCommunicator*> communicators(2);
        Faults faults;
        training.hooks.decorate = [&](Communicator& inner) -> std::unique_ptr<Communicator> {
          auto faulty = std::make_unique<FaultyCommunicator>(inner, faults);
          communicators[static_cast<std::size_t>(inner.rank())] = faulty.get();
          return faulty;
        };
        training.hooks.after_training = [&](Trainer&, Communicator& communicator) {
          if (communicator.rank() == 0) calls = communicators[0]->calls();
        };
        train(training);
        REQUIRE(calls > 10);
        training.hooks.after_training = nullptr;
        for (std::int64_t call = 1; call <= calls; ++call) {
          faults = {.fail_call = call, .fail_rank = 1, .on_stream = on_stream};
          CAPTURE(to_string(training));
          CAPTURE(call);
          int heard = 0;
          const std::string failure = failure_of(training, heard);
          CHECK(contains(failure, "rank 1: injected failure at call " + std::to_string(call)));
          CHECK(heard == 2);
        }
      }
}

TEST_CASE("slow ranks change no bit") {
  const Trained plain = train(training_of(StrategyName::FullShard));
  for (const Rank slow : {0, 3}) {
    Training training = training_of(StrategyName::FullShard, StreamForm::Threaded);
    training.options.prefetch_forward = 2;
    training.hooks.decorate = [&](Communicator& inner) -> std::unique_ptr<Communicator> {
      return std::make_unique<FaultyCommunicator>(inner,
                                                  Faults{.delay = std::chrono::microseconds(200),
                                                         .delay_every = 3,
                                                         .delay_rank = slow,
                                                         .on_stream = true});
    };
    CHECK(train(training).hash() == plain.hash());
  }
}

TEST_CASE("a Sharder may go while its last step still runs") {
  for (const StrategyName strategy : all_strategies)
    ThreadWorld(2).run([&](Communicator& communicator) {
      for (int trial = 0; trial < 3; ++trial) {
        const TestModel test;
        HostDevice device({.form = StreamForm::Threaded});
        const auto trainer =
            make_trainer(strategy, PrecisionName::Fp32, communicator, test.model, AdamW{},
                         {.max_grad_norm = 1, .groups = {{}, {}}, .device = &device});
        trainer->initialize(init::normal{1, 2});
        run_micro_step(*trainer, test, 0, communicator.rank());
        trainer->step();
      }
    });
}
