#include "nccl_communicator.hpp"

#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>

namespace flatshard::detail {

namespace {

std::size_t unsigned_of(Bytes bytes) { return static_cast<std::size_t>(bytes); }

const std::byte* at(const void* data, Bytes offset) {
  return static_cast<const std::byte*>(data) + offset;
}
std::byte* at(void* data, Bytes offset) { return static_cast<std::byte*>(data) + offset; }

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

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclSession> session, ncclComm_t communicator,
                                   bool owned, Rank rank, std::vector<Rank> members, bool is_world)
    : session_(std::move(session)),
      communicator_(communicator),
      rank_(rank),
      members_(std::move(members)),
      is_world_(is_world),
      sources_(members_.size()),
      scratch_free_(session_->device().make_event()) {
  session_->add(communicator, owned);
}

NcclCommunicator::~NcclCommunicator() {
  session_->remove(communicator_, std::uncaught_exceptions() != exceptions_);
}

void NcclCommunicator::lend_scratch(void* memory, Bytes bytes) {
  lent_ = memory;
  lent_bytes_ = bytes;
}

NcclCommunicator::Issue NcclCommunicator::begin(const CollectiveCall& call, StreamRef stream) {
  expect_valid(call, size());
  CudaStream& cuda = as_cuda_stream(stream);
  session_->poll(std::chrono::steady_clock::duration{0});
  check_call(call);
  cuda.watch(session_);
  return {call, cuda};
}

void NcclCommunicator::check_call(const CollectiveCall& call) {
  session_->note(call);
  const std::uint64_t number = calls_++;
  if (!session_->options().check_calls || size() == 1) return;
  using Text = std::array<char, NcclSession::most_exchange>;
  Text mine{};
  const std::string text = to_string(call);
  std::copy_n(text.begin(), std::min(text.size(), mine.size() - 1), mine.begin());
  std::vector<Text> all(members_.size());
  session_->exchange(exchanging(), size(), mine.data(), all.data(), sizeof(Text));
  for (std::size_t other = 1; other < all.size(); ++other)
    if (all[other] != all[0])
      session_->fail(
          {members_[other],
           fmt::format("collective call {} differs: rank {} calls {}, rank {} calls {}", number,
                       members_[0], all[0].data(), members_[other], all[other].data())});
}

void NcclCommunicator::all_gather(std::string_view label, const void* send, void* receive,
                                  Elements count, DType dtype, StreamRef stream) {
  const CollectiveCall call{Operation::AllGather, label, count, dtype, dtype};
  const Issue issue = begin(call, stream);
  const Bytes bytes = count * size_of(dtype);
  if (size() == 1) return session_->device().copy(send, receive, bytes, stream);
  if (bytes == 0) return;
  const CudaDeviceGuard guard(session_->device().ordinal());
  session_->settle(communicator_,
                   ncclAllGather(send, receive, unsigned_of(bytes), ncclUint8, communicator_,
                                 issue.stream.native()),
                   "ncclAllGather");
}

void NcclCommunicator::broadcast(std::string_view label, void* data, Elements count, DType dtype,
                                 Rank root, StreamRef stream) {
  const CollectiveCall call{Operation::Broadcast, label, count, dtype, dtype, root};
  const Issue issue = begin(call, stream);
  if (size() == 1 || count == 0) return;
  const CudaDeviceGuard guard(session_->device().ordinal());
  session_->settle(communicator_,
                   ncclBroadcast(data, data, unsigned_of(count * size_of(dtype)), ncclUint8, root,
                                 communicator_, issue.stream.native()),
                   "ncclBroadcast");
}

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
    sources_[static_cast<std::size_t>(other)] = own ? at(send, rank_ * bytes) : scratch;
    if (own) continue;
    ncclSend(at(send, other * bytes), unsigned_of(bytes), ncclUint8, other, communicator_,
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
    sources_[static_cast<std::size_t>(other)] = own ? at(send, mine.begin * width) : scratch;
    if (own) continue;
    if (theirs.count > 0)
      ncclSend(at(send, theirs.begin * width), unsigned_of(theirs.count * width), ncclUint8, other,
               communicator_, issue.stream.native());
    if (mine.count > 0)
      ncclRecv(scratch, unsigned_of(mine.count * width), ncclUint8, other, communicator_,
               issue.stream.native());
    scratch += round_up(mine.count * width, exchange_alignment);
  }
  session_->settle(communicator_, ncclGroupEnd(), "ncclSend and ncclRecv");
  sum_sources(issue, at(receive, mine.begin * size_of(issue.call.result)), mine.count);
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
      ncclSend(at(receive, mine.begin * width), unsigned_of(mine.count * width), ncclUint8, other,
               communicator_, issue.stream.native());
    if (theirs.count > 0)
      ncclRecv(at(receive, theirs.begin * width), unsigned_of(theirs.count * width), ncclUint8,
               other, communicator_, issue.stream.native());
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

NcclCommunicator::Part NcclCommunicator::part_of(int color, int key) {
  const std::array<int, 2> mine{color, key};
  std::vector<std::array<int, 2>> all{mine};
  all.resize(members_.size());
  if (size() > 1) session_->exchange(exchanging(), size(), mine.data(), all.data(), sizeof(mine));
  std::map<int, std::vector<Rank>> parts;
  for (Rank other = 0; other < size(); ++other)
    parts[all[static_cast<std::size_t>(other)][0]].push_back(other);
  Part part{parts.at(color), NCCL_SPLIT_NOCOLOR, false};
  int next = 0;
  for (const auto& [of_color, ranks] : parts) {
    if (ranks.size() < 2) continue;
    if (of_color == color) part.color = next;
    ++next;
  }
  part.any_large = next > 0;
  std::stable_sort(part.ranks.begin(), part.ranks.end(), [&](Rank left, Rank right) {
    return all[static_cast<std::size_t>(left)][1] < all[static_cast<std::size_t>(right)][1];
  });
  return part;
}

/// Every rank of a communicator calls it, also one that is alone in its part and gets null.
ncclComm_t NcclCommunicator::split_nccl(const Part& part, Rank position) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t child = nullptr;
  const CudaDeviceGuard guard(session_->device().ordinal());
  session_->settle(communicator_,
                   ncclCommSplit(communicator_, part.color, position, &child, &config),
                   "ncclCommSplit");
  if (part.color != NCCL_SPLIT_NOCOLOR) session_->settle_child(child);
  return child;
}

std::unique_ptr<Communicator> NcclCommunicator::split(int color, int key) {
  session_->poll(std::chrono::steady_clock::duration{0});
  check_call({Operation::Split});
  Part part = part_of(color, key);
  const auto position = static_cast<Rank>(std::find(part.ranks.begin(), part.ranks.end(), rank_) -
                                          part.ranks.begin());
  ncclComm_t child = part.any_large ? split_nccl(part, position) : nullptr;
  for (Rank& rank : part.ranks) rank = world_rank(rank);
  return std::make_unique<NcclCommunicator>(session_, child, true, position, std::move(part.ranks));
}

void NcclCommunicator::synchronize() {
  session_->poll(std::chrono::steady_clock::duration{0});
  check_call({Operation::Synchronize});
  if (size() == 1) return;
  const std::int64_t mine = 0;
  std::vector<std::int64_t> all(members_.size());
  session_->exchange(exchanging(), size(), &mine, all.data(), sizeof(mine));
}

void NcclCommunicator::abort(std::string_view message) noexcept {
  session_->fail_quietly({world_rank(rank_), std::string(message)});
}

}  // namespace flatshard::detail
