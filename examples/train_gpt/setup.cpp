#include <flatshard/flatshard.hpp>

#include <cstdio>

#include "option_error.hpp"
#include "trainer.hpp"

namespace train_gpt {
namespace {

constexpr int decaying = 0;      // hyper-parameter group of matrices
constexpr int not_decaying = 1;  // of biases and norms

flatshard::Optimizer make_optimizer(const Options& o) {
  switch (o.optimizer) {
    case Optimizer::adamw:
      return flatshard::AdamW{.lr = o.lr, .beta2 = 0.99, .weight_decay = o.weight_decay};
    case Optimizer::adam:
      return flatshard::Adam{.lr = o.lr, .beta2 = 0.99, .weight_decay = o.weight_decay};
    case Optimizer::amsgrad:
      return flatshard::AMSGrad{.lr = o.lr,
                                .beta2 = 0.99,
                                .weight_decay = o.weight_decay,
                                .decoupled_weight_decay = true};
    case Optimizer::nadam:
      return flatshard::NAdam{.lr = o.lr,
                              .beta2 = 0.99,
                              .weight_decay = o.weight_decay,
                              .decoupled_weight_decay = true};
    case Optimizer::rmsprop:
      return flatshard::CenteredRMSPropMomentum{
          .lr = o.lr, .weight_decay = o.weight_decay, .momentum = 0.9};
    case Optimizer::sgd:
      return flatshard::SGD{.lr = o.lr, .momentum = 0.9, .weight_decay = o.weight_decay};
    case Optimizer::adagrad:
      return flatshard::Adagrad{.lr = o.lr, .weight_decay = o.weight_decay};
    case Optimizer::lion:
      break;
  }
  return flatshard::Lion{.lr = o.lr, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = o.weight_decay};
}

flatshard::WrapPolicy make_wrap(const Options& o) {
  if (o.wrap == Wrap::all) return flatshard::wrap::all_in_one();
  return o.wrap == Wrap::size ? flatshard::wrap::up_to(o.wrap_size)
                              : flatshard::wrap::each_module();
}

std::optional<flatshard::ScaleSettings> make_scale(const Options& o) {
  if (!scales_loss(o.precision)) return {};
  const double initial = o.initial_scale.value_or(65536);
  switch (o.scaler.value_or(Scaler::torch)) {
    case Scaler::torch:
      return flatshard::LossScaler::torch(initial).settings;
    case Scaler::deepspeed:
      return flatshard::LossScaler::deepspeed(initial).settings;
    case Scaler::constant:
      break;
  }
  return flatshard::LossScaler::constant(o.static_scale).settings;
}

/// Throws flatshard::UsageError before any rank would.
std::optional<flatshard::ScaleSettings> make_valid_scale(const Options& o) {
  const std::optional<flatshard::ScaleSettings> scale = make_scale(o);
  if (scale) flatshard::validate(*scale);
  return scale;
}

flatshard::Options make_options(const Options& o) {
  flatshard::Options options;
  options.max_grad_norm = o.clip;
  options.max_micro_steps = o.accumulate;
  options.accumulation = o.accumulation;
  options.reduce_moment = o.reduce;
  options.shard_group = o.shard_group;
  options.wrap = make_wrap(o);
  options.prefetch_forward = o.prefetch_forward;
  options.prefetch_backward = o.prefetch_backward;
  options.max_live_elements = o.max_live.value_or(flatshard::unlimited_elements);
  options.persistence_threshold = o.persist;
  options.step_in_backward = o.step_in_backward;
  options.loss_scale = make_valid_scale(o);
  options.groups = {{}, {.weight_decay = false}};
  options.seed = o.seed;
  options.offload = o.offload;
  options.pinned_budget = o.host_budget;
  options.nvme.folder = o.nvme;
  options.on_warning = [](std::string_view message) {
    std::fprintf(stderr, "train_gpt: %.*s\n", static_cast<int>(message.size()), message.data());
  };
  return options;
}

flatshard::Initializer start_of(const ParameterSpec& parameter, std::uint64_t seed) {
  if (parameter.start == Start::normal) return flatshard::init::normal{parameter.value, seed};
  return flatshard::init::constant{parameter.value};
}

void add_module(Setup& setup, const ModuleSpec& module, std::uint64_t seed) {
  const bool root = module.name.empty();  // used at both ends: embedding and head
  setup.modules.push_back(
      setup.model.module(module.name, {.uses = root ? 2 : 1, .backward_overwrites = !root}));
  auto& handles = setup.handles.emplace_back();
  auto& starts = setup.starts.emplace_back();
  for (const ParameterSpec& parameter : module.parameters) {
    handles.push_back(setup.modules.back().add(
        parameter.name, parameter.shape, {.group = parameter.decays ? decaying : not_decaying}));
    starts.push_back(start_of(parameter, seed));
  }
}

}  // namespace

std::unique_ptr<const Setup> make_setup(const Options& options) {
  auto setup = std::unique_ptr<Setup>(
      new Setup{{}, {}, {}, {}, make_optimizer(options), make_options(options)});
  for (const ModuleSpec& module : model_modules(options.model))
    add_module(*setup, module, options.seed);
  return setup;
}

}  // namespace train_gpt
