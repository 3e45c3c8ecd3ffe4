// Trains a GPT on text with every strategy and precision of flatshard: train_gpt --help.
#include <flatshard/core/error.hpp>

#include <cstdio>

#include "option_error.hpp"
#include "training.hpp"

namespace {

int run(int argc, char** argv) {
  const train_gpt::CommandLine line = train_gpt::read_command_line(argc, argv);
  if (line.answer)
    std::fputs(line.answer->c_str(), stdout);
  else if (line.options.plan)
    std::fputs(train_gpt::plan_text(line.options).c_str(), stdout);
  else
    train_gpt::run_training(line.options);
  return 0;
}

int complain(const std::exception& error, int code) {
  std::fprintf(stderr, "train_gpt: %s\n", error.what());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const train_gpt::OptionError& error) {
    return complain(error, 2);
  } catch (const flatshard::UsageError& error) {
    return complain(error, 2);
  } catch (const std::exception& error) {
    return complain(error, 1);
  }
}
