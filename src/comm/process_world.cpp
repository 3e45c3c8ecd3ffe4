#include <flatshard/comm/rendezvous.hpp>
#include <flatshard/comm/solo.hpp>
#include <flatshard/comm/world_from_env.hpp>
#include <flatshard/core/error.hpp>
#include <flatshard/ops/host_device.hpp>

#include <fmt/format.h>
#include <cstdlib>
#include <utility>

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

void run_alone(const std::function<void(Communicator&)>& rank_main) {
  const std::unique_ptr<Device> device =
      cuda_device_count() > 0 ? std::unique_ptr<Device>(std::make_unique<CudaDevice>(0))
                              : std::make_unique<HostDevice>();
  Solo solo(*device);
  rank_main(solo);
}

void tell(ControlChannel& channel, const char* message) { channel.fail({channel.rank(), message}); }

}  // namespace

ProcessWorld::ProcessWorld(LaunchEnvironment environment, std::string token, NcclOptions options)
    : environment_(std::move(environment)), token_(std::move(token)), options_(options) {}

void ProcessWorld::run(const std::function<void(Communicator&)>& rank_main) {
  if (environment_.world == 1) return run_alone(rank_main);
  CudaDevice device(device_of(environment_));
  RendezvousOptions where;
  where.rank = environment_.rank;
  where.world = environment_.world;
  where.address = environment_.address;
  where.port = environment_.port;
  where.token = token_;
  where.job = environment_.job;
  const std::unique_ptr<ControlChannel> channel = rendezvous(where);
  try {
    const auto communicator = make_nccl_communicator(*channel, device, options_);
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
  const auto lookup = [](const char* name) -> const char* { return std::getenv(name); };
  LaunchEnvironment environment = launch_environment(lookup);
  std::string token = environment.world > 1 ? launch_token(lookup) : std::string();
  return {std::move(environment), std::move(token), options};
}

}  // namespace flatshard
