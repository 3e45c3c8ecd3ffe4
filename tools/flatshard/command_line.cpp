// The one file that knows CLI11: options of every subcommand, their help. All values are read as
// text and parsed here: every further type of option costs compile time, and CLI11 takes "" for 0.
#include "command_line.hpp"

#include <CLI/CLI.hpp>

#include "commands.hpp"
#include "error.hpp"
#include "numbers.hpp"

namespace flatshard_tool {
namespace {

using Answer = std::function<Outcome()>;
using Take = std::function<void(const std::string&)>;

constexpr const char* exit_codes =
    "Exit codes: 0 done; 1 diff: not equal, verify: not valid; 2 the command line or a "
    "configuration\ncannot be meant; 3 a file cannot be read or written, or is damaged.";
constexpr const char* what_a_path_is =
    "a safetensors file, an index, a folder with either, a checkpoint, or a folder of checkpoints "
    "(the newest whole one)";

/// A subcommand whose values are text.
class Command {
 public:
  Command(CLI::App& app, const char* name, const char* what, Answer& answer, Answer run)
      : command_(app.add_subcommand(name, what)) {
    command_->footer(exit_codes);
    command_->callback([&answer, run = std::move(run)] { answer = run; });
  }
  CLI::Option* add(const char* name, const char* type, const char* what, Take take) {
    const CLI::callback_t callback = [take = std::move(take)](const CLI::results_t& values) {
      for (const std::string& value : values) take(value);
      return true;
    };
    return command_->add_option(name, callback, what)->type_name(type)->type_size(1);
  }
  CLI::Option* add(const char* name, const char* type, const char* what, std::string& target) {
    return add(name, type, what, [&target](const std::string& text) { target = text; });
  }
  void add_flag(const char* name, const char* what, bool& target) {
    command_->add_flag_callback(
        name, [&target] { target = true; }, what);
  }
  /// One or several positional values.
  void add_list(const char* name, const char* what, std::vector<std::string>& target,
                bool several) {
    CLI::Option* option =
        add(name, "PATH", what, [&target](const std::string& text) { target.push_back(text); });
    option->required();
    if (several) option->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args();
  }

