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

}  // namespace

std::function<Outcome()> read_command_line(int argc, const char* const* argv) {
  CLI::App app{"Looks at checkpoints, plans and configurations of sharded training.", "flatshard"};
  Answer answer;
  app.require_subcommand(1);
  app.footer(exit_codes);
  app.set_version_flag("--version", "flatshard " FLATSHARD_TOOL_VERSION);
  add_translate(app, answer);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    const std::string help = chosen.empty() ? app.help() : chosen.front()->help();
    return [help] { return Outcome{help, success}; };
  } catch (const CLI::CallForVersion& version) {
    const std::string text = std::string(version.what()) + "\n";
    return [text] { return Outcome{text, success}; };
  } catch (const CLI::ParseError& error) {
    throw RequestError(error.what());
  }
  return answer;
}

}  // namespace flatshard_tool
