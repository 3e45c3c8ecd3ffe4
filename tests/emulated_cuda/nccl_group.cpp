// NCCL's functions that move bytes, and its groups.
#include "nccl_group.hpp"

#include "capture.hpp"

namespace emulated {
namespace {

/// Transfers of one communicator that one stream is given at once.
struct Batch {
  std::shared_ptr<Member> member;
  cudaStream_t stream;
  Array<Transfer> transfers;
};

struct Group {
  int depth = 0;
  Array<Batch> batches;
  Array<std::shared_ptr<Member>> aborted;
};
thread_local Group group;

std::size_t size_of(ncclDataType_t type) {
  expect(type == ncclUint8 || type == ncclInt8, "NCCL is emulated for bytes alone");
  return 1;
}

void add(ncclComm_t communicator, cudaStream_t stream, const Transfer& transfer) {
  const auto& member = communicator->member;
  if (group.batches.empty() || group.batches.back().member != member ||
      group.batches.back().stream != stream)
    group.batches.push_back({member, stream, {}});
  group.batches.back().transfers.push_back(transfer);
}

void add_send(ncclComm_t communicator, cudaStream_t stream, const void* data, std::size_t bytes,
              int peer) {
  auto& number = communicator->member->sent[static_cast<std::size_t>(peer)];
  add(communicator, stream, {true, const_cast<void*>(data), bytes, peer, number++});
}

void add_receive(ncclComm_t communicator, cudaStream_t stream, void* memory, std::size_t bytes,
                 int peer) {
  auto& number = communicator->member->received[static_cast<std::size_t>(peer)];
  add(communicator, stream, {false, memory, bytes, peer, number++});
}

ncclResult_t issue(Batch& batch) {
  CUstream_st& stream = stream_of(batch.stream);
  Member& member = *batch.member;
  if (stream.progress->device != member.device) return ncclInvalidArgument;
  if (capture_of(stream) != nullptr) return ncclInvalidUsage;  // not emulated
  {
    const std::lock_guard lock(member.clique->mutex);
    ++member.issued;
    member.polls = member.blocking ? 0 : 1;
  }
  enqueue(stream, Work([of = batch.member, transfers = std::move(batch.transfers)] {
            transfer(*of, transfers);
          }));
  return member.blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t end_group() {
  if (--group.depth > 0) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  for (Batch& batch : group.batches) {
    const ncclResult_t issued = issue(batch);
    if (issued != ncclSuccess) result = issued;
  }
  group.batches.clear();
  for (const auto& member : group.aborted) drain(*member);
  group.aborted.clear();
  return result;
}

}  // namespace

void drain_after_group(std::shared_ptr<Member> member) {
  ++group.depth;
  group.aborted.push_back(std::move(member));
  end_group();
}

}  // namespace emulated

using namespace emulated;

extern "C" {

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() { return group.depth > 0 ? end_group() : ncclInvalidUsage; }

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  ncclGroupStart();
  add_send(communicator, stream, data, count * size_of(type), peer);
  return ncclGroupEnd();
}

ncclResult_t ncclRecv(void* memory, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  ncclGroupStart();
  add_receive(communicator, stream, memory, count * size_of(type), peer);
  return ncclGroupEnd();
}

/// A rank sends to itself, too.
ncclResult_t ncclAllGather(const void* data, void* memory, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  const int ranks = communicator->member->clique->size;
  ncclGroupStart();
  for (int peer = 0; peer < ranks; ++peer) {
    add_send(communicator, stream, data, bytes, peer);
    add_receive(communicator, stream,
                static_cast<std::byte*>(memory) + static_cast<std::size_t>(peer) * bytes, bytes,
                peer);
  }
  return ncclGroupEnd();
}

ncclResult_t ncclBroadcast(const void* data, void* memory, size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  const Member& member = *communicator->member;
  ncclGroupStart();
  if (member.rank == root)
    for (int peer = 0; peer < member.clique->size; ++peer)
      add_send(communicator, stream, data, bytes, peer);
  add_receive(communicator, stream, memory, bytes, root);
  return ncclGroupEnd();
}

}  // extern "C"
