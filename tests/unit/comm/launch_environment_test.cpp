#include <flatshard/comm/world_from_env.hpp>

#include <doctest/doctest.h>
#include <flatshard/core/error.hpp>

#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <map>

#include "worlds.hpp"

using namespace flatshard;
using conformance::message_of;

namespace {

using Variables = std::map<std::string, std::string>;

EnvironmentLookup in(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

LaunchEnvironment launched(const Variables& variables) { return launch_environment(in(variables)); }
std::string refusal(const Variables& variables) {
  return message_of([&] { launched(variables); });
}

const Variables torchrun{{"RANK", "3"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"MASTER_ADDR", "node0"},
                         {"MASTER_PORT", "29500"},
                         {"TORCHELASTIC_RUN_ID", "run7"},
                         {"TORCHELASTIC_RESTART_COUNT", "2"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

}  // namespace

TEST_CASE("no launcher: one rank") {
  const LaunchEnvironment alone = launched({});
  CHECK(alone.launcher == "none");
  CHECK(alone.rank == 0);
  CHECK(alone.world == 1);
}

TEST_CASE("each launcher by its own names") {
  const LaunchEnvironment torch = launched(torchrun);
  CHECK(torch == LaunchEnvironment{"torchrun", 3, 8, 1, "node0", 29501, "run7/2"});
  const LaunchEnvironment open = launched({{"OMPI_COMM_WORLD_RANK", "0"},
                                           {"OMPI_COMM_WORLD_SIZE", "2"},
                                           {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  CHECK(open == LaunchEnvironment{"Open MPI", 0, 2, 0, "127.0.0.1", 29512, ""});
  const LaunchEnvironment hydra = launched({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  CHECK(hydra == LaunchEnvironment{"MPICH", 1, 2, 0, "127.0.0.1", 29512, ""});
  const LaunchEnvironment slurm = launched({{"SLURM_PROCID", "5"},
                                            {"SLURM_NTASKS", "6"},
                                            {"SLURM_LOCALID", "1"},
                                            {"SLURM_JOB_ID", "77"},
                                            {"SLURM_STEP_ID", "0"},
                                            {"FLATSHARD_ADDRESS", "10.0.0.1"},
                                            {"FLATSHARD_PORT", "4000"}});
  CHECK(slurm == LaunchEnvironment{"Slurm", 5, 6, 1, "10.0.0.1", 4000, "77.0"});
}

TEST_CASE("numbers are whole, and within their range") {
  for (const char* text : {"", " 3", "3 ", "3x", "0x3", "+3", "3.0", "99999999999", "-1", "8"}) {
    CAPTURE(std::string(text));
    CHECK_FALSE(refusal(with(torchrun, {{"RANK", text}})).empty());
  }
  CHECK(refusal(with(torchrun, {{"RANK", "3x"}})).find("RANK is '3x'") != std::string::npos);
  CHECK_FALSE(refusal(with(torchrun, {{"WORLD_SIZE", "0"}})).empty());
  CHECK_FALSE(refusal(with(torchrun, {{"LOCAL_RANK", "8"}})).empty());
  CHECK_FALSE(refusal(with(torchrun, {{"MASTER_PORT", "65535"}})).empty());  // + 1
  CHECK_FALSE(refusal(with(torchrun, {{"FLATSHARD_PORT", "0"}})).empty());
  const std::string lacks = refusal({{"RANK", "0"}});
  CHECK(lacks.find("WORLD_SIZE is not") != std::string::npos);
}

TEST_CASE("families that disagree are named both; what an allocation left behind is not asked") {
  const Variables mpi{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "8"}};
  const std::string both = refusal(with(torchrun, mpi));
  CHECK(both.find("torchrun says rank 3 of 8") != std::string::npos);
  CHECK(both.find("Open MPI says rank 0 of 8") != std::string::npos);
  const Variables stale{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}};
  CHECK(launched(with(torchrun, stale)).launcher == "torchrun");
  CHECK(launched(with(mpi, stale)).launcher == "Open MPI");
  const Variables own{{"FLATSHARD_RANK", "1"}, {"FLATSHARD_WORLD_SIZE", "2"}};
  CHECK(launched(with(with(torchrun, mpi), own)) ==
        LaunchEnvironment{"FLATSHARD_*", 1, 2, 0, "127.0.0.1", 29512, ""});
  CHECK(launched(with(torchrun, {{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}})).launcher == "torchrun");
}

TEST_CASE("the token: a variable, or a file that nobody else can read") {
  CHECK(launch_token(in({{"FLATSHARD_TOKEN", "secret of the job"}})) == "secret of the job");
  CHECK(message_of([] { launch_token(in({})); }).find("FLATSHARD_TOKEN") != std::string::npos);
  char path[] = "/tmp/flatshard_token_XXXXXX";
  const int descriptor = mkstemp(path);
  REQUIRE(descriptor >= 0);
  std::ofstream(path) << "from a file 1234\n";
  const Variables file{{"FLATSHARD_TOKEN_FILE", path}};
  CHECK(launch_token(in(file)) == "from a file 1234");
  chmod(path, 0640);
  CHECK(message_of([&] { launch_token(in(file)); }).find("mode 640") != std::string::npos);
  std::remove(path);
  CHECK(message_of([&] { launch_token(in(file)); }).find("is not there") != std::string::npos);
}

TEST_CASE("ranks on the host talk over MPI, which a launcher or a build may lack") {
  const std::string torch = message_of([] { ProcessWorld(launched(torchrun), MpiOptions{}); });
  CHECK(torch.find("torchrun started 8 ranks") != std::string::npos);
  CHECK(torch.find("start them by mpirun or srun") != std::string::npos);
  if (has_mpi()) return;
  const Variables mpi{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "8"}};
  const std::string absent = message_of([&] { ProcessWorld(launched(mpi), MpiOptions{}); });
  CHECK(absent.find("Open MPI started 8 ranks") != std::string::npos);
  CHECK(absent.find("-Dmpi=enabled") != std::string::npos);
  CHECK(message_of([] { MpiWorld(); }).find("-Dmpi=enabled") != std::string::npos);
  CHECK(message_of([] { adopt_mpi_communicator(0); }).find("-Dmpi=enabled") != std::string::npos);
}

TEST_CASE("a world of one rank runs alone") {
  ProcessWorld world(launched({}), "");
  int ranks = 0;
  world.run([&](Communicator& comm) { ranks += comm.size(); });
  CHECK(ranks == 1);
  ProcessWorld(launched({}), MpiOptions{}).run([&](Communicator& comm) {
    ranks += comm.size();
    CHECK(comm.device()->kind() == DeviceKind::Host);
  });
  CHECK(ranks == 2);
}
