#include "mpi_communicator.hpp"

#include <flatshard/core/host_stream.hpp>

#include <numeric>
#include <utility>

namespace flatshard::detail {

namespace {

/// An issued collective in a stream's queue. Destroyed unrun, it tells the group why.
class MpiTicket {
 public:
  MpiTicket(std::shared_ptr<MpiGroup> group, std::uint64_t index, const MpiCall& mine)
      : group_(std::move(group)), index_(index), mine_(mine) {}
  MpiTicket(MpiTicket&&) noexcept = default;
  MpiTicket& operator=(MpiTicket&&) = delete;
  ~MpiTicket() {
    if (group_ != nullptr) group_->abandon(mine_.call, HostStream::skip_reason());
  }
  void operator()() {
    const auto group = std::exchange(group_, nullptr);
    group->run(index_, mine_);
  }

 private:
  std::shared_ptr<MpiGroup> group_;  // null once run
  std::uint64_t index_;
  MpiCall mine_;
};

}  // namespace

// A rank that unwinds leaves with its exception: MpiWorld::run is about to see it.
MpiCommunicator::~MpiCommunicator() {
  const bool unwinds = std::uncaught_exceptions() != exceptions_;
  if (!unwinds) group_->close();
  if (!is_adopted_) return;
  MpiSession& session = group_->session();
  if (unwinds)
    session.fail({session.rank(), "an exception has ended its use of the communicator"});
  else
    group_->finish();
  session.close();
}

void MpiCommunicator::issue(const MpiCall& call, StreamRef stream) {
  expect_valid(call.call, size());
  const std::uint64_t index = group_->issue();
  host_stream(stream).enqueue(MpiTicket(group_, index, call));
}

void MpiCommunicator::all_gather(std::string_view label, const void* send, void* receive,
                                 Elements count, DType dtype, StreamRef stream) {
  issue({{Operation::AllGather, label, count, dtype, dtype}, send, receive}, stream);
}

void MpiCommunicator::reduce_scatter(std::string_view label, const void* send, void* receive,
                                     Elements count, DType contribution, DType result,
                                     StreamRef stream) {
  issue({{Operation::ReduceScatter, label, count, contribution, result}, send, receive}, stream);
}

void MpiCommunicator::all_reduce(std::string_view label, const void* send, void* receive,
                                 Elements count, DType contribution, DType result,
                                 StreamRef stream) {
  issue({{Operation::AllReduce, label, count, contribution, result}, send, receive}, stream);
}

void MpiCommunicator::broadcast(std::string_view label, void* data, Elements count, DType dtype,
                                Rank root, StreamRef stream) {
  issue({{Operation::Broadcast, label, count, dtype, dtype, root}, data, data}, stream);
}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, int key) {
  return std::make_unique<MpiCommunicator>(group_->split(color, key));
}

void MpiCommunicator::synchronize() { group_->run(group_->issue(), {{Operation::Synchronize}}); }

void MpiCommunicator::abort(std::string_view message) noexcept {
  MpiSession& session = group_->session();
  session.fail({session.rank(), std::string(message)});
}

std::shared_ptr<MpiGroup> make_mpi_world(MPI_Comm parent, const MpiOptions& options) {
  auto session = std::make_shared<MpiSession>(parent, options);
  std::vector<Rank> all(static_cast<std::size_t>(session->size()));
  std::iota(all.begin(), all.end(), 0);
  const Rank rank = session->rank();
  return std::make_shared<MpiGroup>(std::move(session), 0, std::move(all), rank);
}

}  // namespace flatshard::detail
