// The rules that hold between options.
#include "options.hpp"

#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

namespace train_gpt {
namespace {

constexpr std::int64_t most_layers = 10000, most_ranks = 65536, most_threads = 1024;
constexpr std::int64_t bytes = 256, most_vocabulary = std::int64_t{1} << 30;
constexpr double most_activations = 1e15;  // elements

void require(bool holds, const std::string& sentence) {
  if (!holds) throw OptionError(sentence);
}

template <class Number>
void require_at_least(const std::string& option, Number value, Number least) {
  require(value >= least,
          option + " must be at least " + std::to_string(least) + ", not " + std::to_string(value));
}

void require_at_most(const std::string& option, std::int64_t value, std::int64_t most) {
  require(value <= most,
          option + " must be at most " + std::to_string(most) + ", not " + std::to_string(value));
}

void validate_counts(const Options& o) {
  for (const auto& [option, value] : {std::pair<const char*, std::int64_t>{"--ranks", o.ranks},
                                      {"--layers", o.model.layers},
                                      {"--width", o.model.width},
                                      {"--heads", o.model.heads},
                                      {"--context", o.model.context},
                                      {"--batch", o.batch},
                                      {"--accumulate", o.accumulate},
                                      {"--steps", o.steps},
                                      {"--threads", o.threads},
                                      {"--max-live", o.max_live.value_or(1)},
                                      {"--wrap size:N", o.wrap == Wrap::size ? o.wrap_size : 1}})
    require_at_least<std::int64_t>(option, value, 1);
  require_at_least<std::int64_t>("--prefetch-forward", o.prefetch_forward, 0);
  require_at_least<std::int64_t>("--persist", o.persist, 0);
  require_at_least<std::int64_t>("--host-budget", o.host_budget, 0);
  require_at_most("--layers", o.model.layers, most_layers);
  require_at_most("--ranks", o.ranks, most_ranks);
  require_at_least("--vocab", o.model.vocabulary, bytes);
  require_at_most("--vocab", o.model.vocabulary, most_vocabulary);
  require_at_most("--threads", o.threads, most_threads);
}

/// In double: what no machine has overflows a 64-bit count.
void validate_memory(const Options& o) {
  const double tokens =
      static_cast<double>(o.sequences_per_micro_step()) * static_cast<double>(o.model.context);
  const double scores = static_cast<double>(o.model.heads) * static_cast<double>(o.model.context);
  const double elements = tokens * (scores + 16.0 * static_cast<double>(o.model.width) +
                                    static_cast<double>(o.model.vocabulary));
  require(o.plan || elements * static_cast<double>(o.model.layers) < most_activations,
          "a micro-step of this --batch, --context, --heads, --width and --layers needs more than "
          "any machine's memory; --plan may still describe the sharding");
}

void validate_numbers(const Options& o) {
  for (const auto& [option, value] : {std::pair<const char*, double>{"--lr", o.lr},
                                      {"--weight-decay", o.weight_decay},
                                      {"--clip", o.clip}})
    require(value >= 0 && value <= std::numeric_limits<float>::max(),
            std::string{option} + " must be a number that is not negative and not above 3.4e38");
  for (const auto& [option, value] :
       {std::pair<const char*, double>{"--initial-scale", o.initial_scale.value_or(1)},
        {"--scaler static:X", o.static_scale}})
    require(std::isfinite(value) && value > 0,
            std::string{option} + " must be a finite number above 0");
}

void validate_division(const Options& o) {
  require(o.model.width % o.model.heads == 0, "--width " + std::to_string(o.model.width) +
                                                  " does not divide by --heads " +
                                                  std::to_string(o.model.heads));
  const std::int64_t micro_batches = std::int64_t{o.ranks} * o.accumulate;
  require(o.batch % micro_batches == 0,
          "--batch " + std::to_string(o.batch) + " does not divide by --ranks " +
              std::to_string(o.ranks) + " times --accumulate " + std::to_string(o.accumulate));
}

void validate_sharding(const Options& o) {
  const bool has_group = is_hybrid(o.strategy) || o.strategy == Strategy::full_shard_secondary;
  require(o.shard_group == 0 || has_group,
          "--shard-group means nothing to --strategy " + name_of(o.strategy) +
              ", only to hybrid_shard, hybrid_shard_grad_op and full_shard_secondary");
  require(o.shard_group >= 0 && (o.shard_group == 0 || o.ranks % o.shard_group == 0),
          "--ranks " + std::to_string(o.ranks) + " does not divide by --shard-group " +
              std::to_string(o.shard_group));
  require(o.reduce != flatshard::ReduceMoment::ReplicaBoundary || is_hybrid(o.strategy),
          "--reduce replica_boundary needs a strategy with replicas: hybrid_shard or "
          "hybrid_shard_grad_op");
}

void validate_device(const Options& o) {
  const bool offloads = o.offload != flatshard::OffloadTraits{};
  require(!o.pin_threads || o.threads > 1 || (o.device == Place::cuda && offloads),
          "--pin-threads needs --threads, more than one, or a GPU's --offload");
  if (o.device == Place::host) return;
  require(o.precision != Precision::fp64,
          "--device cuda computes in fp32, bf16 or fp16, so --precision fp64 needs --device host");
  require(o.stream == StreamForm::inline_ && ((o.threads == 1 && !o.pin_threads) || offloads),
          "--stream and, without --offload, --threads are of host kernels and mean nothing to "
          "--device cuda");
}

void validate_files(const Options& o) {
  const bool on_nvme =
      o.offload.parameters == flatshard::Tier::Nvme || o.offload.optimizer == flatshard::Tier::Nvme;
  require(o.plan || on_nvme == !o.nvme.empty(),
          "--offload nvme_all, nvme_optimizer and nvme_params need --nvme, the folder to use, and "
          "nothing else does");
  require_at_least<std::int64_t>("--save-every", o.save_every, 0);
  require(o.save_every == 0 || !o.save.empty(),
          "--save-every needs --save, the folder to save into");
  std::error_code ignored;  // of a file that is not there
  require(o.data.empty() || !std::filesystem::equivalent(o.data, o.metrics, ignored),
          "--metrics would overwrite the text of --data " + o.data);
}

void validate_scaling(const Options& o) {
  const bool scales = scales_loss(o.precision);
  require(scales || !(o.scaler || o.initial_scale),
          "--scaler and --initial-scale need --precision fp16_mixed, because " +
              name_of(o.precision) + " does not scale the loss");
  require(!(o.initial_scale && o.scaler == Scaler::constant),
          "--initial-scale and --scaler static:X both set the scale, so give one of them");
  require(!o.step_in_backward || o.clip == 0,
          "--step-in-backward needs --clip 0, because the norm is known only after backward");
  require(!o.step_in_backward || !scales,
          "--step-in-backward cannot scale the loss, so it needs another --precision than " +
              name_of(o.precision));
}

}  // namespace

void take_launched_ranks(Options& options, bool is_given,
                         const flatshard::EnvironmentLookup& lookup) {
  const flatshard::LaunchEnvironment found = flatshard::launch_environment(lookup);
  const bool is_alone = found.world == 1 && found.launcher == "Slurm";
  if (found.launcher == "none" || is_alone) return;
  require(!is_given || options.ranks == found.world,
          "--ranks " + std::to_string(options.ranks) + " disagrees with the world size of " +
              found.launcher + ", " + std::to_string(found.world) + ": leave it out");
  options.ranks = found.world;
  options.launched = true;
  options.process = found.rank;
}

void validate(const Options& options) {
  validate_counts(options);
  validate_numbers(options);
  validate_division(options);
  validate_memory(options);
  validate_sharding(options);
  validate_scaling(options);
  validate_device(options);
  validate_files(options);
}

}  // namespace train_gpt
