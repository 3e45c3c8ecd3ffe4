// The control channel over TCP: every rank has one connection, to rank 0, which passes things on.
#pragma once

#include <flatshard/comm/control_channel.hpp>

#include <chrono>
#include <vector>

#include "socket.hpp"

namespace flatshard::detail {

/// Failures are passed on by rank 0 when it calls something here; while it computes, they wait.
class TcpChannel final : public ControlChannel {
 public:
  /// peers: on rank 0 one connection per rank (its own is not open), elsewhere the one to rank 0.
  TcpChannel(Rank rank, int size, std::vector<Socket> peers, std::chrono::milliseconds patience);
  ~TcpChannel() override;

  Rank rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  void fail(const Failure& failure) noexcept override;
  std::optional<Failure> failure() noexcept override;
  bool has_left(Rank rank) noexcept override;

 private:
  enum class Kind : std::uint32_t { Gather = 1, Gathered, Failed, Left };
  struct Header {
    std::uint32_t kind;
    std::uint32_t bytes;
  };

  Rank peer_rank(std::size_t peer) const { return rank_ == 0 ? static_cast<Rank>(peer) : 0; }
  bool is_connected(std::size_t peer) const { return peers_[peer].is_open(); }
  void send(std::size_t peer, Kind kind, std::span<const std::byte> payload);
  void send_quietly(std::size_t peer, Kind kind, std::span<const std::byte> payload) noexcept;
  void receive(std::size_t peer, Kind kind, std::span<std::byte> payload);
  /// Takes a frame that is neither data nor expected; false when none is there yet.
  bool take_notice(std::size_t peer) noexcept;
  void note(const Failure& failure) noexcept;
  void take_failure(std::size_t peer, std::uint32_t bytes) noexcept;
  void lose(std::size_t peer) noexcept;
  [[noreturn]] void throw_failure() const;

  Rank rank_;
  int size_;
  std::vector<Socket> peers_;
  std::vector<bool> left_;  // by rank; elsewhere than on rank 0, of rank 0 alone
  std::chrono::milliseconds patience_;
  std::optional<Failure> failure_;
};

}  // namespace flatshard::detail
