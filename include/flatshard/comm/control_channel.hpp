// A channel among the hosts of all ranks, beside the devices' collectives: how a job begins (the
// unique id of a communicator travels over it) and how a failure reaches everybody.
#pragma once

#include <flatshard/core/types.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace flatshard {

/// Where and why a job failed; what() of the CommunicationError that every rank throws is
/// "rank r: message".
struct Failure {
  Rank rank;            // where it began
  std::string message;  // what it said
  friend bool operator==(const Failure&, const Failure&) = default;
};

/// One rank's end. Thread-safety: one thread.
class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  virtual Rank rank() const = 0;  // of the caller
  virtual int size() const = 0;   // number of ranks
  /// all[r * mine.size() ...] == what rank r gave; every rank gives equally many bytes. Blocks the
  /// host until all have come; throws CommunicationError when one has failed, left or is late.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  /// Tells every rank, unless a failure is known already.
  virtual void fail(const Failure& failure) noexcept = 0;
  /// The first failure that has come to be known here. Never blocks.
  virtual std::optional<Failure> failure() noexcept = 0;
  /// True once `rank` has left without a failure: it calls nothing any more.
  virtual bool has_left(Rank rank) noexcept = 0;

 protected:
  ControlChannel() = default;
};

}  // namespace flatshard
