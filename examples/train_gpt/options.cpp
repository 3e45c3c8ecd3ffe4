#include "options.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <type_traits>

#include "option_names.hpp"

namespace train_gpt {
namespace {

/// "name:number" -> {name, number}; an empty second part when there is none.
std::pair<std::string, std::string> split_argument(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return {text, ""};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

constexpr std::int64_t most_layers = 10000, most_ranks = 65536, most_threads = 1024;
constexpr double most_activations = 1e15;  // elements

template <class Number>
Number parse_number(const std::string& option, const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (text.empty() || error != std::errc{} || stop != end)
    throw OptionError(option + " needs a number after the colon, not '" + text + "'");
  return number;
}

template <class Target, class Value, std::size_t count>
void add_choice(CLI::App& app, const std::string& option, Target& target,
                const Choice<Value> (&choices)[count], const std::string& meaning) {
  const std::span<const Choice<Value>> all{choices};
  app.add_option_function<std::string>(
         option,
         [option, all, &target](const std::string& name) {
           target = find_choice(option, name, all);
         },
         meaning + ": " + joined_names(all))
      ->type_name("NAME");
}

void read_wrap(const std::string& text, Options& o) {
  const auto parts = split_argument(text);
  o.wrap = find_choice("--wrap", parts.first, std::span<const Choice<Wrap>>{wraps});
  const bool needs_number = o.wrap == Wrap::size;
  if (needs_number) o.wrap_size = parse_number<std::int64_t>("--wrap size:N", parts.second);
  if (!needs_number && parts.first != text)
    throw OptionError("--wrap takes a number only as size:N, not '" + text + "'");
}

void read_scaler(const std::string& text, Options& o) {
  const auto parts = split_argument(text);
  o.scaler = find_choice("--scaler", parts.first, std::span<const Choice<Scaler>>{scalers});
  const bool needs_number = o.scaler == Scaler::constant;
  if (needs_number) o.static_scale = parse_number<double>("--scaler static:X", parts.second);
  if (!needs_number && parts.first != text)
    throw OptionError("--scaler takes a number only as static:X, not '" + text + "'");
}

/// What is wrong with `text` as a Number; empty: nothing. CLI11 by itself reads "" as 0, "-1" as
/// the largest unsigned number, and a number that is too large as the largest that there is.
template <class Number>
std::string check_number(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (!text.empty() && stop == end && error == std::errc{}) return "";
  if (error == std::errc::result_out_of_range) return text + " is out of range";
  if (std::is_unsigned_v<Number> && text.starts_with('-')) return "it must not be negative";
  return (std::is_integral_v<Number> ? "it takes a whole number, not '"
                                     : "it takes a number, not '") +
         text + "'";
}

template <class Target>
struct NumberOf {
  using type = Target;
};
template <class Number>
struct NumberOf<std::optional<Number>> {
  using type = Number;
};

template <class Target>
void add_number(CLI::App& app, const std::string& option, Target& target,
                const std::string& meaning) {
  app.add_option(option, target, meaning)->check(check_number<typename NumberOf<Target>::type>);
}

void add_model_options(CLI::App& app, Options& o) {
  app.add_option("--data", o.data, "text file (default: the project's own text)");
  add_number(app, "--layers", o.model.layers, "transformer blocks");
  add_number(app, "--width", o.model.width, "of the residual stream");
  add_number(app, "--heads", o.model.heads, "of attention");
  add_number(app, "--context", o.model.context, "tokens of a sequence");
}

void add_training_options(CLI::App& app, Options& o) {
  add_number(app, "--batch", o.batch, "sequences of a step, over all ranks and micro-steps");
  add_number(app, "--accumulate", o.accumulate, "micro-steps of a step");
  add_number(app, "--steps", o.steps, "optimizer steps");
  add_number(app, "--seed", o.seed, "of data and initial values");
  add_choice(app, "--optimizer", o.optimizer, optimizers, "update rule");
  add_number(app, "--lr", o.lr, "learning rate, constant");
  add_number(app, "--weight-decay", o.weight_decay, "of matrices");
  add_number(app, "--clip", o.clip, "largest norm of the gradient, 0: off");
}

void add_sharding_options(CLI::App& app, Options& o) {
  add_number(app, "--ranks", o.ranks, "ranks, as threads of this process");
  add_choice(app, "--strategy", o.strategy, strategies, "what is sharded");
  add_number(app, "--shard-group", o.shard_group, "ranks of a shard group (hybrids, secondary)");
  add_choice(app, "--precision", o.precision, precisions, "dtype of each role");
  add_choice(app, "--accumulation", o.accumulation, accumulations, "how micro-steps add up");
  add_choice(app, "--reduce", o.reduce, reduce_moments, "when gradients are reduced");
  add_choice(app, "--reduce-dtype", o.reduce_dtype, reduce_dtypes, "of the reduced gradient");
  app.add_option_function<std::string>(
         "--wrap", [&o](const std::string& text) { read_wrap(text, o); },
         "units: " + joined_names(std::span<const Choice<Wrap>>{wraps}))
      ->type_name("NAME");
  add_number(app, "--prefetch-forward", o.prefetch_forward, "units gathered ahead");
  add_choice(app, "--prefetch-backward", o.prefetch_backward, backward_prefetches,
             "when backward gathers ahead");
  add_number(app, "--max-live", o.max_live, "most gathered elements");
  add_number(app, "--persist", o.persist, "parameters of at most so many elements stay whole");
  app.add_flag("--step-in-backward", o.step_in_backward, "update each unit inside backward");
}

void add_running_options(CLI::App& app, Options& o) {
  app.add_option_function<std::string>(
         "--scaler", [&o](const std::string& text) { read_scaler(text, o); },
         "loss scale: " + joined_names(std::span<const Choice<Scaler>>{scalers}))
      ->type_name("NAME");
  add_number(app, "--initial-scale", o.initial_scale, "first loss scale");
  add_choice(app, "--stream", o.stream, stream_forms, "form of the host streams");
  add_number(app, "--threads", o.threads, "threads per rank, of the library's kernels");
  app.add_option("--metrics", o.metrics, "file for one JSON line a step");
  app.add_flag("--plan", o.plan, "print the Plan and exit");
}

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
  require_at_most("--layers", o.model.layers, most_layers);
  require_at_most("--ranks", o.ranks, most_ranks);
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

void validate_files(const Options& o) {
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

template <class Value, std::size_t count>
void append_choices(std::string& text, const char* option, const Choice<Value> (&choices)[count]) {
  text.append(option).append("\n");
  for (const Choice<Value>& choice : choices) {
    std::string line = "  " + std::string{choice.name} + std::string{choice.argument};
    line.resize(std::max<std::size_t>(line.size() + 1, 25), ' ');
    text.append(line).append(choice.meaning).append("\n");
  }
}

}  // namespace

CommandLine read_command_line(int argc, const char* const* argv) {
  CommandLine line;
  Options& o = line.options;
  CLI::App app{"Trains a GPT on text, sharded over ranks.", "train_gpt"};
  bool list = false;
  app.option_defaults()->always_capture_default();
  add_model_options(app, o);
  add_training_options(app, o);
  add_sharding_options(app, o);
  add_running_options(app, o);
  app.add_flag("--list", list, "print the names that options take and exit");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    line.answer = app.help();
    return line;
  } catch (const CLI::ParseError& error) {
    throw OptionError(error.what());
  }
  if (list)
    line.answer = list_of_names();
  else
    validate(o);
  return line;
}

void validate(const Options& options) {
  validate_counts(options);
  validate_numbers(options);
  validate_division(options);
  validate_memory(options);
  validate_sharding(options);
  validate_scaling(options);
  validate_files(options);
}

std::string name_of(Strategy strategy) { return choice_name<Strategy>(strategy, strategies); }
std::string name_of(Precision precision) { return choice_name<Precision>(precision, precisions); }
std::string name_of(Optimizer optimizer) { return choice_name<Optimizer>(optimizer, optimizers); }

bool is_hybrid(Strategy strategy) {
  return strategy == Strategy::hybrid_shard || strategy == Strategy::hybrid_shard_grad_op;
}

bool scales_loss(Precision precision) { return precision == Precision::fp16_mixed; }

std::string list_of_names() {
  std::string text;
  append_choices(text, "--strategy", strategies);
  append_choices(text, "--precision", precisions);
  append_choices(text, "--optimizer", optimizers);
  append_choices(text, "--accumulation", accumulations);
  append_choices(text, "--reduce", reduce_moments);
  append_choices(text, "--reduce-dtype", reduce_dtypes);
  append_choices(text, "--wrap", wraps);
  append_choices(text, "--prefetch-backward", backward_prefetches);
  append_choices(text, "--scaler", scalers);
  append_choices(text, "--stream", stream_forms);
  return text;
}

}  // namespace train_gpt
