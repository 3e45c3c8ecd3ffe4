// Carries out a LoadPlan: reads, converts, digests.
#pragma once

#include <flatshard/io/read_ahead.hpp>

#include <optional>
#include <vector>

#include "communicator_agreement.hpp"
#include "digests.hpp"
#include "load_plan.hpp"
#include "staging.hpp"

namespace flatshard::detail {

/// Sets by StoredSet, open where this rank reads; none elsewhere.
using OpenSets = std::vector<std::optional<safetensors::TensorSet>>;

/// One rank's part. Collective where rank 0 reads.
class Loading {
 public:
  /// `digests`: whether ranges that were read are recorded, as file = set, position = index in the
  /// plan.
  Loading(Engine& engine, const LoadPlan& plan, const OpenSets& sets, const LoadOptions& options,
          bool digests);

  /// Local reads go through `failure`, whose agree() the caller calls next.
  void run(SharedFailure& failure);
  const std::vector<RangeDigest>& digests() const { return digests_; }

 private:
  struct Target {
    StateTensor tensor;
    const Source* source;
    int index;  // in the plan
  };
  /// One block of one piece.
  struct Read {
    const Target* target;
    const ShardPiece* piece;
    Elements first, count;  // within the piece
  };
  std::vector<Read> own_reads();
  std::vector<FileRange> ranges_of(const std::vector<Read>& reads) const;
  void read_own(const Read& read, ReadAhead& ahead);
  void read_transposed(const Read& read);
  void read_own_pieces(SharedFailure& failure);
  std::byte* address_of(const Read& read) const;
  const safetensors::TensorSet& set_of(const Source& source) const {
    return *sets_[static_cast<std::size_t>(source.set)];
  }
  void broadcast_tensor(const Target& target, SharedFailure& failure);
  void place(const Target& target, Elements first, Elements count);
  bool records(const ShardPiece& piece) const;
  void record(const Target& target, Elements first, std::span<const std::byte> bytes);

  Engine& engine_;
  const OpenSets& sets_;
  const LoadOptions& options_;
  bool records_digests_;
  Staging staging_;
  std::map<StateTensor, std::vector<ShardPiece>> pieces_;
  std::vector<Target> targets_;  // in the order of the files
  std::vector<RangeDigest> digests_;
};

}  // namespace flatshard::detail
