// A communicator over MPI whose sums follow the tree T.
#pragma once

#include <exception>
#include <memory>

#include "mpi_group.hpp"

namespace flatshard::detail {

class MpiCommunicator final : public Communicator {
 public:
  /// is_adopted: the first one on a communicator of the user's, which closes the session.
  explicit MpiCommunicator(std::shared_ptr<MpiGroup> group, bool is_adopted = false)
      : group_(std::move(group)), is_adopted_(is_adopted) {}
  ~MpiCommunicator() override;

  Rank rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::span<const Rank> members() const override { return group_->members(); }
  bool canonical_reduction() const override { return true; }
  bool any_thread() const override { return true; }

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
  void issue(const MpiCall& call, StreamRef stream);

  std::shared_ptr<MpiGroup> group_;
  bool is_adopted_;
  int exceptions_ = std::uncaught_exceptions();
};

/// The group of all ranks of `parent`, in a session of their own. Collective over it.
std::shared_ptr<MpiGroup> make_mpi_world(MPI_Comm parent, const MpiOptions& options);

}  // namespace flatshard::detail
