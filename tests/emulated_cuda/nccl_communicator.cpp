// NCCL's functions of communicators.
#include <cstring>

#include "nccl_clique.hpp"
#include "nccl_group.hpp"
#include "stream.hpp"

using namespace emulated;

namespace {

/// Those that have an id and wait for ranks.
struct Meetings {
  std::mutex mutex;
  std::uint64_t ids = 0;
  std::map<std::uint64_t, std::shared_ptr<Clique>> cliques;
};
Meetings& meetings() {
  static Meetings& instance = *new Meetings;
  return instance;
}

std::uint64_t number_of(const ncclUniqueId& id) {
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  return number;
}

std::shared_ptr<Clique> clique_of(const ncclUniqueId& id, int size) {
  const std::lock_guard lock(meetings().mutex);
  auto& clique = meetings().cliques[number_of(id)];
  if (clique == nullptr) clique = std::make_shared<Clique>(size);
  return clique;
}

ncclResult_t join(ncclComm_t* communicator, int size, const ncclUniqueId& id, int rank,
                  bool blocking) {
  if (rank < 0 || rank >= size) return ncclInvalidArgument;
  const auto clique = clique_of(id, size);
  if (clique->size != size) return ncclInvalidArgument;
  *communicator = make_communicator(clique, rank, current_device(), blocking);
  std::unique_lock lock(clique->mutex);
  ++clique->joined;
  clique->changed.notify_all();
  if (!blocking) return ncclInProgress;
  clique->changed.wait(lock, [&] { return clique->joined == size; });
  return ncclSuccess;
}

bool is_in_progress(Member& member) {
  const Clique& clique = *member.clique;
  if (member.polls > 0) return --member.polls >= 0;
  return clique.joined < clique.size || clique.splitters.contains(member.rank) ||
         (member.finalized && member.done < member.issued);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(meetings().mutex);
  const std::uint64_t number = ++meetings().ids;
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return join(communicator, size, id, rank, config->blocking != 0);
}

ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int size, ncclUniqueId id, int rank) {
  return join(communicator, size, id, rank, true);
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  Member& member = *communicator->member;
  if (member.blocking) drain(member);
  const std::lock_guard lock(member.clique->mutex);
  member.finalized = true;
  return member.blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  drain(*communicator->member);
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  if (communicator == nullptr) return ncclInvalidArgument;
  abort(*communicator->member);
  drain_after_group(communicator->member);
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  Member& member = *communicator->member;
  const std::lock_guard lock(member.clique->mutex);
  *state = member.error;
  if (member.error == ncclSuccess && is_in_progress(member)) *state = ncclInProgress;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t communicator, int* count) {
  if (communicator == nullptr) return ncclInvalidArgument;
  *count = communicator->member->clique->size;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t communicator, int* rank) {
  *rank = communicator->member->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t communicator, int* device) {
  *device = communicator->member->device;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "an error of emulated NCCL";
}

const char* ncclGetLastError(ncclComm_t) { return ""; }

}  // extern "C"
