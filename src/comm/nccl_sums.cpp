// Sums over NCCL: contributions are exchanged as they are and summed by the tree.
#include <algorithm>

#include "bytes_at.hpp"
#include "nccl_communicator.hpp"

namespace flatshard::detail {

namespace {

/// Elements [begin, begin + count) that `rank` sums of an all_reduce.
struct Slice {
  Elements begin;
  Elements count;
};
Slice slice_of(const CollectiveCall& call, Rank rank, int size) {
  const Elements slice = exchange_slice(call.count, size);
  const Elements begin = std::min(rank * slice, call.count);
  return {begin, std::min(slice, call.count - begin)};
}

}  // namespace

void NcclCommunicator::reduce_scatter(std::string_view label, const void* send, void* receive,
                                      Elements count, DType contribution, DType result,
                                      StreamRef stream) {
  const CollectiveCall call{Operation::ReduceScatter, label, count, contribution, result};
  const Issue issue = begin(call, stream);
  if (count == 0) return;
  if (size() == 1) {
    if (send != receive) kernels().cast(send, contribution, receive, result, count, stream);
    return;
  }
  std::byte* scratch = scratch_for(issue);
  const Bytes bytes = count * size_of(contribution);
  const CudaDeviceGuard guard(session_->device().ordinal());
  ncclGroupStart();
  for (Rank other = 0; other < size(); ++other) {
    const bool own = other == rank_;
    sources_[static_cast<std::size_t>(other)] = own ? bytes_at(send, rank_ * bytes) : scratch;
    if (own) continue;
    ncclSend(bytes_at(send, other * bytes), unsigned_of(bytes), ncclUint8, other, communicator_,
             issue.stream.native());
    ncclRecv(scratch, unsigned_of(bytes), ncclUint8, other, communicator_, issue.stream.native());
    scratch += round_up(bytes, exchange_alignment);
  }
  session_->settle(communicator_, ncclGroupEnd(), "ncclSend and ncclRecv");
  sum_sources(issue, receive, count);
}

void NcclCommunicator::all_reduce(std::string_view label, const void* send, void* receive,
                                  Elements count, DType contribution, DType result,
                                  StreamRef stream) {
  const CollectiveCall call{Operation::AllReduce, label, count, contribution, result};
  const Issue issue = begin(call, stream);
  if (count == 0) return;
  if (size() == 1) {
    if (send != receive) kernels().cast(send, contribution, receive, result, count, stream);
    return;
  }
  const CudaDeviceGuard guard(session_->device().ordinal());
  if (is_small_exchange(call, size())) {
    gather_all(issue, send);
    return sum_sources(issue, receive, count);
  }
  sum_slices(issue, send, receive);
  spread_slices(issue, receive);
}

/// Everybody's whole contribution to everybody.
void NcclCommunicator::gather_all(const Issue& issue, const void* send) {
  std::byte* scratch = scratch_for(issue);
  const Bytes bytes = issue.call.count * size_of(issue.call.contribution);
  ncclGroupStart();
  for (Rank other = 0; other < size(); ++other) {
    const bool own = other == rank_;
    sources_[static_cast<std::size_t>(other)] = own ? send : scratch;
    if (own) continue;
    ncclSend(send, unsigned_of(bytes), ncclUint8, other, communicator_, issue.stream.native());
    ncclRecv(scratch, unsigned_of(bytes), ncclUint8, other, communicator_, issue.stream.native());
    scratch += round_up(bytes, exchange_alignment);
  }
  session_->settle(communicator_, ncclGroupEnd(), "ncclSend and ncclRecv");
}

/// Every rank sums its slice, in its place of `receive`.
void NcclCommunicator::sum_slices(const Issue& issue, const void* send, void* receive) {
  std::byte* scratch = scratch_for(issue);
  const Bytes width = size_of(issue.call.contribution);
  const Slice mine = slice_of(issue.call, rank_, size());
  ncclGroupStart();
  for (Rank other = 0; other < size(); ++other) {
    const Slice theirs = slice_of(issue.call, other, size());
    const bool own = other == rank_;
    sources_[static_cast<std::size_t>(other)] = own ? bytes_at(send, mine.begin * width) : scratch;
    if (own) continue;
    if (theirs.count > 0)
      ncclSend(bytes_at(send, theirs.begin * width), unsigned_of(theirs.count * width), ncclUint8,
               other, communicator_, issue.stream.native());
    if (mine.count > 0)
      ncclRecv(scratch, unsigned_of(mine.count * width), ncclUint8, other, communicator_,
               issue.stream.native());
    scratch += round_up(mine.count * width, exchange_alignment);
  }
  session_->settle(communicator_, ncclGroupEnd(), "ncclSend and ncclRecv");
  sum_sources(issue, bytes_at(receive, mine.begin * size_of(issue.call.result)), mine.count);
}

/// Every rank sends its slice of the sum to the others.
void NcclCommunicator::spread_slices(const Issue& issue, void* receive) {
  const Bytes width = size_of(issue.call.result);
  const Slice mine = slice_of(issue.call, rank_, size());
  ncclGroupStart();
  for (Rank other = 0; other < size(); ++other) {
    const Slice theirs = slice_of(issue.call, other, size());
    if (other == rank_) continue;
    if (mine.count > 0)
      ncclSend(bytes_at(receive, mine.begin * width), unsigned_of(mine.count * width), ncclUint8,
               other, communicator_, issue.stream.native());
    if (theirs.count > 0)
      ncclRecv(bytes_at(receive, theirs.begin * width), unsigned_of(theirs.count * width),
               ncclUint8, other, communicator_, issue.stream.native());
  }
  session_->settle(communicator_, ncclGroupEnd(), "ncclSend and ncclRecv");
}

void NcclCommunicator::sum_sources(const Issue& issue, void* destination, Elements count) {
  if (count > 0)
    kernels().reduce(sources_, issue.call.contribution, destination, issue.call.result, count,
                     issue.stream);
  issue.stream.record(*scratch_free_);
  scratch_stream_ = &issue.stream;
}

/// Scratch that nobody uses any more when the stream gets there.
std::byte* NcclCommunicator::scratch_for(const Issue& issue) {
  const Bytes bytes = exchange_bytes(issue.call, size());
  if (scratch_stream_ != nullptr && scratch_stream_ != &issue.stream)
    issue.stream.wait(*scratch_free_);
  if (bytes <= lent_bytes_) return static_cast<std::byte*>(lent_);
  if (bytes > own_scratch_.size()) {
    scratch_free_->synchronize();
    own_scratch_ = Buffer();
    own_scratch_ = Buffer(session_->device().memory(), bytes);
  }
  return static_cast<std::byte*>(own_scratch_.data());
}

}  // namespace flatshard::detail
