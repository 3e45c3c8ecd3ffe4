// Offload to host memory: whatever two of the six streams do to the same memory is ordered by
// events, and every kind of edge that it adds is needed. Of NVMe: offload_nvme_race_test.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <mutex>

#include "offload.hpp"
#include "race_device.hpp"
#include "random.hpp"

using namespace sharder_test;

namespace {

enum : int { compute, gather, reduce, upload, download, host };  // in the order they are made

void touch(Trainer& trainer, const TestModel& test, const Module& module, bool backward,
           double value = 0) {
  Stream& stream = trainer.engine().compute_stream();
  const auto body = [&](const Views& views) {
    std::vector<Access> accesses;
    for (const Parameter parameter : test.parameters_of(module)) {
      const Values weights = views.weights(parameter);
      accesses.push_back(reads(weights.data, weights.count * size_of(weights.dtype)));
      if (!backward || parameter == test.frozen) continue;
      const Values gradients = views.gradients(parameter);
      accesses.push_back(writes(gradients.data, gradients.count * size_of(gradients.dtype)));
      if (gradients.count > 0) gradients.set(0, value);
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
std::vector<std::string> races_of(Training training, const OffloadTraits& offload,
                                  std::pair<int, int> dropped = {-1, -1}) {
  std::vector<std::string> found;
  std::mutex mutex;
  training.steps = 4;
  training.options.offload = offload;
  training.hooks.device = [&](const HostOptions&, Rank) {
    auto device = std::make_unique<RaceDevice>();
    device->history.dropped = dropped;
    return device;
  };
  training.hooks.decorate = [](Communicator& comm) {
    return std::make_unique<RaceCommunicator>(comm);
  };
  if (!training.hooks.micro_step) training.hooks.micro_step = touch_all;
  training.hooks.after_training = [&, also = training.hooks.after_training](
                                      Trainer& trainer, Communicator& communicator) {
    if (also) also(trainer, communicator);
    const auto races = static_cast<RaceDevice&>(trainer.engine().device()).history.races();
    const std::lock_guard lock(mutex);
    found.insert(found.end(), races.begin(), races.end());
  };
  train(training);
  return found;
}

/// At every place, whole and in parts.
void check_ordered(Training training) {
  for (const OffloadTraits& offload : offloads)
    for (const Elements part : {0, 16}) {
      training.options.update_part = part;
      CAPTURE(to_string(training));
      CAPTURE(to_string(offload));
      CAPTURE(part);
      const auto races = races_of(training, offload);
      CAPTURE(races.empty() ? std::string() : races.front());
      CHECK(races.empty());
    }
}

using Edges = std::vector<std::pair<int, int>>;

/// Something races without any of them.
void check_needed(const Training& training, const OffloadTraits& offload, const Edges& edges) {
  for (const auto& edge : edges) {
    CAPTURE(to_string(offload));
    CAPTURE(edge.first);
    CAPTURE(edge.second);
    CHECK_FALSE(races_of(training, offload, edge).empty());
  }
}

}  // namespace

TEST_CASE("offload streams: everything that conflicts is ordered by events, in every strategy") {
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
      training.options.reduce_moment = ReduceMoment::Micro;
      check_ordered(training);
      training.options.max_grad_norm = 0;
      training.options.step_in_backward = true;
      check_ordered(training);
      training.micro_steps = 1;
      check_ordered(training);
    }
}

TEST_CASE("offload streams: what nobody uses is ordered too") {
  for (const StrategyName strategy : {StrategyName::NoShard, StrategyName::FullShard}) {
    Training training;
    training.strategy = strategy;
    training.world = 2;
    training.hooks.micro_step = [](Trainer& trainer, const TestModel& test, std::int64_t,
                                   Elements) {
      touch(trainer, test, test.blocks[0], false);
      touch(trainer, test, test.blocks[0], true);
    };
    check_ordered(training);
    training.options.step_in_backward = true;
    check_ordered(training);
  }
}

TEST_CASE("offload streams: what a micro-step leaves unused, and steps that are discarded") {
  for (const StrategyName strategy : all_strategies)
    for (const bool in_backward : {false, true})
      for (const bool discards : {false, true})
        for (const int micro_steps : {1, 2}) {
          const bool replicas = strategy == StrategyName::HybridShard;
          Training training;
          training.strategy = strategy;
          training.world = 2;
          training.micro_steps = micro_steps;
          training.options.step_in_backward = in_backward;
          if (replicas && micro_steps > 1)
            training.options.reduce_moment = ReduceMoment::ReplicaBoundary;
          training.hooks.micro_step = [discards](Trainer& trainer, const TestModel& test,
                                                 std::int64_t step, Elements micro_batch) {
            thread_local int calls = 0;  // of a rank
            if (calls++ % 2 == 0) return touch(trainer, test, test.blocks[1], true);
            touch_all(trainer, test, step, micro_batch);
            if (discards && step % 2 == 1) trainer.engine().discard_step();
          };
          check_ordered(training);
        }
}

TEST_CASE("offload streams: what a step that is skipped stages is ordered too") {
  for (const StrategyName strategy : {StrategyName::ShardOptimizer, StrategyName::FullShard}) {
    Training training;
    training.strategy = strategy;
    training.world = 2;
    training.precision = PrecisionName::Bf16Mixed;
    training.options.on_nonfinite = OnNonFinite::Skip;
    training.hooks.micro_step = [](Trainer& trainer, const TestModel& test, std::int64_t step,
                                   Elements micro_batch) {
      if (step % 2 == 0) return touch_all(trainer, test, step, micro_batch);
      touch(trainer, test, test.embedding, true, std::numeric_limits<double>::infinity());
    };
    training.hooks.after_training = [](Trainer& trainer, Communicator&) {
      for (const int step : {1, 2, 3, 4})
        CHECK(trainer.engine().wait(step).skipped == (step % 2 == 0));
    };
    check_ordered(training);
    // Masters are rounded into what is staged, by a task of the host stream.
    const auto races = races_of(training, optimizer_on_host, {upload, host});
    CHECK(std::any_of(races.begin(), races.end(),
                      [](const std::string& race) { return contains(race, "cast on stream 5"); }));
  }
}

TEST_CASE("offload streams: more units than buffers, gathered ahead in vain now and then") {
  Model model;
  std::vector<Module> modules;
  std::vector<Parameter> weights;
  for (int index = 0; index < 7; ++index) {
    modules.push_back(model.module("h." + std::to_string(index)));
    weights.push_back(modules.back().add("weight", {40 + index}));
  }
  auto random = flatshard_test::generator(41);
  for (int trial = 0; trial < 60; ++trial) {
    const std::uint64_t seed = random();
    const StrategyName strategy = all_strategies[seed % all_strategies.size()];
    const OffloadTraits& offload = offloads[seed / 8 % offloads.size()];
    CAPTURE(name_of(strategy));
    CAPTURE(to_string(offload));
    ThreadWorld(2).run([&](Communicator& given) {
      std::mt19937_64 same{seed};  // calls are the same on every rank
      RaceDevice device;
      RaceCommunicator communicator(given);
      Options options;
      options.device = &device;
      options.offload = offload;
      options.prefetch_forward = static_cast<int>(same() % 3);
      options.step_in_backward = same() % 2 == 0;
      options.update_part = same() % 2 == 0 ? 5 : 0;
      const bool merged = same() % 3 == 0;
      options.wrap = merged ? wrap::up_to(90) : wrap::each_module();
      const auto precision = same() % 2 == 0 ? PrecisionName::Fp32 : PrecisionName::Bf16Mixed;
      const auto trainer =
          make_trainer(strategy, precision, communicator, model, AdamW{.lr = 1e-2}, options);
      trainer->initialize(init::normal{0.5, 1});
      const auto call = [&](std::size_t index, bool backward) {
        const auto body = [&](const Views& views) {
          const Values read = views.weights(weights[index]);
          std::vector<Access> accesses{reads(read.data, read.count * size_of(read.dtype))};
          if (backward) {
            const Values written = views.gradients(weights[index]);
            accesses.push_back(writes(written.data, written.count * size_of(written.dtype)));
          }
          note(trainer->engine().compute_stream(), backward ? "backward" : "forward",
               std::move(accesses));
        };
        if (backward)
          trainer->backward(modules[index], body);
        else
          trainer->forward(modules[index], body);
      };
      for (int step = 0; step < 4; ++step) {
        for (std::size_t index = 0; index < modules.size(); ++index) {
          if (merged || same() % 4 != 0) call(index, false);
          if (same() % 4 == 0)
            trainer->engine().prefetch(static_cast<int>(same() % modules.size()));
        }
        for (std::size_t index = modules.size(); index-- > 0;)
          if (merged || same() % 4 != 0) call(index, true);
        if (same() % 2 == 0) trainer->engine().prefetch(static_cast<int>(same() % modules.size()));
        trainer->step();
      }
      const auto races = device.history.races();
      CAPTURE(races.empty() ? std::string() : races.front());
      CHECK(races.empty());
    });
  }
}

TEST_CASE("offload streams: no kind of edge may be left out") {
  Training training;
  training.world = 2;
  training.micro_steps = 2;
  training.precision = PrecisionName::Bf16Mixed;
  // What nobody uses any more is still sent while a step writes it.
  training.hooks.micro_step = [](Trainer& trainer, const TestModel& test, std::int64_t step,
                                 Elements micro_batch) {
    touch_all(trainer, test, step, micro_batch);
    trainer.engine().prefetch(test.blocks[0].index());
  };
  check_ordered(training);
  check_needed(training, optimizer_on_host,
               {{reduce, download},
                {download, reduce},
                {download, host},
                {host, download},
                {reduce, host},
                {host, upload},
                {upload, host},
                {upload, gather},
                {gather, upload}});
  check_needed(training, parameters_on_host,
               {{upload, gather}, {reduce, download}, {download, upload}});
  check_needed(training, all_on_host, {{host, upload}, {upload, host}});
  training.options.reduce_moment = ReduceMoment::Micro;  // sums are formed on the host: the norm
  check_needed(training, optimizer_on_host, {{host, reduce}});
}

TEST_CASE("offload streams: no kind of edge of what passes in parts may be left out") {
  Training training;
  training.world = 2;
  training.options.step_in_backward = true;
  training.options.update_part = 16;
  for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed}) {
    training.precision = precision;
    for (const OffloadTraits& offload : {optimizer_on_host, all_on_host})  // gradients
      check_needed(training, offload,
                   {{reduce, download}, {download, reduce}, {download, host}, {host, download}});
  }
  check_needed(training, optimizer_on_host, {{host, upload}, {upload, host}});  // parameters
  check_needed(training, parameters_on_host, {{reduce, download}, {download, reduce}});
}
