// Names of policies and options, to the Plan.
#include "plan_request.hpp"

#include <flatshard/core/error.hpp>
#include <flatshard/ops/adam.hpp>
#include <flatshard/ops/amsgrad.hpp>
#include <flatshard/ops/nadam.hpp>
#include <flatshard/ops/rmsprop.hpp>
#include <flatshard/policy/aliases.hpp>

#include <array>
#include <charconv>

#include "error.hpp"
#include "plan_model.hpp"

namespace flatshard_tool {
namespace {

namespace strategy = flatshard::strategy;
namespace precision = flatshard::precision;

template <class Meaning>
struct Choice {
  std::string_view name;
  Meaning meaning;
};

constexpr std::array<Choice<flatshard::StrategyTraits>, 7> strategy_choices{{
    {"no_shard", flatshard::strategy_traits<strategy::NoShard>()},
    {"shard_optimizer", flatshard::strategy_traits<strategy::ShardOptimizer>()},
    {"shard_grad_op", flatshard::strategy_traits<strategy::ShardGradOp>()},
    {"full_shard", flatshard::strategy_traits<strategy::FullShard>()},
    {"hybrid_shard", flatshard::strategy_traits<strategy::HybridShard>()},
    {"hybrid_shard_grad_op", flatshard::strategy_traits<strategy::HybridShardGradOp>()},
    {"full_shard_secondary", flatshard::strategy_traits<strategy::FullShardSecondary>()},
}};

template <class Policy>
constexpr flatshard::PrecisionTraits roles = flatshard::precision_traits<Policy>();

constexpr std::array<Choice<flatshard::PrecisionTraits>, 9> precision_choices{{
    {"fp32", roles<precision::Full<float>>},
    {"fp64", roles<precision::Full<double>>},
    {"bf16", roles<precision::Full<flatshard::Bf16>>},
    {"fp16", roles<precision::Full<flatshard::Half>>},
    {"bf16_mixed", roles<precision::Bf16Mixed>},
    {"deepspeed_bf16", roles<precision::DeepSpeedBf16>},
    {"fp16_mixed", roles<precision::Fp16Mixed>},
    {"fp16_mixed_fp32_reduce",
     roles<precision::Fp16MixedScaling<flatshard::LossScaling::Torch, float>>},
    {"bf16_stochastic", roles<precision::Bf16Stochastic>},
}};

constexpr std::array<Choice<std::size_t>, 11> optimizers{{
    {flatshard::AdamW::name, flatshard::AdamW::state_names.size()},
    {flatshard::Adam::name, flatshard::Adam::state_names.size()},
    {flatshard::AMSGrad::name, flatshard::AMSGrad::state_names.size()},
    {flatshard::NAdam::name, flatshard::NAdam::state_names.size()},
    {flatshard::RMSProp::name, flatshard::RMSProp::state_names.size()},
    {flatshard::RMSPropMomentum::name, flatshard::RMSPropMomentum::state_names.size()},
    {flatshard::CenteredRMSProp::name, flatshard::CenteredRMSProp::state_names.size()},
    {flatshard::CenteredRMSPropMomentum::name,
     flatshard::CenteredRMSPropMomentum::state_names.size()},
    {flatshard::SGD::name, flatshard::SGD::state_names.size()},
    {flatshard::Lion::name, flatshard::Lion::state_names.size()},
    {flatshard::Adagrad::name, flatshard::Adagrad::state_names.size()},
}};

constexpr std::array<Choice<flatshard::OffloadTraits>, 7> offloads{{
    {"none", flatshard::offload_traits<flatshard::offload::None>()},
    {"cpu_all", flatshard::offload_traits<flatshard::fsdp::CPUOffload>()},
    {"cpu_optimizer", flatshard::offload_traits<flatshard::zero::Offload>()},
    {"cpu_params",
     flatshard::offload_traits<
         flatshard::offload::Place<flatshard::offload::Cpu, flatshard::offload::Device>>()},
    {"nvme_all", {flatshard::Tier::Nvme, flatshard::Tier::Nvme}},
    {"nvme_optimizer", {flatshard::Tier::Device, flatshard::Tier::Nvme}},
    {"nvme_params", {flatshard::Tier::Nvme, flatshard::Tier::Device}},
}};

constexpr std::array<Choice<flatshard::Accumulation>, 2> accumulations{
    {{"running", flatshard::Accumulation::Running}, {"tree", flatshard::Accumulation::Tree}}};

constexpr std::array<Choice<flatshard::ReduceMoment>, 3> moments{
    {{"micro", flatshard::ReduceMoment::Micro},
     {"boundary", flatshard::ReduceMoment::Boundary},
     {"replica_boundary", flatshard::ReduceMoment::ReplicaBoundary}}};

constexpr std::array<Choice<flatshard::BackwardPrefetch>, 3> prefetches{
    {{"pre", flatshard::BackwardPrefetch::Pre},
     {"post", flatshard::BackwardPrefetch::Post},
     {"none", flatshard::BackwardPrefetch::None}}};

template <class Choices>
const auto& chosen(const char* option, const std::string& name, const Choices& choices) {
  std::string names;
  for (const auto& choice : choices) {
    if (choice.name == name) return choice.meaning;
    names.append(names.empty() ? "" : ", ").append(choice.name);
  }
  throw RequestError(std::string(option) + " takes one of " + names + ", not '" + name + "'");
}

flatshard::WrapPolicy wrap_named(const std::string& name) {
  if (name == "module") return flatshard::wrap::each_module();
  if (name == "all") return flatshard::wrap::all_in_one();
  constexpr std::string_view size = "size:";
  flatshard::Elements most = 0;
  const char* end = name.data() + name.size();
  if (name.starts_with(size)) {
    const auto [stop, error] = std::from_chars(name.data() + size.size(), end, most);
    if (error == std::errc{} && stop == end && most >= 1) return flatshard::wrap::up_to(most);
  }
  throw RequestError("--wrap takes one of module, all, size:ELEMENTS, not '" + name + "'");
}

flatshard::Model model_of(const PlanQuestion& question) {
  const int given = static_cast<int>(!question.path.empty()) +
                    static_cast<int>(!question.gpt.empty()) +
                    static_cast<int>(!question.shapes.empty());
  if (given != 1) throw RequestError("plan needs one of: a PATH, --gpt, --shapes");
  if (!question.gpt.empty()) return gpt_model(parse_gpt(question.gpt));
  return question.shapes.empty() ? model_of_file(question.path) : model_of_shapes(question.shapes);
}

void expect_group(const PlanQuestion& question, const flatshard::StrategyTraits& traits) {
  const bool has_group = traits.scope == flatshard::ShardScope::Group || traits.secondary_shard;
  if (question.options.shard_group != 0 && !has_group)
    throw RequestError("--shard-group means nothing to --strategy " + question.strategy +
                       ", only to hybrid_shard, hybrid_shard_grad_op and full_shard_secondary");
}

void expect_no_loss_scaling(const PlanQuestion& question,
                            const flatshard::PrecisionTraits& traits) {
  if (question.options.step_in_backward && traits.loss_scaling != flatshard::LossScaling::Off)
    throw RequestError(
        "--step-in-backward cannot be combined with the loss scaling of "
        "--precision " +
        question.precision + ": an overflow is known only after all of backward");
}

}  // namespace

PlannedRun planned_run(const PlanQuestion& question) {
  PlannedRun run;
  run.request.strategy = chosen("--strategy", question.strategy, strategy_choices);
  run.request.precision = chosen("--precision", question.precision, precision_choices);
  run.request.offload = chosen("--offload", question.offload, offloads);
  run.request.world = question.world;
  run.request.optimizer_states =
      static_cast<int>(chosen("--optimizer", question.optimizer, optimizers));
  expect_group(question, run.request.strategy);
  expect_no_loss_scaling(question, run.request.precision);
  run.options = question.options;
  run.options.accumulation = chosen("--accumulation", question.accumulation, accumulations);
  if (!question.reduce.empty())
    run.options.reduce_moment = chosen("--reduce", question.reduce, moments);
  run.options.prefetch_backward =
      chosen("--prefetch-backward", question.prefetch_backward, prefetches);
  run.options.wrap = wrap_named(question.wrap);
  run.options.groups = {{}, {.weight_decay = false}};
  run.model = model_of(question);
  return run;
}

flatshard::Plan plan_of(const PlanQuestion& question) {
  const PlannedRun run = planned_run(question);
  return flatshard::make_plan(run.model, run.request, run.options);
}

}  // namespace flatshard_tool