 private:
  CLI::App* command_;
};

template <class Request>
Answer running(const std::shared_ptr<Request>& request, Outcome (*run)(const Request&)) {
  return [request, run] { return run(*request); };
}

template <class Target>
Take whole(const char* option, Target& target, std::int64_t least, std::int64_t most) {
  return [=, &target](const std::string& text) {
    target = static_cast<Target>(whole_number(option, text, least, most));
  };
}

void add_inspect(CLI::App& app, Answer& answer) {
  auto request = std::make_shared<InspectRequest>();
  Command command(app, "inspect",
                  "show tensors, shapes, dtypes and bytes; of a checkpoint also step and optimizer",
                  answer, running(request, run_inspect));
  command.add("PATH", "PATH", what_a_path_is, request->path)->required();
  command.add_flag("--json", "as JSON", request->json);
}

void add_verify(CLI::App& app, Answer& answer) {
  auto request = std::make_shared<VerifyRequest>();
  Command command(app, "verify",
                  "check structure, and digests where a manifest is; every checkpoint of a folder",
                  answer, running(request, run_verify));
  command.add("PATH", "PATH", what_a_path_is, request->path)->required();
}

void add_diff(CLI::App& app, Answer& answer) {
  auto request = std::make_shared<DiffRequest>();
  Command command(
      app, "diff",
      "compare tensors by name: shape, dtype, bits, largest absolute and relative difference",
      answer, running(request, run_diff));
  command.add("A", "PATH", what_a_path_is, request->a)->required();
  command.add("B", "PATH", "the same", request->b)->required();
  command.add_flag("--json", "as JSON", request->json);
}

void add_output(Command& command, RewriteRequest& request) {
  command
      .add("-o,--output", "PATH",
           "a new file (NAME.safetensors), or a new folder for model.safetensors or a sharded set; "
           "appears only when all is written",
           request.output)
      ->required();
}

CLI::Option* add_shard_size(Command& command, RewriteRequest& request) {
  return command.add("--shard-size", "BYTES",
                     "most bytes of tensors per file: 5GB (10^9) or 5GiB (2^30)",
                     [&request](const std::string& text) {
                       request.shard_bytes = byte_count("--shard-size", text);
                     });
}

flatshard::DType dtype_named(const std::string& name) {
  for (const flatshard::DTypeInfo& row : flatshard::dtype_table)
    if (row.floating && row.name == name) return row.dtype;
  throw RequestError(
      "--dtype takes one of float64, float32, bfloat16, float16, float8_e4m3, "
      "float8_e5m2, not '" +
      name + "'");
}

void add_convert(CLI::App& app, Answer& answer) {
  auto request = std::make_shared<RewriteRequest>();
  Command command(app, "convert", "write tensors again with another dtype or shard size", answer,
                  running(request, run_rewrite));
  command.add_list("PATH", what_a_path_is, request->inputs, false);
  add_output(command, *request);
  command.add(
      "--dtype", "DTYPE",
      "of floating-point tensors, rounded to nearest even: float64, float32, bfloat16, "
      "float16, float8_e4m3, float8_e5m2; other tensors stay as they are",
      [request = request.get()](const std::string& name) { request->dtype = dtype_named(name); });
  add_shard_size(command, *request);
}

void add_merge(CLI::App& app, Answer& answer) {
  auto request = std::make_shared<RewriteRequest>();
  Command command(app, "merge",
                  "write the tensors of several files or sets, or of a sharded set, into one file",
                  answer, running(request, run_rewrite));
  command.add_list("PATHS", what_a_path_is, request->inputs, true);
  add_output(command, *request);
}

void add_split(CLI::App& app, Answer& answer) {
  auto request = std::make_shared<RewriteRequest>();
  Command command(app, "split",
                  "write a sharded set with an index, as Hugging Face's libraries read it", answer,
                  running(request, run_rewrite));
  command.add_list("PATH", what_a_path_is, request->inputs, false);
  add_output(command, *request);
  add_shard_size(command, *request)->required();
}

void add_plan_sharding(Command& command, PlanQuestion& q) {
  flatshard::Options& o = q.options;
  command.add("--strategy", "NAME",
              "full_shard (default), no_shard, shard_optimizer, shard_grad_op, hybrid_shard, "
              "hybrid_shard_grad_op, full_shard_secondary",
              q.strategy);
  command.add("--precision", "NAME",
              "fp32 (default), fp64, bf16, fp16, bf16_mixed, deepspeed_bf16, fp16_mixed, "
              "fp16_mixed_fp32_reduce, bf16_stochastic",
              q.precision);
  command.add("--offload", "NAME",
              "none (default), cpu_all, cpu_optimizer, cpu_params, nvme_all, nvme_optimizer, "
              "nvme_params: what rests in host memory or on NVMe",
              q.offload);
  command.add("--host-budget", "BYTES", "most pinned host memory; what does not fit is pageable",
              whole("--host-budget", o.pinned_budget, 0, INT64_MAX));
  command.add("--update-part", "ELEMENTS",
              "longer slices pass to a host that steps in parts of so many; 0: none does",
              whole("--update-part", o.update_part, 0, INT64_MAX));
  command.add_flag("--step-in-backward", "units are updated as soon as their gradients are reduced",
                   o.step_in_backward);
  command.add("--optimizer", "NAME",
              "adamw (default), adam, amsgrad, nadam, rmsprop, rmsprop_momentum, centered_rmsprop, "
              "centered_rmsprop_momentum, sgd, lion, adagrad",
              q.optimizer);
  command.add("--world", "RANKS", "1 by default", whole("--world", q.world, 1, 65536));
  command.add("--shard-group", "RANKS", "per group; left out: the library's choice",
              whole("--shard-group", o.shard_group, 1, 65536));
  command.add("--accumulate", "COUNT", "micro-steps of a step, 1 by default",
              whole("--accumulate", o.max_micro_steps, 1, 1 << 20));
  command.add("--accumulation", "NAME", "running (default), tree", q.accumulation);
  command.add("--reduce", "NAME", "micro, boundary, replica_boundary; left out: the strategy's",
              q.reduce);
  command.add("--wrap", "NAME", "module (default), all, size:ELEMENTS", q.wrap);
  command.add("--prefetch-forward", "UNITS", "gathered ahead, 1 by default",
              whole("--prefetch-forward", o.prefetch_forward, 0, 1000));
  command.add("--prefetch-backward", "NAME", "pre (default), post, none", q.prefetch_backward);
  command.add("--max-live", "ELEMENTS", "most gathered at once",
              whole("--max-live", o.max_live_elements, 1, INT64_MAX));
  command.add("--persist", "ELEMENTS", "parameters of at most so many stay whole",
              whole("--persist", o.persistence_threshold, 0, INT64_MAX));
}

/// A rate in units of `unit` per second.
void add_rate(Command& command, const char* option, const char* type, const char* what,
              std::optional<double>& rate, double unit) {
  command.add(option, type, what, [=, &rate](const std::string& text) {
    rate = real_number(option, text, 0, true) * unit;
  });
}

void add_plan_rates(Command& command, Rates& rates) {
  add_rate(command, "--link", "GB/S", "that a rank sends, for an estimate of time", rates.link,
           1e9);
  add_rate(command, "--link-replicas", "GB/S", "the same between shard groups", rates.replicas,
           1e9);
  command.add("--latency", "MICROSECONDS", "of a collective", [&rates](const std::string& text) {
    rates.latency = real_number("--latency", text, 0, false) * 1e-6;
  });
  add_rate(command, "--memory", "GB/S", "of a rank's memory", rates.memory, 1e9);
  add_rate(command, "--compute", "TFLOP/S", "operations of a rank; needs --tokens", rates.compute,
           1e12);
  command.add("--tokens", "COUNT", "of a rank in a micro-step",
              whole("--tokens", rates.tokens, 1, std::int64_t{1} << 40));
}

void add_plan(CLI::App& app, Answer& answer) {
  auto question = std::make_shared<PlanQuestion>();
  Command command(
      app, "plan",
      "bytes per rank and communication of a model under a strategy, before anything runs; "
      "the same numbers as the Plan of the run",
      answer, running(question, run_plan));
  command.add("PATH", "PATH", what_a_path_is, question->path);
  command.add("--gpt", "L,W,V[,T]",
              "a GPT with tied embedding and head: layers,width,vocabulary[,context]; context 1024 "
              "when left out",
              question->gpt);
  command.add(
      "--shapes", "FILE",
      "JSON: a list of shapes, a map from names to shapes, or a list of {\"name\", \"shape\", "
      "\"trainable\"}",
      question->shapes);
  add_plan_sharding(command, *question);
  add_plan_rates(command, question->rates);
  command.add_flag("--json", "as JSON", question->json);
}

Type type_named(const std::string& name) {
  if (name == "float32") return Type::Float32;
  if (name == "bfloat16") return Type::BFloat16;
  if (name == "float16") return Type::Float16;
  throw RequestError("--loaded-as takes one of float32, bfloat16, float16, not '" + name + "'");
}

Mixed mixed_named(const std::string& name) {
  if (name == "no") return Mixed::No;
  if (name == "bf16") return Mixed::Bf16;
  if (name == "fp16") return Mixed::Fp16;
  throw RequestError("--mixed-precision takes one of no, bf16, fp16, not '" + name + "'");
}

void add_translate(CLI::App& app, Answer& answer) {
  auto request = std::make_shared<TranslateRequest>();
  Command command(
      app, "translate",
      "show an FSDP or DeepSpeed configuration as a Sharder type, as the other framework's "
      "file, and what differs",
      answer, running(request, run_translate));
  command
      .add("FILE", "FILE",
           "Accelerate's configuration (YAML or JSON) or a DeepSpeed one (JSON); - is standard "
           "input",
           request->file)
      ->required();
  command.add("-o,--output", "FILE",
              "also write the other framework's file here; it must not exist", request->output);
  TranslateOptions* options = &request->options;
  command.add(
      "--loaded-as", "DTYPE",
      "dtype that the model is loaded in (torch_dtype): float32 (default), bfloat16, float16",
      [options](const std::string& name) { options->loaded_as = type_named(name); });
  command.add("--mixed-precision", "NAME", "what the trainer fills in for \"auto\": no, bf16, fp16",
              [options](const std::string& name) { options->mixed = mixed_named(name); });
}

Answer answer_of(const std::string& text) {
  return [text] { return Outcome{text + "\n", success}; };
}

}  // namespace

std::function<Outcome()> read_command_line(int argc, const char* const* argv) {
  CLI::App app{"Looks at checkpoints, plans and configurations of sharded training.", "flatshard"};
  Answer answer;
  app.require_subcommand(1);
  app.footer(exit_codes);
  app.set_version_flag("--version", "flatshard " FLATSHARD_TOOL_VERSION);
  for (const auto add : {add_inspect, add_verify, add_diff, add_convert, add_merge, add_split,
                         add_plan, add_translate})
    add(app, answer);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    return answer_of(chosen.empty() ? app.help() : chosen.front()->help("flatshard"));
  } catch (const CLI::CallForVersion& version) {
    return answer_of(version.what());
  } catch (const CLI::ParseError& error) {
    throw RequestError(error.what());
  }
  return answer;
}

}  // namespace flatshard_tool
