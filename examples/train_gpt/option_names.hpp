#pragma once
// The one table of the names that options take.

#include <flatshard/policy/aliases.hpp>

#include <span>
#include <string>
#include <string_view>

#include "options.hpp"

namespace train_gpt {

template <class Value>
struct Choice {
  std::string_view name;
  Value value;
  std::string_view meaning;
  std::string_view argument = "";  // what follows the name: ":N"
};

inline constexpr Choice<Strategy> strategies[] = {
    {"no_shard", Strategy::no_shard, "everything on every rank (FSDP NO_SHARD, ZeRO stage 0)"},
    {"shard_optimizer", Strategy::shard_optimizer, "optimizer state sharded (ZeRO stage 1)"},
    {"shard_grad_op", Strategy::shard_grad_op, "gradients too (FSDP SHARD_GRAD_OP, ZeRO stage 2)"},
    {"full_shard", Strategy::full_shard, "parameters too (FSDP FULL_SHARD, ZeRO stage 3)"},
    {"hybrid_shard", Strategy::hybrid_shard,
     "full_shard in a group, replicated over groups (FSDP HYBRID_SHARD, MiCS)"},
    {"hybrid_shard_grad_op", Strategy::hybrid_shard_grad_op,
     "shard_grad_op in a group, replicated over groups (FSDP _HYBRID_SHARD_ZERO2)"},
    {"full_shard_secondary", Strategy::full_shard_secondary,
     "full_shard with a second shard in the group for backward (ZeRO++ hpZ)"}};

inline constexpr Choice<Precision> precisions[] = {
    {"fp32", Precision::fp32, "float everywhere"},
    {"fp64", Precision::fp64, "double everywhere"},
    {"bf16", Precision::bf16, "bfloat16 stored everywhere"},
    {"fp16", Precision::fp16, "half stored everywhere"},
    {"bf16_mixed", Precision::bf16_mixed, "fp32 master, bf16 compute, fp32 sums (FSDP)"},
    {"deepspeed_bf16", Precision::deepspeed_bf16, "fp32 master, bf16 compute and reduce result"},
    {"fp16_mixed", Precision::fp16_mixed, "fp32 master, fp16 compute, loss scaling"},
    {"bf16_stochastic", Precision::bf16_stochastic, "bf16 master, stochastic rounding"}};

inline constexpr Choice<Optimizer> optimizers[] = {
    {"adamw", Optimizer::adamw, "beta1 0.9, beta2 0.99, eps 1e-8"},
    {"adam", Optimizer::adam, "the same, weight decay in the gradient"},
    {"amsgrad", Optimizer::amsgrad, "as adamw, by the largest second moment"},
    {"nadam", Optimizer::nadam, "as adamw, with Nesterov momentum"},
    {"rmsprop", Optimizer::rmsprop, "alpha 0.99, eps 1e-8, momentum 0.9, centred"},
    {"sgd", Optimizer::sgd, "momentum 0.9"},
    {"lion", Optimizer::lion, "beta1 0.9, beta2 0.99"},
    {"adagrad", Optimizer::adagrad, "eps 1e-10"}};

inline constexpr Choice<flatshard::OffloadTraits> offloads[] = {
    {"none", flatshard::offload_traits<flatshard::offload::None>(), "everything on the device"},
    {"cpu_all", flatshard::offload_traits<flatshard::fsdp::CPUOffload>(),
     "parameters, gradients and optimizer on the host (FSDP CPUOffload)"},
    {"cpu_optimizer", flatshard::offload_traits<flatshard::zero::Offload>(),
     "gradients and optimizer on the host, which makes the step (ZeRO-Offload)"},
    {"cpu_params",
     flatshard::offload_traits<
         flatshard::offload::Place<flatshard::offload::Cpu, flatshard::offload::Device>>(),
     "parameters on the host"},
    {"nvme_all", flatshard::offload_traits<flatshard::offload::All<flatshard::offload::Nvme>>(),
     "parameters, gradients and optimizer in files, in the folder of --nvme"},
    {"nvme_optimizer",
     flatshard::offload_traits<
         flatshard::offload::Place<flatshard::offload::Device, flatshard::offload::Nvme>>(),
     "gradients and optimizer in files; the host makes the step (ZeRO-Infinity)"},
    {"nvme_params",
     flatshard::offload_traits<
         flatshard::offload::Place<flatshard::offload::Nvme, flatshard::offload::Device>>(),
     "parameters in files"}};

inline constexpr Choice<flatshard::Accumulation> accumulations[] = {
    {"running", flatshard::Accumulation::Running, "sum so far + next: no extra memory"},
    {"tree", flatshard::Accumulation::Tree, "the same bits however a batch is split"}};

inline constexpr Choice<flatshard::ReduceMoment> reduce_moments[] = {
    {"micro", flatshard::ReduceMoment::Micro, "after every micro-step, into the shard"},
    {"boundary", flatshard::ReduceMoment::Boundary, "once, at the last micro-step"},
    {"replica_boundary", flatshard::ReduceMoment::ReplicaBoundary,
     "hybrids: in the group every micro-step, over groups at the last"}};

inline constexpr Choice<flatshard::DType> reduce_dtypes[] = {
    {"fp32", flatshard::DType::Float32, "float"},
    {"fp64", flatshard::DType::Float64, "double"},
    {"bf16", flatshard::DType::BFloat16, "bfloat16"},
    {"fp16", flatshard::DType::Float16, "half"}};

inline constexpr Choice<Wrap> wraps[] = {
    {"block", Wrap::block, "one unit per block"},
    {"all", Wrap::all, "one unit for everything"},
    {"size", Wrap::size, "modules merged while a unit has at most N elements", ":N"}};

inline constexpr Choice<flatshard::BackwardPrefetch> backward_prefetches[] = {
    {"pre", flatshard::BackwardPrefetch::Pre, "the next unit before this one's backward"},
    {"post", flatshard::BackwardPrefetch::Post, "after it"},
    {"none", flatshard::BackwardPrefetch::None, "when it is needed"}};

inline constexpr Choice<Scaler> scalers[] = {
    {"torch", Scaler::torch, "grows and backs off as torch GradScaler"},
    {"deepspeed", Scaler::deepspeed, "as DeepSpeed, with hysteresis"},
    {"static", Scaler::constant, "stays at X; a step that overflows is skipped", ":X"}};

inline constexpr Choice<Place> places[] = {
    {"host", Place::host, "ranks are threads of this process"},
    {"cuda", Place::cuda, "one GPU per rank; fp32, bf16 or fp16 compute"}};

inline constexpr Choice<StreamForm> stream_forms[] = {
    {"inline", StreamForm::inline_, "work runs where it is enqueued"},
    {"threaded", StreamForm::threaded, "each stream has a thread"}};

template <class Value>
std::string joined_names(std::span<const Choice<Value>> choices) {
  std::string all;
  for (const Choice<Value>& choice : choices)
    all.append(all.empty() ? "" : ", ").append(choice.name).append(choice.argument);
  return all;
}

/// Throws OptionError naming what `option` takes.
template <class Value>
Value find_choice(std::string_view option, std::string_view name,
                  std::span<const Choice<Value>> choices) {
  for (const Choice<Value>& choice : choices)
    if (choice.name == name) return choice.value;
  throw OptionError(std::string{option} + " takes one of " + joined_names(choices) + ", not '" +
                    std::string{name} + "'");
}

template <class Value>
std::string choice_name(Value value, std::span<const Choice<Value>> choices) {
  for (const Choice<Value>& choice : choices)
    if (choice.value == value) return std::string{choice.name};
  return "?";
}

}  // namespace train_gpt
