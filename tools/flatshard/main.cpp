// flatshard: looks at checkpoints, plans and configurations. flatshard --help.
#include <flatshard/core/error.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <new>

#include "command_line.hpp"
#include "error.hpp"
#include "printable.hpp"

namespace {

namespace tool = flatshard_tool;

/// So that no file that is opened later stands where standard output was closed.
void open_standard_streams() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor)
    if (fcntl(descriptor, F_GETFD) == -1) static_cast<void>(open("/dev/null", O_RDWR));
}

int complain(const char* what, int code) {
  std::fprintf(stderr, "flatshard: %s\n", tool::printable(what).c_str());
  return code;
}

int run(int argc, char** argv) {
  const tool::Outcome outcome = tool::read_command_line(argc, argv)();
  std::fwrite(outcome.text.data(), 1, outcome.text.size(), stdout);
  if (std::fflush(stdout) != 0) throw tool::FileError("standard output cannot be written");
  return outcome.code;
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  try {
    return run(argc, argv);
  } catch (const tool::RequestError& error) {
    return complain(error.what(), tool::bad_request);
  } catch (const flatshard::UsageError& error) {
    return complain(error.what(), tool::bad_request);
  } catch (const std::bad_alloc&) {
    return complain("there is not enough memory", tool::file_trouble);
  } catch (const std::exception& error) {
    return complain(error.what(), tool::file_trouble);
  }
}
