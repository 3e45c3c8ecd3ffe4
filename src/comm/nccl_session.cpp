#include "nccl_session.hpp"

#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

namespace flatshard::detail {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto farewell = std::chrono::seconds(10);  // for peers that leave, and for leaving

std::chrono::milliseconds in_milliseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration);
}

/// Waits for work that was begun on the host; false when it does not end in time or fails.
bool ends_within(ncclComm_t communicator, ncclResult_t result, Clock::duration limit) noexcept {
  const Clock::time_point deadline = Clock::now() + limit;
  while (result == ncclInProgress && Clock::now() < deadline) {
    std::this_thread::yield();
    if (ncclCommGetAsyncError(communicator, &result) != ncclSuccess) return false;
  }
  return result == ncclSuccess;
}

}  // namespace

std::string nccl_message(ncclComm_t communicator, ncclResult_t result, const std::string& call) {
  return fmt::format("{} failed: {} ({}): {}", call, ncclGetErrorString(result),
                     static_cast<int>(result), ncclGetLastError(communicator));
}

// Memory for exchanges is had at once: pinning waits for every device of the process, also for one
// on which another rank's collective waits for this rank.
NcclSession::NcclSession(ControlChannel* channel, Rank world_rank, int size, CudaDevice& device,
                         NcclOptions options)
    : channel_(channel),
      world_rank_(world_rank),
      device_(device),
      options_(options),
      memory_(device.ordinal()),
      pinned_(device.ordinal()),
      on_device_(memory_, (size + 1) * most_exchange),
      on_host_(pinned_, size * most_exchange),
      stream_(device.make_stream()) {}

NcclSession::~NcclSession() { abort_all(); }

void NcclSession::poll(Clock::duration waited) {
  if (failure_) throw_failure();
  if (channel_ != nullptr) {
    if (const std::optional<Failure> failure = channel_->failure()) {
      failure_ = failure;
      abort_all();
      throw_failure();
    }
  }
  poll_nccl();
  poll_patience(waited);
}

void NcclSession::poll_nccl() {
  for (const Member& member : members_) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(member.communicator, &state);
    if (result != ncclSuccess) state = result;
    if (state != ncclSuccess && state != ncclInProgress)
      fail(nccl_message(member.communicator, state, last_call()));
  }
}

void NcclSession::poll_patience(Clock::duration waited) {
  if (waited > options_.patience)
    fail(fmt::format("{} did not end within {} ms; the last collective was {}", awaited_,
                     options_.patience.count(), last_call()));
  if (channel_ == nullptr || waited < farewell) return;
  for (Rank rank = 0; rank < channel_->size(); ++rank)
    if (rank != world_rank_ && channel_->has_left(rank))
      fail({rank,
            fmt::format("left, while rank {} has waited {} ms for collectives; the last was {}",
                        world_rank_, in_milliseconds(waited).count(), last_call())});
}

void NcclSession::settle(ncclComm_t communicator, ncclResult_t result, const char* call) {
  const Clock::time_point start = Clock::now();
  const Awaited awaited(*this, call);
  while (result == ncclInProgress) {
    const ncclResult_t asked = ncclCommGetAsyncError(communicator, &result);
    if (asked != ncclSuccess) result = asked;
    if (result != ncclInProgress) break;
    const Clock::duration waited = Clock::now() - start;
    if (waited < std::chrono::milliseconds(1)) continue;
    poll(waited);
    std::this_thread::yield();
  }
  if (result == ncclSuccess) return;
  fail(nccl_message(communicator, result, fmt::format("{} ({})", call, last_call())));
}

void NcclSession::settle_child(ncclComm_t& child) {
  const Clock::time_point start = Clock::now();
  const Awaited awaited(*this, "ncclCommSplit's new communicator");
  const std::atomic_ref<ncclComm_t> stored(child);
  while (stored.load() == nullptr) {
    poll(Clock::now() - start);
    std::this_thread::yield();
  }
  settle(child, ncclInProgress, "ncclCommSplit");
}

void NcclSession::fail(const Failure& failure) {
  fail_quietly(failure);
  throw_failure();
}

