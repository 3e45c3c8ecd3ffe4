// The one file that knows CLI11: options of every subcommand, their help.
#include "command_line.hpp"

#include <flatshard/config.hpp>

#include <CLI/CLI.hpp>

#include "commands.hpp"
#include "error.hpp"

namespace flatshard_tool {
namespace {

using Answer = std::function<Outcome()>;

constexpr const char* exit_codes =
    "Exit codes: 0 done; 1 diff: not equal, verify: not valid; 2 the command line or a "
    "configuration\n"
    "cannot be meant; 3 a file cannot be read or written, or is damaged.";

constexpr const char* what_a_path_is =
    "a safetensors file, an index, a folder with either, a checkpoint, or a folder of checkpoints "
    "(the "
    "newest whole one)";

template <class Request>
CLI::App* add_command(CLI::App& app, Answer& answer, const char* name, const char* what,
                      std::shared_ptr<Request> request, Outcome (*run)(const Request&)) {
  CLI::App* command = app.add_subcommand(name, what);
  command->footer(exit_codes);
  command->callback([&answer, request, run] { answer = [request, run] { return run(*request); }; });
  return command;
}

void add_translate(CLI::App& app, Answer& answer) {
  auto request = std::make_shared<TranslateRequest>();
  CLI::App* command = add_command(app, answer, "translate",
                                  "show an FSDP or DeepSpeed configuration as a Sharder type, as "
                                  "the other framework's file, and "
                                  "what differs",
                                  request, run_translate);
  command
      ->add_option("FILE", request->file,
                   "Accelerate's configuration (YAML or JSON) or a DeepSpeed one (JSON); - is "
                   "standard input")
      ->required();
  command->add_option("-o,--output", request->output,
                      "also write the other framework's file here; it must not exist");
  const std::map<std::string, Type> types{
      {"float32", Type::Float32}, {"bfloat16", Type::BFloat16}, {"float16", Type::Float16}};
  command
      ->add_option("--loaded-as", request->options.loaded_as,
                   "dtype that the model is loaded in (torch_dtype): float32, bfloat16, float16")
      ->transform(CLI::CheckedTransformer(types))
      ->type_name("DTYPE");
  command
      ->add_option_function<std::string>(
          "--mixed-precision",
          [request](const std::string& name) {
            request->options.mixed = name == "bf16"   ? Mixed::Bf16
                                     : name == "fp16" ? Mixed::Fp16
                                                      : Mixed::No;
          },
          "what the trainer fills in for \"auto\": no, bf16, fp16")
      ->check(CLI::IsMember({"no", "bf16", "fp16"}))
      ->type_name("NAME");
}

void add_inspect(CLI::App& app, Answer& answer) {
  auto request = std::make_shared<InspectRequest>();
  CLI::App* command =
      add_command(app, answer, "inspect",
                  "show tensors, shapes, dtypes and bytes; of a checkpoint also step "
                  "and optimizer",
                  request, run_inspect);
  command->add_option("PATH", request->path, what_a_path_is)->required();
  command->add_flag("--json", request->json, "as JSON");
}

void add_verify(CLI::App& app, Answer& answer) {
  auto request = std::make_shared<VerifyRequest>();
  CLI::App* command =
      add_command(app, answer, "verify",
                  "check structure, and digests where a manifest is; every checkpoint "
                  "of a folder",
                  request, run_verify);
  command->add_option("PATH", request->path, what_a_path_is)->required();
}

void add_diff(CLI::App& app, Answer& answer) {
  auto request = std::make_shared<DiffRequest>();
  CLI::App* command =
      add_command(app, answer, "diff",
                  "compare tensors by name: shape, dtype, bits, largest absolute and "
                  "relative difference",
                  request, run_diff);
  command->add_option("A", request->a, what_a_path_is)->required();
  command->add_option("B", request->b, "the same")->required();
  command->add_flag("--json", request->json, "as JSON");
}

CLI::Option* add_shard_size(CLI::App* command, const std::shared_ptr<RewriteRequest>& request) {
  return command
      ->add_option("--shard-size", request->shard_bytes,
                   "most bytes of tensors per file: 5GB (10^9) or 5GiB (2^30)")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::PositiveNumber)
      ->type_name("BYTES");
}

void add_output(CLI::App* command, const std::shared_ptr<RewriteRequest>& request) {
  command
      ->add_option(
          "-o,--output", request->output,
          "a new file (NAME.safetensors), or a new folder for model.safetensors or a sharded "
          "set; appears only when all is written")
      ->required();
}

void add_convert(CLI::App& app, Answer& answer) {
  auto request = std::make_shared<RewriteRequest>();
  CLI::App* command =
      add_command(app, answer, "convert", "write tensors again with another dtype or shard size",
                  request, run_rewrite);
  command->add_option("PATH", request->inputs, what_a_path_is)->required()->expected(1);
  add_output(command, request);
  const std::map<std::string, flatshard::DType> dtypes{
      {"float64", flatshard::DType::Float64},        {"float32", flatshard::DType::Float32},
      {"bfloat16", flatshard::DType::BFloat16},      {"float16", flatshard::DType::Float16},
      {"float8_e4m3", flatshard::DType::Float8E4M3}, {"float8_e5m2", flatshard::DType::Float8E5M2}};
  command
      ->add_option_function<std::string>(
          "--dtype",
          [request, dtypes](const std::string& name) { request->dtype = dtypes.at(name); },
          "of floating-point tensors, rounded to nearest even: float64, float32, bfloat16, "
          "float16, "
          "float8_e4m3, float8_e5m2; other tensors stay as they are")
      ->check(CLI::IsMember(dtypes))
      ->type_name("DTYPE");
  add_shard_size(command, request);
}

void add_merge(CLI::App& app, Answer& answer) {
  auto request = std::make_shared<RewriteRequest>();
  CLI::App* command =
      add_command(app, answer, "merge",
                  "write the tensors of several files or sets, or of a sharded set, into one file",
                  request, run_rewrite);
  command->add_option("PATHS", request->inputs, what_a_path_is)->required();
  add_output(command, request);
}

void add_split(CLI::App& app, Answer& answer) {
  auto request = std::make_shared<RewriteRequest>();
  CLI::App* command =
      add_command(app, answer, "split",
                  "write a sharded set with an index, as Hugging Face's libraries read it", request,
                  run_rewrite);
  command->add_option("PATH", request->inputs, what_a_path_is)->required()->expected(1);
  add_output(command, request);
  add_shard_size(command, request)->required();
}

using Question = std::shared_ptr<PlanQuestion>;

void add_plan_model(CLI::App* command, const Question& q) {
  command->add_option("PATH", q->path, what_a_path_is);
  command
      ->add_option("--gpt", q->gpt,
                   "a GPT with tied embedding and head: layers,width,vocabulary[,context]; "
                   "context 1024 when left out")
      ->type_name("L,W,V[,T]");
  command
      ->add_option("--shapes", q->shapes,
                   "JSON: a list of shapes, a map from names to shapes, or a list of {\"name\", "
                   "\"shape\", \"trainable\"}")
      ->type_name("FILE");
}

void add_plan_sharding(CLI::App* command, const Question& q) {
  flatshard::Options& o = q->options;
  command->add_option("--strategy", q->strategy,
                      "no_shard, shard_optimizer, shard_grad_op, full_shard, hybrid_shard, "
                      "hybrid_shard_grad_op, full_shard_secondary");
  command->add_option("--precision", q->precision,
                      "fp32, fp64, bf16, fp16, bf16_mixed, deepspeed_bf16, fp16_mixed, "
                      "fp16_mixed_fp32_reduce, bf16_stochastic");
  command->add_option("--offload", q->offload, "none");
  command->add_option("--optimizer", q->optimizer, "adamw, sgd, lion");
  command->add_option("--world", q->world, "ranks")
      ->check(CLI::Range(1, 65536))
      ->type_name("RANKS");
  command->add_option("--shard-group", o.shard_group, "ranks per group; 0: the library's choice")
      ->check(CLI::Range(0, 65536))
      ->type_name("RANKS");
  command->add_option("--accumulate", o.max_micro_steps, "micro-steps of a step")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("COUNT");
  command->add_option("--accumulation", q->accumulation, "running, tree");
  command->add_option("--reduce", q->reduce,
                      "micro, boundary, replica_boundary; none: the strategy's");
  command->add_option("--wrap", q->wrap, "module, all, size:ELEMENTS");
  command->add_option("--prefetch-forward", o.prefetch_forward, "units gathered ahead")
      ->check(CLI::Range(0, 1000))
      ->type_name("UNITS");
  command->add_option("--prefetch-backward", q->prefetch_backward, "pre, post, none");
  command->add_option("--max-live", o.max_live_elements, "most elements gathered at once")
      ->check(CLI::PositiveNumber)
      ->type_name("ELEMENTS");
  command
      ->add_option("--persist", o.persistence_threshold,
                   "parameters of at most so many elements stay whole")
      ->check(CLI::NonNegativeNumber)
      ->type_name("ELEMENTS");
}

/// A rate in units of `unit` per second.
void add_rate(CLI::App* command, const char* option, std::optional<double>& rate, double unit,
              const char* what, const char* type) {
  command
      ->add_option_function<double>(
          option, [&rate, unit](double value) { rate = value * unit; }, what)
      ->check(CLI::PositiveNumber)
      ->type_name(type);
}

void add_plan_rates(CLI::App* command, const Question& q) {
  Rates& rates = q->rates;
  add_rate(command, "--link", rates.link, 1e9, "that a rank sends, for an estimate of time",
           "GB/S");
  add_rate(command, "--link-replicas", rates.replicas, 1e9, "the same between shard groups",
           "GB/S");
  command
      ->add_option_function<double>(
          "--latency", [&rates](double value) { rates.latency = value * 1e-6; }, "of a collective")
      ->check(CLI::NonNegativeNumber)
      ->type_name("MICROSECONDS");
  add_rate(command, "--memory", rates.memory, 1e9, "of a rank's memory", "GB/S");
  add_rate(command, "--compute", rates.compute, 1e12, "operations of a rank; needs --tokens",
           "TFLOP/S");
  command->add_option("--tokens", rates.tokens, "of a rank in a micro-step")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->type_name("COUNT");
}

void add_plan(CLI::App& app, Answer& answer) {
  auto question = std::make_shared<PlanQuestion>();
  CLI::App* command =
      add_command(app, answer, "plan",
                  "bytes per rank and communication of a model under a strategy, before "
                  "anything runs; the same numbers as the Plan of the run",
                  question, run_plan);
  command->option_defaults()->always_capture_default();
  add_plan_model(command, question);
  add_plan_sharding(command, question);
  add_plan_rates(command, question);
  command->add_flag("--json", question->json, "as JSON");
}

}  // namespace

std::function<Outcome()> read_command_line(int argc, const char* const* argv) {
  CLI::App app{"Looks at checkpoints, plans and configurations of sharded training.", "flatshard"};
  Answer answer;
  app.require_subcommand(1);
  app.footer(exit_codes);
  app.set_version_flag("--version", "flatshard " FLATSHARD_TOOL_VERSION);
  add_inspect(app, answer);
  add_verify(app, answer);
  add_diff(app, answer);
  add_convert(app, answer);
  add_merge(app, answer);
  add_split(app, answer);
  add_plan(app, answer);
  add_translate(app, answer);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    const std::string help = chosen.empty() ? app.help() : chosen.front()->help("flatshard");
    return [help] { return Outcome{help + "\n", success}; };
  } catch (const CLI::CallForVersion& version) {
    const std::string text = std::string(version.what()) + "\n";
    return [text] { return Outcome{text, success}; };
  } catch (const CLI::ParseError& error) {
    throw RequestError(error.what());
  }
  return answer;
}

}  // namespace flatshard_tool
