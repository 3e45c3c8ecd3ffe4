// The control channel of ranks that are threads of one process.
#pragma once

#include <flatshard/comm/control_channel.hpp>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

namespace flatshard::detail {

/// What all ends share. Thread-safe.
class ThreadChannels {
 public:
  ThreadChannels(int size, std::chrono::milliseconds patience);

  int size() const { return size_; }
  void all_gather(Rank rank, std::span<const std::byte> mine, std::span<std::byte> all);
  /// Keeps the first only.
  void fail(const Failure& failure, std::exception_ptr cause = nullptr) noexcept;
  /// The same with the message (and for a CommunicationError the rank) of an exception.
  void fail(Rank rank, std::exception_ptr cause) noexcept;
  std::optional<Failure> failure() const noexcept;
  void leave(Rank rank) noexcept;
  bool has_left(Rank rank) const noexcept;
  /// Throws the failure, if there is one, with its cause nested in it.
  void rethrow() const;

 private:
  int size_;
  std::chrono::milliseconds patience_;
  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::vector<std::byte> gathering_, gathered_;
  int arrived_ = 0;
  std::uint64_t round_ = 0;
  std::vector<bool> left_;
  std::optional<Failure> failure_;
  std::exception_ptr cause_;
};

/// One rank's end.
class ThreadChannel final : public ControlChannel {
 public:
  ThreadChannel(std::shared_ptr<ThreadChannels> channels, Rank rank)
      : channels_(std::move(channels)), rank_(rank) {}

  Rank rank() const override { return rank_; }
  int size() const override { return channels_->size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    channels_->all_gather(rank_, mine, all);
  }
  void fail(const Failure& failure) noexcept override { channels_->fail(failure); }
  std::optional<Failure> failure() noexcept override { return channels_->failure(); }
  bool has_left(Rank rank) noexcept override { return channels_->has_left(rank); }

 private:
  std::shared_ptr<ThreadChannels> channels_;
  Rank rank_;
};

}  // namespace flatshard::detail
