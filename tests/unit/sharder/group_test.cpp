// Parameter groups, frozen parameters, mixed dtypes, hyper-parameters that change, own optimizers.
#include <doctest/doctest.h>
#include <flatshard/core/error.hpp>
#include <flatshard/core/exact.hpp>

#include <cmath>
#include <optional>

#include "training.hpp"

using namespace sharder_test;

namespace {

void on_ranks(int world, const std::function<void(Communicator&)>& act) {
  ThreadWorld(world, {.patience = std::chrono::seconds(60)}).run(act);
}

/// All strategies leave the same bits; returns them.
template <class Change>
Trained same_everywhere(Change&& change) {
  Trained first;
  for (const StrategyName strategy : all_strategies) {
    Training training;
    training.strategy = strategy;
    training.world = 4;
    change(training);
    CAPTURE(to_string(training));
    const Trained trained = train(training);
    CHECK(trained.replicas_agree);
    if (strategy == all_strategies.front()) first = trained;
    CHECK(trained.hash() == first.hash());
  }
  return first;
}

const std::vector<std::byte>& master(const Trained& trained, Parameter parameter) {
  return trained.masters[static_cast<std::size_t>(parameter.index)];
}

/// An optimizer that the library does not know: two states, a learning rate, no weight decay.
struct Drift {
  double lr = 1e-2;
  double mix = 0.75;
  static constexpr std::string_view name = "drift";
  static constexpr std::array<std::string_view, 2> state_names{"trace", "count"};
  template <class Real>
  struct Coefficients {
    Real lr, mix, time;
  };
  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Coefficients<Real> coefficients(std::int64_t time) const {
    return {static_cast<Real>(lr), static_cast<Real>(mix), static_cast<Real>(time)};
  }
  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE static void update(const Coefficients<Real>& with,
                                                            Real& parameter, Real gradient,
                                                            Real* states) {
    states[0] = exact::fma(with.mix, states[0], gradient);
    states[1] = exact::fma(with.time, gradient, states[1]);
    parameter = exact::fma(-with.lr, states[0], parameter);
  }
};

/// Moves zeros, so padding would not stay zero.
struct Restless {
  static constexpr std::array<std::string_view, 0> state_names{};
  template <class Real>
  struct Coefficients {};
  template <class Real>
  Coefficients<Real> coefficients(std::int64_t) const {
    return {};
  }
  template <class Real>
  static void update(const Coefficients<Real>&, Real& parameter, Real, Real*) {
    parameter = exact::add(parameter, Real{1});
  }
};

}  // namespace

TEST_CASE("groups change the learning rate and switch weight decay off, in every strategy") {
  // Zero gradients: AdamW only decays, p *= 1 - lr * weight_decay.
  for (const StrategyName strategy : all_strategies)
    on_ranks(4, [&](Communicator& communicator) {
      Model model;
      Module module = model.module("m");
      const std::array groups{0, 1, 2, 1, 0};
      std::vector<Parameter> parameters;
      for (const int group : groups)
        parameters.push_back(
            module.add("p" + std::to_string(parameters.size()), {19}, {.group = group}));
      const auto trainer = make_trainer(
          strategy, PrecisionName::Fp64, communicator, model, AdamW{.lr = 0.1, .weight_decay = 0.5},
          {.groups = {{}, {.weight_decay = false}, {.lr_factor = 0.5}}});
      trainer->initialize(init::constant{1});
      trainer->backward(module, [](const Views&) {});
      trainer->step();
      trainer->summon_full(module, [&](const Views& views) {
        const std::array expected{0.95, 1.0, 0.975};
        for (std::size_t p = 0; p < parameters.size(); ++p)
          for (Elements i = 0; i < 19; ++i)
            CHECK(views.weights(parameters[p]).get(i) ==
                  doctest::Approx(expected[static_cast<std::size_t>(groups[p])]).epsilon(1e-15));
      });
    });
}

TEST_CASE("a parameter in a group that does not exist is refused by name") {
  on_ranks(1, [](Communicator& communicator) {
    Model model;
    model.module("m").add("odd", {3}, {.group = 2});
    const std::string message = message_of([&] {
      make_trainer(StrategyName::NoShard, PrecisionName::Fp32, communicator, model, AdamW{}, {});
    });
    CHECK(contains(message, "m.odd"));
    CHECK(contains(message, "2"));
  });
}

TEST_CASE("frozen parameters keep their bits, have no gradient and one copy") {
  const TestModel test;
  for (const PrecisionName precision : all_precisions) {
    const auto run = [&](int steps) {
      return same_everywhere([&](Training& training) {
        training.precision = precision;
        training.steps = steps;
      });
    };
    CHECK(master(run(0), test.frozen) == master(run(3), test.frozen));
  }
  Training training;
  training.world = 4;
  training.precision = PrecisionName::Bf16Mixed;
  training.steps = 0;
  training.hooks.before_training = [&](Trainer& trainer, Communicator&) {
    const Plan& plan = trainer.plan();
    const int index = plan.flat_of_parameter[static_cast<std::size_t>(test.frozen.index)];
    Bytes bytes = 0;
    for (const Block& block : plan.blocks) {
      const bool of_flat = block.role == Role::Master || block.role == Role::Compute ||
                           block.role == Role::Whole || block.role == Role::Gradient ||
                           block.role == Role::State || block.role == Role::Partial;
      if (of_flat && block.owner == index) bytes += block.bytes;
    }
    const Flat& flat = plan.flats[static_cast<std::size_t>(index)];
    CHECK(bytes == flat.partition.slice() * size_of(flat.compute));
    CHECK(trainer.engine().local(test.frozen.index).states.empty());
    trainer.backward(test.blocks[2], [&](const Views& views) {
      CHECK(contains(message_of([&] { views.gradients(test.frozen); }), "frozen"));
    });
    trainer.discard_step();
  };
  train(training);
}

