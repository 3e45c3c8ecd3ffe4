// Parameters that begin or cease to train: a new Sharder takes over.
#include <flatshard/sharder/carry_over.hpp>

#include <doctest/doctest.h>

#include "random.hpp"
#include "training.hpp"

namespace sharder_test {
namespace {

/// A module of a weight, with these options, and a bias that always trains.
struct Layer {
  explicit Layer(const ParameterOptions& of_weight)
      : module(model.module("m")),
        weight(module.add("weight", {40, 3}, of_weight)),
        bias(module.add("bias", {5})) {}
  Model model;
  Module module;
  Parameter weight, bias;
};

const ParameterOptions frozen{.requires_grad = false};
const ParameterOptions later{.time_group = 1};

struct Side {
  Side(Communicator& communicator, Device& device, StrategyName strategy, PrecisionName precision,
       const ParameterOptions& of_weight)
      : layer(of_weight) {
    Options options;
    options.device = &device;
    trainer =
        make_trainer(strategy, precision, communicator, layer.model, AdamW{.lr = 0.1}, options);
  }

  /// A step whose gradients depend on the number of the step, the parameter and the element.
  void step(int number) {
    const bool trains = layer.model.parameters()[0].options.requires_grad;
    trainer->backward(layer.module, [&](const Views& views) {
      for (const Parameter parameter : {layer.weight, layer.bias}) {
        if (parameter == layer.weight && !trains) continue;
        const Values gradient = views.gradients(parameter);
        for (Elements i = 0; i < gradient.count; ++i)
          gradient.set(i, noise(number, trainer->rank(), parameter.index, i, 0));
      }
    });
    trainer->step().wait();
  }

  std::vector<double> values(Parameter parameter) {
    std::vector<double> values;
    trainer->summon_full(layer.module, [&](const Views& views) {
      const Values view = views.weights(parameter);
      for (Elements i = 0; i < view.count; ++i) values.push_back(view.get(i));
    });
    return values;
  }

  void assign(Parameter parameter, const std::vector<double>& values) {
    trainer->engine().assign(parameter.index, values.data(), DType::Float64);
  }

  std::int64_t time_of(Parameter parameter) {
    const auto flat = static_cast<std::size_t>(
        trainer->plan().flat_of_parameter[static_cast<std::size_t>(parameter.index)]);
    return trainer->engine().training_state().times[flat];
  }

  Layer layer;
  std::unique_ptr<Trainer> trainer;
};

/// act(communicator, device, strategy, precision) on two ranks, everywhere.
template <class Act>
void everywhere(const Act& act) {
  for (const StrategyName strategy : all_strategies)
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed})
      ThreadWorld(2).run([&](Communicator& communicator) {
        HostDevice device;
        CAPTURE(name_of(strategy));
        CAPTURE(name_of(precision));
        act(communicator, device, strategy, precision);
      });
}

TEST_CASE("what begins to train has its first update first, the rest goes on") {
  everywhere([](Communicator& communicator, Device& device, StrategyName strategy,
                PrecisionName precision) {
    Side old(communicator, device, strategy, precision, frozen);
    old.trainer->initialize(init::normal{0.5, 3});
    old.step(1);
    old.step(2);
    Side fresh(communicator, device, StrategyName::FullShard, precision, later);
    carry_over(old.trainer->engine(), fresh.trainer->engine());
    CHECK(fresh.values(fresh.layer.weight) == old.values(old.layer.weight));
    CHECK(fresh.values(fresh.layer.bias) == old.values(old.layer.bias));
    CHECK(fresh.time_of(fresh.layer.weight) == 0);
    CHECK(fresh.time_of(fresh.layer.bias) == 2);

    Side anew(communicator, device, StrategyName::FullShard, precision, later);
    for (const Parameter parameter : {anew.layer.weight, anew.layer.bias})
      anew.assign(parameter, old.values(parameter));
    for (Side* side : {&old, &fresh, &anew}) side->step(3);
    CHECK(fresh.values(fresh.layer.weight) == anew.values(anew.layer.weight));
    CHECK(fresh.values(fresh.layer.bias) == old.values(old.layer.bias));
    CHECK(fresh.values(fresh.layer.bias) != anew.values(anew.layer.bias));  // has momentum
  });
}

TEST_CASE("what ceases to train keeps the values that forward saw") {
  everywhere([](Communicator& communicator, Device& device, StrategyName strategy,
                PrecisionName precision) {
    Side old(communicator, device, StrategyName::FullShard, precision, {});
    old.trainer->initialize(init::normal{0.5, 3});
    old.step(1);
    std::vector<double> seen;
    old.trainer->forward(old.layer.module, [&](const Views& views) {
      const Values view = views.weights(old.layer.weight);
      for (Elements i = 0; i < view.count; ++i) seen.push_back(view.get(i));
    });
    old.trainer->discard_step();
    Side fresh(communicator, device, strategy, precision, frozen);
    carry_over(old.trainer->engine(), fresh.trainer->engine());
    CHECK(fresh.values(fresh.layer.weight) == seen);
    old.step(2);
    fresh.step(2);
    CHECK(fresh.values(fresh.layer.bias) == old.values(old.layer.bias));
    CHECK(fresh.values(fresh.layer.weight) == seen);
    CHECK(old.values(old.layer.weight) != seen);
  });
}

TEST_CASE("states of what trains again start from zero in a Sharder that had some") {
  ThreadWorld(2).run([](Communicator& communicator) {
    HostDevice device;
    Side first(communicator, device, StrategyName::FullShard, PrecisionName::Fp32, later);
    first.trainer->initialize(init::normal{0.5, 3});
    first.step(1);
    Side second(communicator, device, StrategyName::NoShard, PrecisionName::Fp32, frozen);
    carry_over(first.trainer->engine(), second.trainer->engine());
    second.step(2);
    carry_over(second.trainer->engine(), first.trainer->engine());
    CHECK(first.time_of(first.layer.weight) == 0);
    CHECK(first.time_of(first.layer.bias) == 2);
    const LocalShard local = first.trainer->engine().local(first.layer.weight.index);
    for (const std::byte* state : local.states)
      for (Elements i = 0; i < local.count; ++i)
        CHECK(reinterpret_cast<const float*>(state)[i] == 0);
  });
}

TEST_CASE("parameters that one flat counts together cannot begin at different times") {
  ThreadWorld(2).run([](Communicator& communicator) {
    HostDevice device;
    const auto make = [&](const ParameterOptions& of_weight) {
      return Side(communicator, device, StrategyName::FullShard, PrecisionName::Fp32, of_weight);
    };
    Side old = make(frozen), together = make({});
    old.step(1);
    const std::vector<double> before = together.values(together.layer.weight);
    const std::string message =
        message_of([&] { carry_over(old.trainer->engine(), together.trainer->engine()); });
    CHECK(contains(message, "'m.weight' was updated 0 times and 'm.bias' 1 times"));
    CHECK(contains(message, "ParameterOptions::time_group"));
    CHECK(together.values(together.layer.weight) == before);
    CHECK(together.time_of(together.layer.bias) == 0);
  });
}

}  // namespace
}  // namespace sharder_test
