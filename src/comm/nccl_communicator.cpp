#include "nccl_communicator.hpp"

#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "bytes_at.hpp"

namespace flatshard::detail {

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
