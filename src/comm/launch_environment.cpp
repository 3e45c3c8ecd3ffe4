#include <flatshard/comm/world_from_env.hpp>

#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <sys/stat.h>

#include <array>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace flatshard {

namespace {

/// One launcher's names.
struct Family {
  std::string_view launcher;
  const char* rank;
  const char* world;
  const char* local_rank;
  bool may_be_stale;  // left behind by an allocation that did not start this process
};

constexpr std::array<Family, 5> families{{
    {"FLATSHARD_*", "FLATSHARD_RANK", "FLATSHARD_WORLD_SIZE", "FLATSHARD_LOCAL_RANK", false},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", false},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     false},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", false},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", true},
}};

int whole_number(std::string_view name, std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  FLATSHARD_EXPECTS(error == std::errc() && end == text.data() + text.size() && !text.empty(),
                    fmt::format("{} is '{}', not a whole number", name, text));
  return value;
}

int required(const EnvironmentLookup& lookup, const Family& family, const char* name) {
  const char* text = lookup(name);
  FLATSHARD_EXPECTS(text != nullptr, fmt::format("{} is set, but {} is not ({})", family.rank, name,
                                                 family.launcher));
  return whole_number(name, text);
}

std::string text_of(const EnvironmentLookup& lookup, const char* name) {
  const char* text = lookup(name);
  return text == nullptr ? "" : text;
}

std::optional<LaunchEnvironment> read(const EnvironmentLookup& lookup, const Family& family) {
  const char* rank = lookup(family.rank);
  if (rank == nullptr) return {};
  LaunchEnvironment found;
  found.launcher = family.launcher;
  found.rank = whole_number(family.rank, rank);
  found.world = required(lookup, family, family.world);
  // Where a launcher does not say it, a rank's host is its own.
  const char* local = lookup(family.local_rank);
  found.local_rank = local == nullptr ? 0 : whole_number(family.local_rank, local);
  FLATSHARD_EXPECTS(
      found.world >= 1 && found.rank >= 0 && found.rank < found.world && found.local_rank >= 0 &&
          found.local_rank < found.world,
      fmt::format("{} {}, {} {}, {} {}: a rank must be at least 0 and below the world "
                  "size",
                  family.rank, found.rank, family.world, found.world, family.local_rank,
                  found.local_rank));
  return found;
}

void expect_agreement(const LaunchEnvironment& one, const LaunchEnvironment& other) {
  FLATSHARD_EXPECTS(
      one.rank == other.rank && one.world == other.world,
      fmt::format("{} says rank {} of {}, {} says rank {} of {}: unset one family, or "
                  "set FLATSHARD_RANK, FLATSHARD_WORLD_SIZE and FLATSHARD_LOCAL_RANK",
                  one.launcher, one.rank, one.world, other.launcher, other.rank, other.world));
}

int port_of(const char* name, std::string_view text, int offset) {
  const int port = whole_number(name, text) + offset;
  FLATSHARD_EXPECTS(port > 0 && port < 65536, fmt::format("{} is '{}': no port", name, text));
  return port;
}

void read_torchrun(const EnvironmentLookup& lookup, LaunchEnvironment& environment) {
  const std::string address = text_of(lookup, "MASTER_ADDR");
  const std::string port = text_of(lookup, "MASTER_PORT");
  if (!address.empty()) environment.address = address;
  if (!port.empty()) environment.port = port_of("MASTER_PORT", port, 1);
  environment.job =
      text_of(lookup, "TORCHELASTIC_RUN_ID") + "/" + text_of(lookup, "TORCHELASTIC_RESTART_COUNT");
}

void read_own(const EnvironmentLookup& lookup, LaunchEnvironment& environment) {
  const std::string address = text_of(lookup, "FLATSHARD_ADDRESS");
  const std::string port = text_of(lookup, "FLATSHARD_PORT");
  const std::string job = text_of(lookup, "FLATSHARD_JOB");
  if (!address.empty()) environment.address = address;
  if (!port.empty()) environment.port = port_of("FLATSHARD_PORT", port, 0);
  if (!job.empty()) environment.job = job;
}

}  // namespace

LaunchEnvironment launch_environment(const EnvironmentLookup& lookup) {
  std::optional<LaunchEnvironment> chosen;
  for (const Family& family : families) {
    const bool ignored = chosen && (family.may_be_stale || chosen->launcher == "FLATSHARD_*");
    if (ignored) continue;
    const std::optional<LaunchEnvironment> found = read(lookup, family);
    if (!found) continue;
    if (chosen)
      expect_agreement(*chosen, *found);
    else
      chosen = found;
  }
  LaunchEnvironment environment;
  environment.launcher = "none";
  if (chosen) environment = *chosen;
  if (environment.launcher == "torchrun") read_torchrun(lookup, environment);
  if (environment.launcher == "Slurm")
    environment.job = text_of(lookup, "SLURM_JOB_ID") + "." + text_of(lookup, "SLURM_STEP_ID");
  read_own(lookup, environment);
  return environment;
}

std::string launch_token(const EnvironmentLookup& lookup) {
  const std::string token = text_of(lookup, "FLATSHARD_TOKEN");
  if (!token.empty()) return token;
  const std::string path = text_of(lookup, "FLATSHARD_TOKEN_FILE");
  FLATSHARD_EXPECTS(
      !path.empty(),
      "several processes need a common secret to find each other: set FLATSHARD_TOKEN, "
      "or FLATSHARD_TOKEN_FILE to a file that only you can read");
  struct stat status {};
  FLATSHARD_EXPECTS(stat(path.c_str(), &status) == 0,
                    fmt::format("FLATSHARD_TOKEN_FILE: {} is not there", path));
  FLATSHARD_EXPECTS((status.st_mode & (S_IRWXG | S_IRWXO)) == 0,
                    fmt::format("FLATSHARD_TOKEN_FILE: others than its owner can reach {} (mode "
                                "{:o}): chmod 600 it",
                                path, status.st_mode & 0777));
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  std::string text = content.str();
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

}  // namespace flatshard
