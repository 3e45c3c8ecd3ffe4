// Steps in backward with offload, and what passes in parts: the bits of no offload.
#include "offload_checks.hpp"

#include <doctest/doctest.h>
#include <flatshard/comm/solo.hpp>
#include <flatshard/sharder/params_hash.hpp>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "random.hpp"

using namespace sharder_test;

namespace {

/// What a user does between the last backward and step(), and what it shows of the parameters.
using Seen = std::vector<double>;
using Act = void (*)(Trainer& trainer, const TestModel& test, std::int64_t step, Seen& seen);

void set_rate(Trainer& trainer, const TestModel&, std::int64_t step, Seen&) {
  trainer.engine().set_optimizer(AdamW{.lr = step % 2 == 0 ? 0.1 : 0.01});
}

void set_rates(Trainer& trainer, const TestModel&, std::int64_t step, Seen&) {
  const double lr = step % 2 == 0 ? 0.1 : 0.01;
  trainer.engine().set_group_optimizers({AdamW{.lr = lr}, AdamW{.lr = lr / 2}});
}

void assign_table(Trainer& trainer, const TestModel& test, std::int64_t, Seen&) {
  const std::vector<float> table(37 * 5, 0.25f);
  trainer.engine().assign(test.table.index, table.data(), DType::Float32);
}

void halve_summoned(Trainer& trainer, const TestModel& test, std::int64_t, Seen&) {
  for (std::size_t block = 0; block < test.weights.size(); ++block)
    trainer.summon_full(
        test.blocks[block],
        [&](const Views& views) {
          const Values weights = views.weights(test.weights[block]);
          for (Elements i = 0; i < weights.count; ++i) weights.set(i, weights.get(i) * 0.5);
        },
        true);
}

void read_masters(Trainer& trainer, const TestModel& test, std::int64_t, Seen& seen) {
  for (const Parameter& weight : test.weights) {
    const LocalShard local = trainer.engine().local(weight.index);
    std::vector<float> master(static_cast<std::size_t>(local.count));
    trainer.engine().read(local.master, master.data(), local.count * Bytes{4});
    seen.insert(seen.end(), master.begin(), master.end());
  }
}

/// Calls of all blocks.
template <class Call>
void see_blocks(const TestModel& test, Seen& seen, const Call& call) {
  for (std::size_t block = 0; block < test.weights.size(); ++block)
    call(test.blocks[block], [&](const Views& views) {
      const Values weights = views.weights(test.weights[block]);
      for (Elements i = 0; i < weights.count; ++i) seen.push_back(weights.get(i));
    });
}

void evaluate(Trainer& trainer, const TestModel& test, std::int64_t, Seen& seen) {
  see_blocks(test, seen,
             [&](const Module& block, const auto& see) { trainer.evaluate(block, see); });
}

void evaluate_prefetched(Trainer& trainer, const TestModel& test, std::int64_t, Seen& seen) {
  see_blocks(test, seen, [&](const Module& block, const auto& see) {
    trainer.engine().prefetch(block.index());
    trainer.evaluate(block, see);
  });
}

void go_forward(Trainer& trainer, const TestModel& test, std::int64_t, Seen& seen) {
  see_blocks(test, seen,
             [&](const Module& block, const auto& see) { trainer.forward(block, see); });
}

constexpr std::array<Act, 8> acts{set_rate,     set_rates, assign_table,        halve_summoned,
                                  read_masters, evaluate,  evaluate_prefetched, go_forward};
constexpr std::size_t first_that_reads = 4, first_that_gathers = 5;

struct ActedTraining {
  Trained trained;
  Seen seen;  // by rank 0
};

ActedTraining train_with(Training training, const OffloadTraits& offload, Act act) {
  ActedTraining acted;
  training.hooks.micro_step = [&](Trainer& trainer, const TestModel& test, std::int64_t step,
                                  Elements micro_batch) {
    run_micro_step(trainer, test, step, micro_batch);
    Seen mine;
    act(trainer, test, step, mine);
    if (trainer.rank() == 0) acted.seen.insert(acted.seen.end(), mine.begin(), mine.end());
  };
  acted.trained = trained_at(training, offload);
  return acted;
}

}  // namespace

TEST_CASE("offload: what a discarded step in backward has updated is the same") {
  for (const StrategyName strategy : all_strategies)
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed})
      for (const StreamForm form : {StreamForm::Inline, StreamForm::Threaded}) {
        Training training = clipped(strategy, 2, 1);
        training.precision = precision;
        training.options.max_grad_norm = 0;
        training.options.step_in_backward = true;
        training.host.form = form;
        training.hooks.micro_step = [](Trainer& trainer, const TestModel& test, std::int64_t step,
                                       Elements micro_batch) {
          run_micro_step(trainer, test, step, micro_batch);
          if (step == 1) trainer.engine().discard_step();
        };
        check_all(training);
      }
}

