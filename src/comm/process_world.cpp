#include <flatshard/comm/rendezvous.hpp>
#include <flatshard/comm/solo.hpp>
#include <flatshard/comm/world_from_env.hpp>
#include <flatshard/core/error.hpp>
#include <flatshard/ops/host_device.hpp>

#include <fmt/format.h>
#include <cstdlib>
#include <utility>

#include "rank_devices.hpp"

namespace flatshard {

namespace {

/// The local rank's device; where the launcher shows each rank only one, that one.
int device_of(const LaunchEnvironment& environment) {
  const int count = cuda_device_count();
  const int ordinal = count == 1 ? 0 : environment.local_rank;
  FLATSHARD_EXPECTS(ordinal < count,
                    fmt::format("rank {}: local rank {} has no CUDA device, there are {} here",
                                environment.rank, environment.local_rank, count));
  return ordinal;
}

void run_alone(DeviceKind kind, const CudaOptions& options,
               const std::function<void(Communicator&)>& rank_main) {
  const std::unique_ptr<Device> device =
      kind == DeviceKind::Cuda && cuda_device_count() > 0
          ? std::unique_ptr<Device>(std::make_unique<CudaDevice>(0, options))
          : std::make_unique<HostDevice>();
  Solo solo(*device);
  rank_main(solo);
}

const char* variable(const char* name) { return std::getenv(name); }

void tell(ControlChannel& channel, const char* message) { channel.fail({channel.rank(), message}); }

}  // namespace

ProcessWorld::ProcessWorld(LaunchEnvironment environment, std::string token, NcclOptions options)
    : environment_(std::move(environment)),
      kind_(DeviceKind::Cuda),
      token_(std::move(token)),
      nccl_(options) {}

ProcessWorld::ProcessWorld(LaunchEnvironment environment, MpiOptions options)
    : environment_(std::move(environment)), kind_(DeviceKind::Host), mpi_(options) {
  if (environment_.world == 1) return;
  const auto started = [&] {
    return fmt::format("{} started {} ranks; on the host they talk over MPI, ",
                       environment_.launcher, environment_.world);
  };
  FLATSHARD_EXPECTS(environment_.launcher != "torchrun",
                    started() + "which torchrun does not offer: start them by mpirun or srun");
  FLATSHARD_EXPECTS(has_mpi(), started() +
                                   "and flatshard was built without it: configure it with "
                                   "-Dmpi=enabled");
}

void ProcessWorld::run_over_mpi(const std::function<void(Communicator&)>& rank_main) {
  MpiWorld world(mpi_);
  FLATSHARD_EXPECTS(
      world.rank() == rank() && world.size() == size(),
      fmt::format(
          "{} says rank {} of {}, MPI says rank {} of {}: start the program by the launcher "
          "of the MPI that flatshard was built with",
          environment_.launcher, rank(), size(), world.rank(), world.size()));
  world.run(rank_main);
}

void ProcessWorld::run(const std::function<void(Communicator&)>& rank_main) {
  if (environment_.world == 1) return run_alone(kind_, nccl_.devices, rank_main);
  if (kind_ == DeviceKind::Host) return run_over_mpi(rank_main);
  CudaDevice device(device_of(environment_),
                    detail::options_of_rank(nccl_.devices, environment_.local_rank));
  RendezvousOptions where;
  where.rank = environment_.rank;
  where.world = environment_.world;
  where.address = environment_.address;
  where.port = environment_.port;
  where.token = token_;
  where.job = environment_.job;
  const std::unique_ptr<ControlChannel> channel = rendezvous(where);
  try {
    const auto communicator = make_nccl_communicator(*channel, device, nccl_);
    rank_main(*communicator);
  } catch (const CommunicationError&) {
    throw;  // every rank knows
  } catch (const std::exception& error) {
    tell(*channel, error.what());
    throw;
  } catch (...) {
    tell(*channel, "an exception that is not a std::exception");
    throw;
  }
}

ProcessWorld world_from_env(NcclOptions options) {
  return world_from_env(cuda_device_count() > 0 ? DeviceKind::Cuda : DeviceKind::Host, options);
}

ProcessWorld world_from_env(DeviceKind kind, NcclOptions options) {
  LaunchEnvironment environment = launch_environment(variable);
  if (kind == DeviceKind::Host)
    return {std::move(environment), MpiOptions{.patience = options.patience}};
  std::string token = environment.world > 1 ? launch_token(variable) : std::string();
  return {std::move(environment), std::move(token), options};
}

}  // namespace flatshard
