#include "tcp_channel.hpp"

#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>
#include <cstring>

namespace flatshard::detail {

namespace {

constexpr std::uint32_t most_failure_bytes = 4096;  // of a message; the rest is cut off
constexpr auto courtesy = std::chrono::seconds(2);  // for news that nobody waits for

Deadline after(std::chrono::milliseconds patience) {
  return std::chrono::steady_clock::now() + patience;
}

}  // namespace

TcpChannel::TcpChannel(Rank rank, int size, std::vector<Socket> peers,
                       std::chrono::milliseconds patience)
    : rank_(rank),
      size_(size),
      peers_(std::move(peers)),
      left_(static_cast<std::size_t>(size)),
      patience_(patience) {}

TcpChannel::~TcpChannel() {
  for (std::size_t peer = 0; peer < peers_.size(); ++peer)
    if (is_connected(peer)) send_quietly(peer, Kind::Left, {});
}

void TcpChannel::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  FLATSHARD_EXPECTS(
      all.size() == mine.size() * static_cast<std::size_t>(size_),
      fmt::format("all_gather: {} bytes for {} ranks of {}", all.size(), size_, mine.size()));
  if (failure()) throw_failure();
  const auto part = [&](Rank rank) {
    return all.subspan(static_cast<std::size_t>(rank) * mine.size(), mine.size());
  };
  std::copy(mine.begin(), mine.end(), part(rank_).begin());
  if (rank_ != 0) {
    send(0, Kind::Gather, mine);
    receive(0, Kind::Gathered, all);
    return;
  }
  for (Rank other = 1; other < size_; ++other)
    receive(static_cast<std::size_t>(other), Kind::Gather, part(other));
  for (Rank other = 1; other < size_; ++other)
    send(static_cast<std::size_t>(other), Kind::Gathered, all);
}

void TcpChannel::fail(const Failure& failure) noexcept {
  if (!failure_) note(failure);
}

std::optional<Failure> TcpChannel::failure() noexcept {
  for (std::size_t peer = 0; peer < peers_.size(); ++peer)
    while (!failure_ && is_connected(peer) && take_notice(peer)) continue;
  return failure_;
}

bool TcpChannel::has_left(Rank rank) noexcept {
  failure();
  return left_[static_cast<std::size_t>(rank)];
}

void TcpChannel::send(std::size_t peer, Kind kind, std::span<const std::byte> payload) {
  const Header header{static_cast<std::uint32_t>(kind), static_cast<std::uint32_t>(payload.size())};
  const Deadline deadline = after(patience_);
  SocketResult result = peers_[peer].send(std::as_bytes(std::span(&header, 1)), deadline);
  if (result == SocketResult::Done) result = peers_[peer].send(payload, deadline);
  if (result == SocketResult::Done) return;
  while (is_connected(peer) && !failure_ && take_notice(peer)) continue;  // why it is gone
  if (!failure_) lose(peer);
  throw_failure();
}

void TcpChannel::send_quietly(std::size_t peer, Kind kind,
                              std::span<const std::byte> payload) noexcept {
  const Header header{static_cast<std::uint32_t>(kind), static_cast<std::uint32_t>(payload.size())};
  const Deadline deadline = after(courtesy);
  if (peers_[peer].send(std::as_bytes(std::span(&header, 1)), deadline) == SocketResult::Done)
    static_cast<void>(peers_[peer].send(payload, deadline));
}

void TcpChannel::receive(std::size_t peer, Kind kind, std::span<std::byte> payload) {
  const Deadline deadline = after(patience_);
  for (;;) {
    Header header{};
    while (!peers_[peer].has(sizeof(header))) {  // the others may have news meanwhile
      if (failure()) throw_failure();
      if (std::chrono::steady_clock::now() > deadline) {
        note({peer_rank(peer), fmt::format("did not come within {} ms", patience_.count())});
        throw_failure();
      }
      peers_[peer].wait_readable(std::chrono::milliseconds(5));
    }
    if (peers_[peer].peek(std::as_writable_bytes(std::span(&header, 1))) !=
        static_cast<std::ptrdiff_t>(sizeof(header))) {
      lose(peer);
      throw_failure();
    }
    if (header.kind != static_cast<std::uint32_t>(kind)) {
      if (!take_notice(peer)) note({peer_rank(peer), "sent what nobody expects"});
      if (failure_) throw_failure();
      continue;
    }
    const bool fits = header.bytes == payload.size();
    static_cast<void>(
        peers_[peer].receive(std::as_writable_bytes(std::span(&header, 1)), deadline));
    if (fits && peers_[peer].receive(payload, deadline) == SocketResult::Done) return;
    if (fits)
      lose(peer);
    else
      note({peer_rank(peer),
            fmt::format("gives {} bytes where {} are expected", header.bytes, payload.size())});
    throw_failure();
  }
}

bool TcpChannel::take_notice(std::size_t peer) noexcept {
  Header header{};
  const auto bytes = std::as_writable_bytes(std::span(&header, 1));
  const std::ptrdiff_t got = peers_[peer].peek(bytes);
  if (got == 0) return lose(peer), true;
  if (got < static_cast<std::ptrdiff_t>(sizeof(header))) return false;
  const auto kind = static_cast<Kind>(header.kind);
  if (kind != Kind::Failed && kind != Kind::Left) return false;
  static_cast<void>(peers_[peer].receive(bytes, after(courtesy)));
  if (kind == Kind::Failed) return take_failure(peer, header.bytes), true;
  left_[static_cast<std::size_t>(peer_rank(peer))] = true;
  peers_[peer].close();
  return true;
}

void TcpChannel::take_failure(std::size_t peer, std::uint32_t bytes) noexcept {
  std::uint32_t rank = 0;
  if (bytes < sizeof(rank) || bytes > sizeof(rank) + most_failure_bytes) return lose(peer);
  std::vector<std::byte> payload(bytes);
  if (peers_[peer].receive(payload, after(courtesy)) != SocketResult::Done) return lose(peer);
  std::memcpy(&rank, payload.data(), sizeof(rank));
  const auto* text = reinterpret_cast<const char*>(payload.data() + sizeof(rank));
  if (rank < static_cast<std::uint32_t>(size_))
    note({static_cast<Rank>(rank), std::string(text, bytes - sizeof(rank))});
}

/// Keeps the failure and passes it on.
void TcpChannel::note(const Failure& failure) noexcept {
  failure_ = failure;
  const auto rank = static_cast<std::uint32_t>(failure.rank);
  const std::size_t length =
      std::min(failure.message.size(), static_cast<std::size_t>(most_failure_bytes));
  std::vector<std::byte> payload(sizeof(rank) + length);
  std::memcpy(payload.data(), &rank, sizeof(rank));
  std::memcpy(payload.data() + sizeof(rank), failure.message.data(), length);
  for (std::size_t peer = 0; peer < peers_.size(); ++peer)
    if (is_connected(peer)) send_quietly(peer, Kind::Failed, payload);
}

void TcpChannel::lose(std::size_t peer) noexcept {
  peers_[peer].close();
  note({peer_rank(peer), "its process ended, or its connection broke"});
}

void TcpChannel::throw_failure() const {
  throw CommunicationError(failure_->rank, failure_->message);
}

}  // namespace flatshard::detail