void NcclSession::fail_quietly(const Failure& failure) noexcept {
  if (failure_) return;
  failure_ = failure;
  if (channel_ != nullptr) {
    channel_->fail(failure);
    failure_ = channel_->failure().value_or(failure);  // somebody else's may have been first
  }
  abort_all();
}

void NcclSession::throw_failure() const {
  throw CommunicationError(failure_->rank, failure_->message, {__FILE__, __LINE__});
}

/// In one group: aborting one after the other waits for kernels of the next.
void NcclSession::abort_all() noexcept {
  if (members_.empty()) return;
  announce_abort();
  static_cast<void>(ncclGroupStart());
  for (const Member& member : members_)
    if (member.owned) static_cast<void>(ncclCommAbort(member.communicator));
  static_cast<void>(ncclGroupEnd());
  members_.clear();
}

/// To who waits for the device without polling: a lane of its host.
void NcclSession::announce_abort() noexcept {
  DeviceMonitors* const device = as_cuda_stream(*stream_).monitors()->device();
  device->note_abort(std::make_exception_ptr(
      failure_ ? CommunicationError(failure_->rank, failure_->message, {__FILE__, __LINE__})
               : CommunicationError(world_rank_, "left its communicators while they were in use",
                                    {__FILE__, __LINE__})));
}

void NcclSession::add(ncclComm_t communicator, bool owned) {
  if (communicator != nullptr) members_.push_back({communicator, owned});
  ++communicators_;
}

void NcclSession::remove(ncclComm_t communicator, bool unwinding) noexcept {
  if (--communicators_ == 0) channel_ = nullptr;
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const Member& member) {
    return member.communicator == communicator;
  });
  if (found == members_.end()) return;  // aborted, or of one rank
  const bool owned = found->owned;
  members_.erase(found);
  if (!owned) return;
  const bool ends = !unwinding && !failure_ &&
                    ends_within(communicator, ncclCommFinalize(communicator), farewell);
  if (!ends) announce_abort();
  static_cast<void>(ends ? ncclCommDestroy(communicator) : ncclCommAbort(communicator));
}

void NcclSession::note(const CollectiveCall& call) {
  last_ = call;
  const std::size_t length = std::min(call.label.size(), last_label_.size());
  std::copy_n(call.label.begin(), length, last_label_.begin());
  last_.label = {last_label_.data(), length};
}

std::string NcclSession::last_call() const { return to_string(last_); }

void NcclSession::exchange_over_channel(const void* mine, void* all, Bytes bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  const auto ranks = static_cast<std::size_t>(channel_->size());
  try {
    channel_->all_gather({static_cast<const std::byte*>(mine), size},
                         {static_cast<std::byte*>(all), size * ranks});
  } catch (const CommunicationError& error) {
    const std::string text = error.what();  // "rank r: message"
    fail({error.rank(), text.substr(text.find(": ") + 2)});
  }
}

void NcclSession::exchange(ncclComm_t communicator, int size, const void* mine, void* all,
                           Bytes bytes) {
  if (communicator == nullptr) return exchange_over_channel(mine, all, bytes);
  auto* host = static_cast<std::byte*>(on_host_.data());
  auto* sent = static_cast<std::byte*>(on_device_.data());
  std::byte* received = sent + most_exchange;
  auto* native = static_cast<cudaStream_t>(cuda_stream(*stream_));
  const CudaDeviceGuard guard(device_.ordinal());
  std::memcpy(host, mine, static_cast<std::size_t>(bytes));
  device_.copy(host, sent, bytes, *stream_);
  settle(communicator,
         ncclAllGather(sent, received, static_cast<std::size_t>(bytes), ncclUint8, communicator,
                       native),
         "ncclAllGather");
  device_.copy(received, host, size * bytes, *stream_);
  const Awaited awaited(*this, "an exchange among the hosts");
  const auto query = [](void* stream) {
    return cudaStreamQuery(static_cast<cudaStream_t>(stream));
  };
  StreamMonitors monitors;
  monitors.add(std::shared_ptr<StreamMonitor>(std::shared_ptr<void>(), this));  // not owned
  wait_for_cuda(query, native, monitors);
  std::memcpy(all, host, static_cast<std::size_t>(size * bytes));
}

}  // namespace flatshard::detail
