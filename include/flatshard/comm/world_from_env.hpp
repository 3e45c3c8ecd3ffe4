// The world that a launcher made: torchrun, Open MPI, MPICH (Hydra) or Slurm; one process per rank.
#pragma once

#include <flatshard/comm/communicator.hpp>
#include <flatshard/comm/mpi.hpp>
#include <flatshard/comm/nccl.hpp>
#include <flatshard/core/device.hpp>

#include <functional>
#include <string>

namespace flatshard {

/// What a launcher says in the environment.
struct LaunchEnvironment {
  std::string launcher;  // torchrun, Open MPI, MPICH, Slurm, FLATSHARD_*; "none": one rank alone
  Rank rank = 0;         // in the world
  int world = 1;         // number of ranks
  Rank local_rank = 0;   // among the ranks of this host
  std::string address = "127.0.0.1";  // where rank 0 listens
  int port = 29512;                   // there
  std::string job;                    // this start of the job
  friend bool operator==(const LaunchEnvironment&, const LaunchEnvironment&) = default;
};

/// Looks up a variable; null when it is not set.
using EnvironmentLookup = std::function<const char*(const char*)>;

/// The variables, each one whole integer within its range:
///   FLATSHARD_RANK, FLATSHARD_WORLD_SIZE, FLATSHARD_LOCAL_RANK
///   torchrun  RANK, WORLD_SIZE, LOCAL_RANK (MASTER_ADDR, MASTER_PORT + 1, TORCHELASTIC_RUN_ID)
///   Open MPI  OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK
///   MPICH     PMI_RANK, PMI_SIZE, MPI_LOCALRANKID
///   Slurm     SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID
/// The first family that is set counts. One below it that disagrees is an error naming both, except
/// Slurm's, which an interactive allocation leaves behind, and all beside FLATSHARD_RANK.
/// FLATSHARD_ADDRESS, FLATSHARD_PORT and FLATSHARD_JOB, where set, win. torchrun itself listens on
/// MASTER_PORT. Throws UsageError.
LaunchEnvironment launch_environment(const EnvironmentLookup& lookup);

/// The job's secret: FLATSHARD_TOKEN, or the content of the file FLATSHARD_TOKEN_FILE, which nobody
/// but its owner may read. Throws UsageError when there is none.
std::string launch_token(const EnvironmentLookup& lookup);

/// Ranks as processes: each with the CUDA device of its local rank, over NCCL, or all on their
/// hosts, over MPI. A world of one rank needs neither NCCL nor MPI nor a token.
class ProcessWorld {
 public:
  /// On CUDA devices (one rank without a device: on the host). Meets nobody yet: run() does.
  ProcessWorld(LaunchEnvironment environment, std::string token, NcclOptions options = {});
  /// On the hosts. Throws UsageError when MPI cannot connect these ranks: torchrun's, or in a build
  /// without MPI.
  ProcessWorld(LaunchEnvironment environment, MpiOptions options);

  Rank rank() const { return environment_.rank; }  // of this process
  int size() const { return environment_.world; }  // number of ranks
  /// What the launcher said.
  const LaunchEnvironment& environment() const { return environment_; }

  /// Calls rank_main once in this process, for its rank. What it throws reaches every other rank's
  /// process as CommunicationError. Over NCCL it is thrown on here; over MPI see MpiWorld::run.
  /// Throws UsageError when MPI counts other ranks than the launcher.
  void run(const std::function<void(Communicator&)>& rank_main);

 private:
  void run_over_mpi(const std::function<void(Communicator&)>& rank_main);

  LaunchEnvironment environment_;
  DeviceKind kind_;
  std::string token_;
  NcclOptions nccl_;
  MpiOptions mpi_;
};

/// launch_environment of this process: on CUDA devices where this host has any (and launch_token),
/// else on the hosts, with the patience of `options`.
ProcessWorld world_from_env(NcclOptions options = {});
/// On devices of this kind, whatever this host has.
ProcessWorld world_from_env(DeviceKind kind, NcclOptions options = {});

}  // namespace flatshard
