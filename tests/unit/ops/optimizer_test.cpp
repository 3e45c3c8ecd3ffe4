#include <flatshard/core/error.hpp>
#include <flatshard/ops/adam.hpp>
#include <flatshard/ops/amsgrad.hpp>
#include <flatshard/ops/cuda_steps.hpp>
#include <flatshard/ops/nadam.hpp>
#include <flatshard/ops/optimizer.hpp>
#include <flatshard/ops/rmsprop.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

namespace flatshard {
namespace {

constexpr StepRow plain{DType::Float32, DType::Float32, DType::Float32,
                        DType::Float32, false,          false};

/// A user's functor: no state, no name, no validate.
struct Descent {
  double rate = 0.5;
  static constexpr std::array<std::string_view, 0> state_names{};
  template <class Real>
  struct Coefficients {
    Real rate;
  };
  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Coefficients<Real> coefficients(std::int64_t) const {
    return {static_cast<Real>(rate)};
  }
  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE static void update(const Coefficients<Real>& with,
                                                            Real& parameter, Real gradient, Real*) {
    parameter = exact::fma(-with.rate, gradient, parameter);
  }
};

/// Moves zeros: refused.
struct Drift : Descent {
  template <class Real>
  FLATSHARD_INLINE FLATSHARD_HOST_DEVICE static void update(const Coefficients<Real>& with,
                                                            Real& parameter, Real gradient, Real*) {
    parameter = exact::add(parameter, exact::add(gradient, with.rate));
  }
};

template <class Functor>
Functor functor_of(const Optimizer& optimizer) {
  return detail::functor_from<Functor>(optimizer.functor());
}

template <class Make>
std::string message_of(const Make& make) {
  try {
    make();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("an optimizer knows its states, its name and its hyper-parameters") {
  const AdamW adamw{.lr = 0.25};
  const Optimizer optimizer = adamw;
  CHECK(optimizer.name() == "adamw");
  CHECK(optimizer.states() == 2);
  CHECK(optimizer.state_names()[1] == "exp_avg_sq");
  CHECK(functor_of<AdamW>(optimizer) == adamw);
  CHECK(Optimizer(Lion{}).state_names()[0] == "exp_avg");
  CHECK(Optimizer(SGD{}).states() == 1);
  CHECK(Optimizer(AMSGrad{}).state_names()[2] == "max_exp_avg_sq");
  CHECK(Optimizer(RMSProp{}).states() == 1);
  CHECK(Optimizer(RMSPropMomentum{}).state_names()[1] == "momentum_buffer");
  CHECK(Optimizer(CenteredRMSProp{}).state_names()[1] == "grad_avg");
  CHECK(Optimizer(CenteredRMSPropMomentum{}).state_names()[2] == "grad_avg");
  CHECK(Optimizer(Descent{}).states() == 0);
  CHECK(Optimizer(Descent{}).name() == "custom");
}

TEST_CASE("parameter groups scale the learning rate and drop the weight decay") {
  const Optimizer optimizer = AdamW{.lr = 0.5, .weight_decay = 0.25};
  CHECK(functor_of<AdamW>(optimizer.adjusted({})) == AdamW{.lr = 0.5, .weight_decay = 0.25});
  CHECK(functor_of<AdamW>(optimizer.adjusted({.lr_factor = 0.5})) ==
        AdamW{.lr = 0.25, .weight_decay = 0.25});
  CHECK(functor_of<AdamW>(optimizer.adjusted({.weight_decay = false})) ==
        AdamW{.lr = 0.5, .weight_decay = 0});
  CHECK(has(message_of([&] { optimizer.adjusted({.lr_factor = -1}); }), "lr is -0.5"));
  CHECK(functor_of<CenteredRMSProp>(Optimizer(CenteredRMSProp{.lr = 0.5, .weight_decay = 0.25})
                                        .adjusted({.lr_factor = 0.5, .weight_decay = false})) ==
        CenteredRMSProp{.lr = 0.25, .weight_decay = 0});
}

TEST_CASE("a functor without lr cannot have it scaled, one without weight_decay has none to drop") {
  const Optimizer optimizer = Descent{};
  CHECK(functor_of<Descent>(optimizer.adjusted({.weight_decay = false})).rate == 0.5);
  CHECK(has(message_of([&] { optimizer.adjusted({.lr_factor = 2}); }), "no member lr"));
}

TEST_CASE("only the same functor type can take an optimizer's place") {
  CHECK(Optimizer(AdamW{}).has_type_of(Optimizer(AdamW{.lr = 9})));
  CHECK(!Optimizer(AdamW{}).has_type_of(Optimizer(Lion{})));
  CHECK(!Optimizer(Descent{}).has_type_of(Optimizer(SGD{})));
}

template <class... Types>
std::vector<StepRow> rows_of(StepRowList<Types...>) {
  return {Types::row()...};
}

TEST_CASE("every row is built for every optimizer, other rows are refused by name") {
  for (const Optimizer& optimizer :
       {Optimizer(AdamW{}), Optimizer(SGD{}), Optimizer(Lion{}), Optimizer(Adagrad{}),
        Optimizer(Adam{}), Optimizer(AMSGrad{}), Optimizer(NAdam{}), Optimizer(RMSProp{}),
        Optimizer(RMSPropMomentum{}), Optimizer(CenteredRMSProp{}),
        Optimizer(CenteredRMSPropMomentum{}), Optimizer(Descent{})}) {
    for (const StepRow& row : rows_of(HostStepRows{}))
      CHECK(bool(optimizer.host_step(row) != nullptr));
    StepRow row = plain;
    row.state = DType::Float8E5M2;
    const std::string message = message_of([&] { optimizer.host_step(row); });
    CHECK(has(message, optimizer.name().data()));
    CHECK(has(message, "state float8_e5m2"));
  }
}

/// A user's functor with a CUDA step, or what stands for one here.
struct Rise : Descent {};

void rise(std::span<const StepArguments>, void*, void*) {}

CudaStep find_rise(const StepRow& row) { return row == plain ? rise : nullptr; }

TEST_CASE("the CUDA step of a functor is what its .cu file registered") {
  const Optimizer optimizer = Rise{};
  CHECK(has(message_of([&] { optimizer.cuda_step(plain); }), "no CUDA step is registered"));
  register_cuda_step(typeid(Rise), find_rise);
  CHECK(bool(optimizer.cuda_step(plain) == rise));
  StepRow row = plain;
  row.master = DType::Float16;
  CHECK(has(message_of([&] { optimizer.cuda_step(row); }), "master float16"));
  CHECK(has(message_of([&] { Optimizer(Descent{}).cuda_step(plain); }), "step.cuh"));
}

TEST_CASE("a user's functor runs as any other") {
  const Optimizer optimizer = Descent{};
  float parameters[] = {1, 2, 3};
  const float gradients[] = {2, 4, -6};
  const StepScalars scalars{0.5, 1};
  const std::int64_t time = 1;
  StepArguments arguments{};
  arguments.master = parameters;
  arguments.gradient = gradients;
  arguments.count = 3;
  arguments.scalars = &scalars;
  arguments.time = &time;
  arguments.row = plain;
  arguments.functor = optimizer.functor();
  optimizer.host_step(plain)(arguments);
  CHECK(parameters[0] == 0.5F);
  CHECK(parameters[1] == 1);
  CHECK(parameters[2] == 4.5F);
}

TEST_CASE("hyper-parameters out of range are refused by name and value") {
  const auto refuses = [](const auto& functor, const std::string& part) {
    return has(message_of([&] { Optimizer{functor}; }), part);
  };
  CHECK(refuses(AdamW{.lr = -1}, "lr is -1"));
  CHECK(refuses(AdamW{.lr = NAN}, "lr is nan"));
  CHECK(refuses(AdamW{.beta1 = 1}, "beta1 is 1"));
  CHECK(refuses(AdamW{.beta2 = -0.1}, "beta2 is -0.1"));
  CHECK(refuses(AdamW{.eps = 0}, "eps is 0"));
  CHECK(refuses(AdamW{.eps = 1e-60}, "eps is 1e-60"));
  CHECK(refuses(AdamW{.weight_decay = INFINITY}, "weight_decay is inf"));
  CHECK(refuses(SGD{.momentum = -0.5}, "momentum is -0.5"));
  CHECK(refuses(SGD{.momentum = 0.5, .dampening = 1.5}, "dampening is 1.5"));
  CHECK(refuses(SGD{.nesterov = true}, "nesterov"));
  CHECK(refuses(SGD{.momentum = 0.5, .dampening = 0.5, .nesterov = true}, "nesterov"));
  CHECK(refuses(Lion{.beta2 = 1}, "beta2 is 1"));
  CHECK(refuses(Adagrad{.lr = -1}, "lr is -1"));
  CHECK(refuses(Adagrad{.lr_decay = -1}, "lr_decay is -1"));
  CHECK(refuses(Adagrad{.weight_decay = NAN}, "weight_decay is nan"));
  CHECK(refuses(Adagrad{.eps = 0}, "eps is 0"));
  CHECK(refuses(Lion{.lr = -1e-9}, "lr is -1e-09"));
  CHECK(refuses(Adam{.lr = -1}, "Adam: lr is -1"));
  CHECK(refuses(Adam{.beta1 = 1}, "beta1 is 1"));
  CHECK(refuses(Adam{.beta2 = NAN}, "beta2 is nan"));
  CHECK(refuses(Adam{.eps = 0}, "eps is 0"));
  CHECK(refuses(Adam{.weight_decay = -1}, "weight_decay is -1"));
  CHECK(refuses(AMSGrad{.lr = INFINITY}, "AMSGrad: lr is inf"));
  CHECK(refuses(AMSGrad{.beta2 = 1}, "beta2 is 1"));
  CHECK(refuses(AMSGrad{.eps = 1e-60}, "eps is 1e-60"));
  CHECK(refuses(NAdam{.beta1 = 1}, "NAdam: beta1 is 1"));
  CHECK(refuses(NAdam{.eps = -1}, "eps is -1"));
  CHECK(refuses(NAdam{.momentum_decay = -0.5}, "momentum_decay is -0.5"));
  CHECK(refuses(NAdam{.momentum_decay = NAN}, "momentum_decay is nan"));
  CHECK(refuses(RMSProp{.alpha = 1}, "RMSProp: alpha is 1"));
  CHECK(refuses(RMSProp{.eps = 0}, "eps is 0"));
  CHECK(refuses(RMSPropMomentum{.momentum = -1}, "RMSPropMomentum: momentum is -1"));
  CHECK(refuses(CenteredRMSProp{.lr = -1}, "CenteredRMSProp: lr is -1"));
  CHECK(refuses(CenteredRMSPropMomentum{.weight_decay = -1}, "weight_decay is -1"));
  CHECK(refuses(SGD{.momentum = 0.5, .nesterov = true}, "no UsageError"));
}

TEST_CASE("hyper-parameters are read and set by name; a functor may publish none") {
  const SGD sgd{.lr = 0.25, .momentum = 0.5, .nesterov = true};
  const std::vector<HyperParameter> expected{{"lr", 0.25},     {"momentum", 0.5},
                                             {"dampening", 0}, {"weight_decay", 0},
                                             {"nesterov", 1},  {"maximize", 0}};
  CHECK(Optimizer(sgd).hyper_parameters() == expected);
  CHECK(functor_of<SGD>(Optimizer(SGD{}).with(expected)) == sgd);  // not the bytes between members
  CHECK(Optimizer(Lion{}).hyper_parameters().size() == 4);
  const std::vector<HyperParameter> changed{{"eps", 0.5}, {"beta1", 0.25}};
  CHECK(functor_of<AdamW>(Optimizer(AdamW{}).with(changed)) == AdamW{.beta1 = 0.25, .eps = 0.5});
  const RMSPropMomentum rmsprop{.momentum = 0.5, .maximize = true};
  const std::vector<HyperParameter> published = Optimizer(rmsprop).hyper_parameters();
  CHECK(published.size() == 6);
  CHECK(functor_of<RMSPropMomentum>(Optimizer(RMSPropMomentum{}).with(published)) == rmsprop);
  CHECK(Optimizer(RMSProp{}).hyper_parameters().size() == 5);  // without a momentum
  const NAdam nadam{.momentum_decay = 0.25, .decoupled_weight_decay = true};
  CHECK(functor_of<NAdam>(Optimizer(NAdam{}).with(Optimizer(nadam).hyper_parameters())) == nadam);
  CHECK(Optimizer(Descent{}).hyper_parameters().empty());
  const std::vector<HyperParameter> unknown{{"rho", 1}};
  CHECK(has(message_of([&] { Optimizer(AdamW{}).with(unknown); }), "'rho'"));
  const std::vector<HyperParameter> bad{{"beta1", 2}};
  CHECK(has(message_of([&] { Optimizer(AdamW{}).with(bad); }), "beta1 is 2"));
}

TEST_CASE("a functor that moves zeros is refused: padding must stay zero") {
  CHECK(has(message_of([] { Optimizer{Drift{}}; }), "padding"));
}

}  // namespace
}  // namespace flatshard