TEST_CASE("offload: a step in backward, over strategies") {
  for (const StrategyName strategy : all_strategies)
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed}) {
      Training training = clipped(strategy, 2, 2);
      training.precision = precision;
      training.options.max_grad_norm = 0;
      training.options.step_in_backward = true;
      training.host.form = StreamForm::Threaded;
      check_all(training);
    }
}

TEST_CASE("offload: a step in backward, with gradients that pass to the host in parts") {
  auto random = flatshard_test::generator(53);
  for (const PrecisionName precision : all_precisions)
    for (const StrategyName strategy : all_strategies) {
      if (scales_loss(precision)) continue;
      Training training = clipped(strategy, std::array{1, 2, 4}[random() % 3], 1);
      training.precision = precision;
      training.options.max_grad_norm = 0;
      training.options.step_in_backward = true;
      training.host.form = random() % 2 == 0 ? StreamForm::Threaded : StreamForm::Inline;
      training.options.update_part = std::array<Elements, 4>{1, 3, 16, 100}[random() % 4];
      check_all(training);
    }
}

TEST_CASE("offload: what passes in parts is in the Plan, and of units that train one flat") {
  const TestModel test;
  const auto plan_of = [&](Elements part, bool in_backward) {
    using Offloaded = Sharder<strategy::FullShard, precision::Bf16Mixed,
                              offload::Place<offload::Device, offload::Cpu>>;
    Options options;
    options.groups = {{}, {}};
    options.step_in_backward = in_backward;
    options.update_part = part;
    return Offloaded::plan_for(test.model, AdamW{}, 1, options);
  };
  const Plan whole = plan_of(0, true), parts = plan_of(16, true), after = plan_of(16, false);
  CHECK(whole.relay_slots == 0);
  CHECK(whole.upload_slots == 0);
  CHECK(after.relay_slots == 0);
  CHECK(parts.relay_slots == 4);
  CHECK(parts.relay_slot_bytes == 16 * 4);
  for (const Plan* cut : {&parts, &after}) {
    CHECK(cut->upload_slots == 4);
    CHECK(cut->upload_slot_bytes == 16 * 2);
    CHECK(cut->staging_slot_bytes < whole.staging_slot_bytes);
  }
  CHECK(parts.pinned_bytes - after.pinned_bytes == 4 * 128);
  int relayed = 0;
  for (const Flat& flat : parts.flats) {
    relayed += flat.relayed;
    if (flat.relayed) CHECK(flat.partition.slice() > 16);
  }
  CHECK(relayed > 1);
  CHECK(contains(message_of([&] { plan_of(-1, true); }), "update_part is -1"));
}

TEST_CASE("offload: a step in backward leaves the units that are gathered ahead alone") {
  using Chain = Sharder<strategy::ShardOptimizer, precision::Full<float>>;
  Model model;
  std::vector<Module> modules;
  std::vector<Parameter> weights;
  for (int index = 0; index < 6; ++index) {
    modules.push_back(model.module("h." + std::to_string(index)));
    weights.push_back(modules.back().add("weight", {64}));
  }
  const auto hash_at = [&](const OffloadTraits& offload) {
    std::uint64_t hash = 0;
    ThreadWorld(2).run([&](Communicator& communicator) {
      HostDevice device;
      Options options;
      options.device = &device;
      options.offload = offload;
      options.step_in_backward = true;
      Chain chain(communicator, model, SGD{.lr = 0.1}, options);
      chain.initialize(init::normal{1, 3});
      for (int step = 0; step < 2; ++step) {
        for (int index = 5; index >= 0; --index) {
          const auto at = static_cast<std::size_t>(index);
          chain.backward(modules[at], [&](auto values, auto gradients) {
            for (Elements i = 0; i < 64; ++i)
              gradients[weights[at]][i] = values[weights[at]][i] + static_cast<float>(index);
          });
        }
        chain.step();
      }
      const std::uint64_t found = params_hash(chain);
      if (communicator.rank() == 0) hash = found;
    });
    return hash;
  };
  for (const OffloadTraits& offload : offloads) CHECK(hash_at(offload) == hash_at(none));
}

