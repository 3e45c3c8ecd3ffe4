// One rank of mpirun, for tests that let ranks fail: rank TASK. Says its process on standard
// output, then what it was told. Status 0: it was told something; 1: nothing went wrong.
#include <flatshard/comm/world_from_env.hpp>
#include <flatshard/core/error.hpp>
#include <flatshard/core/host_stream.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace flatshard;
using namespace std::chrono_literals;

namespace {

void say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

/// Collectives for a minute, large ones among them; rank 2 computes most of the time.
void work(Communicator& comm) {
  comm.synchronize();
  say("rank " + std::to_string(comm.rank()) + " is process " + std::to_string(getpid()));
  std::vector<float> values(1 << 20, 1);
  InlineStream stream;
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (std::chrono::steady_clock::now() < end) {
    if (comm.rank() == 2) std::this_thread::sleep_for(300ms);
    comm.all_reduce("values", values.data(), values.data(), 1 << 20, DType::Float32, DType::Float32,
                    stream);
    stream.synchronize();
  }
}

/// Rank 1 throws while rank 0 waits for it and others compute.
void fail(Communicator& comm) {
  comm.synchronize();
  if (comm.rank() == 1) throw std::runtime_error("out of ideas");
  if (comm.rank() > 1) std::this_thread::sleep_for(1s);
  comm.synchronize();
}

const std::map<std::string, std::function<void(Communicator&)>> tasks{{"work", work},
                                                                      {"fail", fail}};

}  // namespace

int main(int, char** argv) {
  try {
    world_from_env(DeviceKind::Host).run(tasks.at(argv[1]));
  } catch (const std::exception& error) {
    say(std::string("told: ") + error.what());
    return 0;
  }
  return 1;
}
