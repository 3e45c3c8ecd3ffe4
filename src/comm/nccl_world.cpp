#include <flatshard/comm/nccl.hpp>

#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <cstring>
#include <numeric>
#include <system_error>
#include <thread>

#include "nccl_communicator.hpp"
#include "rank_devices.hpp"
#include "thread_channel.hpp"

namespace flatshard {

namespace {

std::vector<Rank> all_ranks(int size) {
  std::vector<Rank> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// The one that rank 0 made.
ncclUniqueId shared_id(ControlChannel& channel, detail::NcclSession& session) {
  ncclUniqueId mine{};
  if (channel.rank() == 0) {
    const ncclResult_t result = ncclGetUniqueId(&mine);
    if (result != ncclSuccess)
      session.fail(detail::nccl_message(nullptr, result, "ncclGetUniqueId"));
  }
  std::vector<ncclUniqueId> all(static_cast<std::size_t>(channel.size()));
  channel.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all.front();
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(ControlChannel& channel, CudaDevice& device,
                                                     const NcclOptions& options) {
  const auto session = std::make_shared<detail::NcclSession>(&channel, channel.rank(),
                                                             channel.size(), device, options);
  const detail::CudaDeviceGuard guard(device.ordinal());
  const ncclUniqueId id = shared_id(channel, *session);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t communicator = nullptr;
  const ncclResult_t result =
      ncclCommInitRankConfig(&communicator, channel.size(), id, channel.rank(), &config);
  try {
    session->settle(communicator, result, "ncclCommInitRankConfig");
  } catch (...) {
    if (communicator != nullptr) static_cast<void>(ncclCommAbort(communicator));
    throw;
  }
  return std::make_unique<detail::NcclCommunicator>(session, communicator, true, channel.rank(),
                                                    all_ranks(channel.size()), true);
}

std::unique_ptr<Communicator> adopt_nccl_communicator(void* nccl_communicator, CudaDevice& device,
                                                      const NcclOptions& options) {
  auto* const communicator = static_cast<ncclComm_t>(nccl_communicator);
  FLATSHARD_EXPECTS(communicator != nullptr, "adopt_nccl_communicator: the communicator is null");
  int size = 0, rank = 0, ordinal = 0;
  const bool known = ncclCommCount(communicator, &size) == ncclSuccess &&
                     ncclCommUserRank(communicator, &rank) == ncclSuccess &&
                     ncclCommCuDevice(communicator, &ordinal) == ncclSuccess;
  FLATSHARD_EXPECTS(known, "adopt_nccl_communicator: NCCL does not know this communicator");
  FLATSHARD_EXPECTS(ordinal == device.ordinal(),
                    fmt::format("adopt_nccl_communicator: it is of CUDA device {}, not {}", ordinal,
                                device.ordinal()));
  const auto session = std::make_shared<detail::NcclSession>(nullptr, rank, size, device, options);
  return std::make_unique<detail::NcclCommunicator>(session, communicator, false, rank,
                                                    all_ranks(size));
}

NcclWorld::NcclWorld(int size, NcclOptions options) : size_(size), options_(options) {
  FLATSHARD_EXPECTS(size >= 1 && size <= cuda_device_count(),
                    fmt::format("NcclWorld: {} ranks, each on a CUDA device of its own; there are "
                                "{} devices",
                                size, cuda_device_count()));
}

void NcclWorld::run(const std::function<void(Communicator&)>& rank_main) {
  const auto channels = std::make_shared<detail::ThreadChannels>(size_, options_.patience);
  const auto run_rank = [&](Rank rank) {
    try {
      const detail::CudaDeviceGuard guard(rank);  // for the user's own kernels
      CudaDevice device(rank, detail::options_of_rank(options_.devices, rank));
      detail::ThreadChannel channel(channels, rank);
      const auto communicator = make_nccl_communicator(channel, device, options_);
      try {
        rank_main(*communicator);
      } catch (...) {  // told before memory is unlocked, which waits for the others' collectives
        channels->fail(rank, std::current_exception());
        throw;
      }
    } catch (...) {
      channels->fail(rank, std::current_exception());
    }
    channels->leave(rank);
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size_));
  for (Rank rank = 0; rank < size_; ++rank) {
    try {
      threads.emplace_back(run_rank, rank);
    } catch (const std::system_error& error) {
      channels->fail({rank, fmt::format("cannot start its thread: {}", error.what())});
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  channels->rethrow();
}

}  // namespace flatshard
