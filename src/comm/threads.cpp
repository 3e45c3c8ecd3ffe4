#include <flatshard/comm/threads.hpp>

#include <flatshard/core/host_stream.hpp>
#include <flatshard/ops/host_device.hpp>

#include <algorithm>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "thread_group.hpp"

namespace flatshard {
namespace {

using detail::Contribution;
using detail::ThreadGroup;
using detail::ThreadSession;

/// An issued collective in a stream's queue. Destroyed unrun, it tells the group why.
class Ticket {
 public:
  Ticket(std::shared_ptr<ThreadGroup> group, Rank rank, std::uint64_t index, Contribution mine)
      : group_(std::move(group)), rank_(rank), index_(index), mine_(mine) {}
  Ticket(Ticket&&) noexcept = default;
  Ticket& operator=(Ticket&&) = delete;
  ~Ticket() {
    if (group_ != nullptr) group_->abandon(rank_, mine_.call, HostStream::skip_reason());
  }
  void operator()() {
    const auto group = std::exchange(group_, nullptr);
    group->run(rank_, index_, mine_);
  }

 private:
  std::shared_ptr<ThreadGroup> group_;  // null once run
  Rank rank_;
  std::uint64_t index_;
  Contribution mine_;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, Rank rank)
      : group_(std::move(group)), rank_(rank) {}
  // An unwinding rank leaves with its exception, which ThreadWorld::run is about to see.
  ~ThreadCommunicator() override {
    if (std::uncaught_exceptions() == exceptions_) group_->close(rank_);
  }

  Rank rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  std::span<const Rank> members() const override { return group_->members(); }
  bool canonical_reduction() const override { return true; }
  bool any_thread() const override { return true; }

  void all_gather(std::string_view label, const void* send, void* receive, Elements count,
                  DType dtype, StreamRef stream) override {
    issue({Operation::AllGather, label, count, dtype, dtype}, send, receive, stream);
  }
  void reduce_scatter(std::string_view label, const void* send, void* receive, Elements count,
                      DType contribution, DType result, StreamRef stream) override {
    issue({Operation::ReduceScatter, label, count, contribution, result}, send, receive, stream);
  }
  void all_reduce(std::string_view label, const void* send, void* receive, Elements count,
                  DType contribution, DType result, StreamRef stream) override {
    issue({Operation::AllReduce, label, count, contribution, result}, send, receive, stream);
  }
  void broadcast(std::string_view label, void* data, Elements count, DType dtype, Rank root,
                 StreamRef stream) override {
    issue({Operation::Broadcast, label, count, dtype, dtype, root}, data, data, stream);
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    std::shared_ptr<ThreadGroup> part = group_->split(rank_, color, key);
    const auto members = part->members();
    const Rank mine = group_->members()[static_cast<std::size_t>(rank_)];
    const auto position = std::find(members.begin(), members.end(), mine) - members.begin();
    return std::make_unique<ThreadCommunicator>(std::move(part), static_cast<Rank>(position));
  }
  void synchronize() override {
    group_->run(rank_, group_->issue(rank_), {.call = {Operation::Synchronize}});
  }
  void abort(std::string_view message) noexcept override {
    group_->session().fail(group_->members()[static_cast<std::size_t>(rank_)],
                           std::string(message));
  }

 private:
  void issue(const CollectiveCall& call, const void* send, void* receive, StreamRef stream) {
    detail::expect_valid(call, size());
    const std::uint64_t index = group_->issue(rank_);
    host_stream(stream).enqueue(Ticket(group_, rank_, index, {call, send, receive}));
  }

  std::shared_ptr<ThreadGroup> group_;
  Rank rank_;
  int exceptions_ = std::uncaught_exceptions();
};

void run_rank(const std::function<void(Communicator&)>& rank_main,
              const std::shared_ptr<ThreadGroup>& group, Rank rank) {
  try {
    ThreadCommunicator communicator(group, rank);
    rank_main(communicator);
  } catch (...) {
    group->session().fail(rank, std::current_exception());
  }
  group->session().end(rank);
}

int checked_size(int size) {
  FLATSHARD_EXPECTS(size >= 1, "ThreadWorld: " + std::to_string(size) + " ranks, need at least 1");
  return size;
}

}  // namespace

ThreadWorld::ThreadWorld(int size, ThreadWorldOptions options)
    : size_(checked_size(size)), kernels_(make_host_kernels({})), options_(options) {}

ThreadWorld::ThreadWorld(int size, const KernelTable& kernels, ThreadWorldOptions options)
    : size_(checked_size(size)),
      kernels_(std::shared_ptr<const KernelTable>(), &kernels),  // not owned
      options_(options) {}

void ThreadWorld::run(const std::function<void(Communicator&)>& rank_main) {
  const auto session = std::make_shared<ThreadSession>(size_, *kernels_, options_);
  const auto members_count = static_cast<std::size_t>(size_);
  std::vector<Rank> members(members_count);
  std::iota(members.begin(), members.end(), 0);
  const auto group = std::make_shared<ThreadGroup>(session, std::move(members));
  std::vector<std::thread> threads;
  threads.reserve(members_count);
  for (Rank rank = 0; rank < size_; ++rank) {
    try {
      threads.emplace_back([&rank_main, &group, rank] { run_rank(rank_main, group, rank); });
    } catch (const std::system_error& error) {
      session->fail(rank, std::string("cannot start its thread: ") + error.what());
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (session->failed()) session->throw_failure_with_cause();
}

}  // namespace flatshard
