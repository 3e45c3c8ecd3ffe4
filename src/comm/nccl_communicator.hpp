// A communicator over NCCL whose sums follow the tree T.
#pragma once

#include <flatshard/ops/kernel_table.hpp>

#include <exception>
#include <memory>
#include <vector>

#include "nccl_session.hpp"

namespace flatshard::detail {

class NcclCommunicator final : public Communicator {
 public:
  /// Takes over `communicator` unless it is not owned; null where there is but one rank. members:
  /// world ranks, in its order.
  NcclCommunicator(std::shared_ptr<NcclSession> session, ncclComm_t communicator, bool owned,
                   Rank rank, std::vector<Rank> members, bool is_world = false);
  ~NcclCommunicator() override;

  Rank rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  std::span<const Rank> members() const override { return members_; }
  bool canonical_reduction() const override { return true; }
  Device* device() const override { return &session_->device(); }
  bool needs_scratch() const override { return size() > 1; }
  void lend_scratch(void* memory, Bytes bytes) override;

  void all_gather(std::string_view label, const void* send, void* receive, Elements count,
                  DType dtype, StreamRef stream) override;
  void reduce_scatter(std::string_view label, const void* send, void* receive, Elements count,
                      DType contribution, DType result, StreamRef stream) override;
  void all_reduce(std::string_view label, const void* send, void* receive, Elements count,
                  DType contribution, DType result, StreamRef stream) override;
  void broadcast(std::string_view label, void* data, Elements count, DType dtype, Rank root,
                 StreamRef stream) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  void synchronize() override;
  void abort(std::string_view message) noexcept override;

 private:
  /// A call on its stream.
  struct Issue {
    const CollectiveCall& call;
    CudaStream& stream;
  };

  /// The part of a split that this rank is in: ranks here, in their new order.
  struct Part {
    std::vector<Rank> ranks;
    int color;       // of NCCL: counted from 0 over the parts of several ranks; one rank's: none
    bool any_large;  // some part has several ranks
  };
  Part part_of(int color, int key);
  /// For exchanges: null where all ranks of the job take part and have a channel.
  ncclComm_t exchanging() const { return is_world_ ? nullptr : communicator_; }
  ncclComm_t split_nccl(const Part& part, Rank position);

  Issue begin(const CollectiveCall& call, StreamRef stream);
  void check_call(const CollectiveCall& call);
  Rank world_rank(Rank rank) const { return members_[static_cast<std::size_t>(rank)]; }
  const KernelTable& kernels() const { return session_->device().kernels(); }

  void sum_slices(const Issue& issue, const void* send, void* receive);
  void spread_slices(const Issue& issue, void* receive);
  void gather_all(const Issue& issue, const void* send);
  void sum_sources(const Issue& issue, void* destination, Elements count);
  std::byte* scratch_for(const Issue& issue);
  void release_scratch(const Issue& issue);

  std::shared_ptr<NcclSession> session_;
  ncclComm_t communicator_;
  Rank rank_;
  std::vector<Rank> members_;
  bool is_world_;  // the job's, whose ranks have a channel
  std::uint64_t calls_ = 0;
  int exceptions_ = std::uncaught_exceptions();
  void* lent_ = nullptr;
  Bytes lent_bytes_ = 0;
  Buffer own_scratch_;
  std::vector<const void*> sources_;  // the kernels read it when they are issued
  std::unique_ptr<Event> scratch_free_;
  const Stream* scratch_stream_ = nullptr;  // that used it last
};

}  // namespace flatshard::detail
