// Trains a GPT on text with every strategy and precision of flatshard: train_gpt --help.
#include <flatshard/core/error.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "option_error.hpp"
#include "training.hpp"

namespace {

/// So that no file that is opened later stands where standard output was closed.
void open_standard_streams() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor)
    if (fcntl(descriptor, F_GETFD) == -1) static_cast<void>(open("/dev/null", O_RDWR));
}

void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw std::runtime_error("standard output cannot be written");
}

const char* variable(const char* name) { return std::getenv(name); }

int run(int argc, char** argv) {
  const train_gpt::CommandLine line = train_gpt::read_command_line(argc, argv, variable);
  if (line.answer)
    std::fputs(line.answer->c_str(), stdout);
  else if (line.options.plan && line.options.process > 0)
    return 0;  // one process prints it
  else if (line.options.plan)
    std::fputs(train_gpt::plan_text(line.options).c_str(), stdout);
  else
    train_gpt::run_training(line.options);
  flush_output();
  return 0;
}

int complain(const std::exception& error, int code) {
  std::fprintf(stderr, "train_gpt: %s\n", error.what());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  try {
    return run(argc, argv);
  } catch (const train_gpt::OptionError& error) {
    return complain(error, 2);
  } catch (const flatshard::UsageError& error) {
    return complain(error, 2);
  } catch (const std::bad_alloc&) {
    return complain(std::runtime_error("there is not enough memory"), 1);
  } catch (const std::exception& error) {
    return complain(error, 1);
  }
}