TEST_CASE("offload: what is set or read before step() meets no unit that was left for later") {
  for (std::size_t act = 0; act < acts.size(); ++act)
    for (const StrategyName strategy : {StrategyName::NoShard, StrategyName::FullShard})
      for (const StreamForm form : {StreamForm::Inline, StreamForm::Threaded}) {
        Training training = clipped(strategy, 2, 1);
        training.options.max_grad_norm = 0;
        training.options.step_in_backward = true;
        training.host.form = form;
        CAPTURE(act);
        const ActedTraining expected = train_with(training, none, acts[act]);
        CHECK(expected.seen.empty() == (act < first_that_reads));
        for (const OffloadTraits& offload : offloads)
          for (const Elements part : {Elements{0}, Elements{9}}) {
            training.options.update_part = part;
            CAPTURE(to_string(training));
            CAPTURE(to_string(offload));
            const ActedTraining found = train_with(training, offload, acts[act]);
            CHECK(found.trained.replicas_agree);
            CHECK(found.trained.hash() == expected.trained.hash());
            CHECK(found.seen == expected.seen);
          }
      }
}

TEST_CASE("offload: what is gathered between the last backward and step() is new everywhere") {
  for (std::size_t act = first_that_gathers; act < acts.size(); ++act)
    for (const int world : {1, 2, 4}) {
      Training training = clipped(StrategyName::NoShard, world, 1);
      training.options.max_grad_norm = 0;
      training.options.step_in_backward = true;
      training.options.update_part = 9;
      const Seen expected = train_with(training, none, acts[act]).seen;
      for (const StrategyName strategy : all_strategies)
        for (const OffloadTraits& offload : {none, all_on_host, optimizer_on_host}) {
          training.strategy = strategy;
          CAPTURE(to_string(training));
          CAPTURE(to_string(offload));
          // Whole parameters reach the host by collectives, in step().
          if (strategy == StrategyName::ShardOptimizer && world > 1 &&
              offload.parameters == Tier::Host)
            continue;
          CHECK(train_with(training, offload, acts[act]).seen == expected);
        }
    }
}

TEST_CASE("a step in backward: what a unit held is read before it is gathered again") {
  using Kept = Sharder<strategy::ShardGradOp, precision::Full<float>>;
  Model model;
  Module module = model.module("h");
  const Parameter weight = module.add("weight", {64});
  for (const OffloadTraits& offload : {none, all_on_host})
    ThreadWorld(2).run([&](Communicator& communicator) {
      HostDevice device({.form = StreamForm::Threaded});
      const auto stream = make_host_stream(StreamForm::Threaded);
      Options options;
      options.device = &device;
      options.compute_stream = stream.get();
      options.offload = offload;
      options.step_in_backward = true;
      Kept sharder(communicator, model, SGD{.lr = 0.5}, options);
      sharder.initialize(init::constant{1});
      auto& compute = host_stream(*stream);
      auto held = sharder.gather(module);
      sharder.backward(module, [&](auto, auto gradients) {
        compute.enqueue([to = gradients[weight].data()] { std::fill_n(to, 64, 1.0f); });
      });
      float old = 0, updated = 0;
      compute.enqueue([from = held[weight].data(), &old] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        old = from[63];
      });
      held.release();
      const auto again = sharder.gather(module);
      compute.enqueue([from = again[weight].data(), &updated] { updated = from[63]; });
      compute.synchronize();
      CHECK(old == 1);
      CHECK(updated == 0.5f);
    });
}

TEST_CASE("offload: a step() that throws is not called again, but discarded") {
  for (const bool in_backward : {false, true})
    for (const OffloadTraits& offload : {none, all_on_host, optimizer_on_host}) {
      bool throws = false;
      Training training = clipped(StrategyName::FullShard, 1, 1);
      training.options.max_grad_norm = in_backward ? 0 : 0.5;
      training.options.step_in_backward = in_backward;
      training.options.update_part = 9;
      training.options.norm_hook = [&](double*, NormKind, StreamRef) {
        if (std::exchange(throws, false)) throw Error("hook");
      };
      training.hooks.before_step = [&](Trainer& trainer, Communicator&, int step) {
        if (step != 1) return;
        trainer.micro_step(true);
        run_micro_step(trainer, TestModel(), 77, 0);
        throws = true;
        CHECK(message_of([&] { trainer.step(); }) == "hook");
        CHECK(contains(message_of([&] { trainer.step(); }), "step() did not complete: call disc"));
        trainer.discard_step();
      };
      const Trained trained = trained_at(training, offload);
      training.options.offload = none;
      CHECK(trained.hash() == train(training).hash());
    }
}
