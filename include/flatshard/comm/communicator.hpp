// Ranks and collectives, stream-ordered, behind one small virtual interface.
#pragma once

#include <flatshard/core/stream.hpp>
#include <flatshard/tensor/dtype.hpp>

#include <memory>
#include <span>
#include <string_view>

namespace flatshard {

class Device;  // core/device.hpp

/// A group of ranks that call the same collectives in the same order.
///
/// Every collective only enqueues on `stream`; buffers must stay valid and untouched until the
/// stream has run it. Collectives of one communicator are matched by the order in which each rank
/// *issues* them, whatever streams they go to. `label` names the unit (it must outlive the call's
/// execution); ranks that disagree on (label, operation, count, dtype) all get a CommunicationError
/// that names both sides. A failure of one rank reaches every rank as "rank r: message"; nothing
/// hangs. Counts are 64-bit; count 0 and size 1 are valid. One thread issues at a time.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual Rank rank() const = 0;  // of the caller, in this communicator
  virtual int size() const = 0;   // number of ranks
  /// World ranks of the members, in this communicator's order: members()[rank()] is the caller.
  virtual std::span<const Rank> members() const = 0;
  /// True when sums are formed by the reduction tree T (DESIGN.md, One hash).
  virtual bool canonical_reduction() const = 0;
  /// True when another thread than the one that made it may issue all calls of a communicator split
  /// from this one, at any time: what saving in the background needs.
  virtual bool any_thread() const { return false; }
  /// The device whose memory the collectives take; null: host memory.
  virtual Device* device() const { return nullptr; }
  /// True when sums need scratch memory of the device: detail::exchange_bytes (comm/call.hpp) each.
  virtual bool needs_scratch() const { return false; }
  /// `memory` serves as scratch from now on, for sums that need no more than `bytes`; it must stay
  /// as long as this communicator is used. Without it scratch is allocated when it is needed first.
  virtual void lend_scratch(void* memory, Bytes bytes) {
    static_cast<void>(memory);
    static_cast<void>(bytes);
  }

  /// receive[r * count + i] == send_of_rank_r[i]. In place when send == receive + rank() * count.
  virtual void all_gather(std::string_view label, const void* send, void* receive, Elements count,
                          DType dtype, StreamRef stream) = 0;
  /// receive[i] == result(T over r of send_of_rank_r[rank() * count + i]); send has size() * count
  /// elements. receive may be send + rank() * count when the dtypes are equal.
  virtual void reduce_scatter(std::string_view label, const void* send, void* receive,
                              Elements count, DType contribution, DType result,
                              StreamRef stream) = 0;
  /// receive[i] == result(T over r of send_of_rank_r[i]), the same on every rank. receive may be
  /// send when the dtypes are equal.
  virtual void all_reduce(std::string_view label, const void* send, void* receive, Elements count,
                          DType contribution, DType result, StreamRef stream) = 0;
  /// data of `root` arrives in data of every rank.
  virtual void broadcast(std::string_view label, void* data, Elements count, DType dtype, Rank root,
                         StreamRef stream) = 0;

  /// Collective over all members; blocks the host until every member called it. Members of equal
  /// color form a new communicator, ordered by (key, rank).
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  /// Blocks the host until every member has called it.
  virtual void synchronize() = 0;
  /// Fails every pending and later call of every member with "rank r: message".
  virtual void abort(std::string_view message) noexcept = 0;

 protected:
  Communicator() = default;
};

}  // namespace flatshard
