#include "options.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
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
  add_number(app, "--vocab", o.model.vocabulary,
             "tokens that there are; above 256 without --data: random tokens");
  app.add_flag("--untied-head", o.model.untied_head, "a head of its own, not the embedding");
}

void add_training_options(CLI::App& app, Options& o) {
  add_number(app, "--batch", o.batch, "sequences of a step, over all ranks and micro-steps");
  add_number(app, "--accumulate", o.accumulate, "micro-steps of a step");
  add_number(app, "--steps", o.steps, "optimizer steps, resumed ones included");
  add_number(app, "--seed", o.seed, "of data and initial values");
  add_choice(app, "--optimizer", o.optimizer, optimizers, "update rule");
  add_number(app, "--lr", o.lr, "learning rate, constant");
  add_number(app, "--weight-decay", o.weight_decay, "of matrices");
  add_number(app, "--clip", o.clip, "largest norm of the gradient, 0: off");
}

void add_sharding_options(CLI::App& app, Options& o) {
  add_choice(app, "--device", o.device, places, "where to compute");
  add_number(app, "--ranks", o.ranks,
             "ranks, as threads of this process; GPUs with --device cuda; not under a launcher "
             "(mpirun, torchrun, srun), whose processes are the ranks");
  add_choice(app, "--strategy", o.strategy, strategies, "what is sharded");
  add_number(app, "--shard-group", o.shard_group, "ranks of a shard group (hybrids, secondary)");
  add_choice(app, "--precision", o.precision, precisions, "dtype of each role");
  add_choice(app, "--offload", o.offload, offloads, "what rests off the device");
  add_number(app, "--host-budget", o.host_budget,
             "most bytes of pinned host memory per rank; what does not fit is pageable");
  app.add_option("--nvme", o.nvme, "folder on the disk for what --offload nvme_... rests there");
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
  app.add_flag("--pin-threads", o.pin_threads, "keep each rank's on cores of their own");
  app.add_option("--save", o.save, "folder for checkpoints, one at the end at least");
  add_number(app, "--save-every", o.save_every, "steps from one checkpoint to the next");
  app.add_option("--resume", o.resume, "folder of checkpoints, or one of them, to go on from");
  app.add_option("--metrics", o.metrics, "file for one JSON line a step");
  app.add_flag("--plan", o.plan, "print the Plan and exit");
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

CommandLine read_command_line(int argc, const char* const* argv,
                              const flatshard::EnvironmentLookup& lookup) {
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
  if (list) {
    line.answer = list_of_names();
    return line;
  }
  take_launched_ranks(o, app.count("--ranks") > 0, lookup);
  validate(o);
  return line;
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
  append_choices(text, "--offload", offloads);
  append_choices(text, "--optimizer", optimizers);
  append_choices(text, "--accumulation", accumulations);
  append_choices(text, "--reduce", reduce_moments);
  append_choices(text, "--reduce-dtype", reduce_dtypes);
  append_choices(text, "--wrap", wraps);
  append_choices(text, "--prefetch-backward", backward_prefetches);
  append_choices(text, "--scaler", scalers);
  append_choices(text, "--stream", stream_forms);
  append_choices(text, "--device", places);
  return text;
}

}  // namespace train_gpt