TEST_CASE("hyper-parameters may change at every step") {
  const auto schedule = [](int step) {
    return AdamW{.lr = 1e-2 * (step + 1), .weight_decay = 0.1};
  };
  const Trained scheduled = same_everywhere([&](Training& training) {
    training.optimizer = schedule(0);
    training.hooks.before_step = [&](Trainer& trainer, Communicator&, int step) {
      trainer.engine().set_optimizer(schedule(step));
    };
  });
  const Trained constant =
      same_everywhere([&](Training& training) { training.optimizer = schedule(0); });
  CHECK(scheduled.hash() != constant.hash());
  // Set for the first step only, then as it was: equal to never having been set.
  const Trained same = same_everywhere([&](Training& training) {
    training.optimizer = schedule(0);
    training.hooks.before_step = [&](Trainer& trainer, Communicator&, int) {
      trainer.engine().set_optimizer(schedule(0));
    };
  });
  CHECK(same.hash() == constant.hash());
}

TEST_CASE("set_optimizer refuses another type and values out of range, and keeps what was") {
  const Trained plain = same_everywhere([](Training&) {});
  const Trained refused = same_everywhere([](Training& training) {
    training.hooks.before_step = [](Trainer& trainer, Communicator&, int) {
      const std::string message = message_of([&] { trainer.engine().set_optimizer(Lion{}); });
      CHECK(contains(message, "adamw"));
      CHECK(contains(message, "lion"));
      CHECK(contains(message_of([&] { trainer.engine().set_optimizer(AdamW{.lr = -1}); }), "lr"));
    };
  });
  CHECK(plain.hash() == refused.hash());
}

TEST_CASE("a user's functor runs in every precision and strategy, with groups") {
  for (const PrecisionName precision : all_precisions) {
    const Trained trained = same_everywhere([&](Training& training) {
      training.precision = precision;
      training.optimizer = Drift{};
      training.micro_steps = 2;
      training.options.reduce_moment = ReduceMoment::Micro;
    });
    CHECK(trained.states.size() == 2);
    for (const StepReport& report : trained.reports) CHECK(!report.skipped);
  }
}

TEST_CASE("a user's functor moves what it says") {
  on_ranks(2, [](Communicator& communicator) {
    Model model;
    Module module = model.module("m");
    const Parameter parameter = module.add("p", {70});
    const auto trainer = make_trainer(StrategyName::FullShard, PrecisionName::Fp64, communicator,
                                      model, Drift{.lr = 0.5}, {});
    trainer->initialize(init::constant{1});
    double weight = 1, trace = 0;
    for (int step = 0; step < 3; ++step) {
      trainer->backward(module, [&](const Views& views) {
        const Values gradient = views.gradients(parameter);
        for (Elements i = 0; i < 70; ++i) gradient.set(i, 0.25);
      });
      trainer->step();
      trace = 0.75 * trace + 0.25;
      weight -= 0.5 * trace;
    }
    trainer->summon_full(module, [&](const Views& views) {
      for (Elements i = 0; i < 70; ++i) CHECK(views.weights(parameter).get(i) == weight);
    });
  });
}

TEST_CASE("a functor that moves zeros is refused: padding must stay zero") {
  CHECK(contains(message_of([] { Optimizer{Restless{}}; }), "zero"));
  CHECK(contains(message_of([] { Optimizer{AdamW{.eps = 0}}; }), "eps"));
}

TEST_CASE("parameters of many dtypes, frozen and trainable, in one module") {
  for (const PrecisionName precision : all_precisions) {
    std::optional<std::vector<double>> values;
    for (const StrategyName strategy : all_strategies)
      for (const int world : {1, 4})
        on_ranks(world, [&](Communicator& communicator) {
          Model model;
          Module module = model.module("m");
          std::vector<Parameter> trainable, all;
          for (const DType dtype :
               {DType::Float64, DType::Float32, DType::BFloat16, DType::Float16}) {
            const std::string name(name_of(dtype));
            trainable.push_back(module.add(name, {13}, {.dtype = dtype}));
            all.push_back(trainable.back());
            all.push_back(
                module.add("frozen_" + name, {7}, {.requires_grad = false, .dtype = dtype}));
          }
          const auto trainer =
              make_trainer(strategy, precision, communicator, model, AdamW{.lr = 0.125},
                           {.max_grad_norm = 1, .loss_scale = scale_settings(precision, 64)});
          trainer->initialize(init::normal{1, 5});
          for (int step = 0; step < 2; ++step) {
            trainer->forward(module, [](const Views&) {});
            trainer->backward(module, [&](const Views& views) {
              for (const Parameter parameter : trainable) {
                const Values gradient = views.gradients(parameter);
                for (Elements i = 0; i < gradient.count; ++i)
                  gradient.set(i, 0.5 * static_cast<double>(*trainer->loss_scale()));
              }
            });
            const StepReport report = trainer->step({.gradient_divisor = 1.0 * world}).wait();
            CHECK(report.grad_norm == doctest::Approx(std::sqrt(4 * 13 * 0.25)));
          }
          std::vector<double> found;
          trainer->summon_full(module, [&](const Views& views) {
            for (const Parameter parameter : all)
              for (Elements i = 0; i < views.weights(parameter).count; ++i)
                found.push_back(views.weights(parameter).get(i));
          });
          if (communicator.rank() != 0) return;
          if (!values) values = found;
          CHECK(found == *values);
        });
  }
}
