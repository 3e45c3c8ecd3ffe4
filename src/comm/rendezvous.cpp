#include <flatshard/comm/rendezvous.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <flatshard/core/error.hpp>

#include <algorithm>
#include <cstring>
#include <thread>

#include "hmac.hpp"
#include "tcp_channel.hpp"

namespace flatshard {

namespace {

using detail::Deadline;
using detail::Digest;
using detail::Socket;
using detail::SocketResult;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t magic = 0x3168736674616c66;    // "flatsh1"
constexpr std::size_t least_token = 16;                // characters
constexpr auto answer_time = std::chrono::seconds(2);  // of a peer that has connected

/// What a rank says first. Fixed size, plain integers.
struct Greeting {
  std::uint64_t magic;
  std::int32_t rank;
  std::int32_t world;
  Digest challenge;
};
/// What rank 0 answers: that it knows the token, and its own challenge.
struct Answer {
  Digest proof;
  Digest challenge;
};

template <class Record>
std::span<const std::byte> bytes_of(const Record& record) {
  return std::as_bytes(std::span(&record, 1));
}
template <class Record>
std::span<std::byte> writable_bytes_of(Record& record) {
  return std::as_writable_bytes(std::span(&record, 1));
}

/// HMAC of everything that both sides must agree on, and of who speaks.
Digest proof_of(std::string_view side, const RendezvousOptions& options, const Greeting& greeting,
                const Digest& challenge) {
  std::vector<std::byte> message;
  const auto append = [&message](std::span<const std::byte> bytes) {
    message.insert(message.end(), bytes.begin(), bytes.end());
  };
  append(std::as_bytes(std::span(side)));
  append(bytes_of(greeting));
  append(challenge);
  append(std::as_bytes(std::span(options.job)));
  return detail::hmac_sha256(options.token, message);
}

/// Turns away whoever does not know the token, is of another job, or came before. False: nobody
/// joined.
bool admit(Socket connection, const RendezvousOptions& options, std::vector<Socket>& peers) {
  const Deadline deadline = Clock::now() + answer_time;
  Greeting greeting{};
  if (connection.receive(writable_bytes_of(greeting), deadline) != SocketResult::Done) return false;
  const bool possible = greeting.magic == magic && greeting.world == options.world &&
                        greeting.rank > 0 && greeting.rank < options.world;
  if (!possible) return false;
  Socket& place = peers[static_cast<std::size_t>(greeting.rank)];
  if (place.is_open()) return false;
  const Digest challenge = detail::random_digest();
  const Answer answer{proof_of("rank 0", options, greeting, challenge), challenge};
  if (connection.send(bytes_of(answer), deadline) != SocketResult::Done) return false;
  Digest proof{};
  if (connection.receive(proof, deadline) != SocketResult::Done) return false;
  if (!detail::equal_digests(proof, proof_of("peer", options, greeting, challenge))) return false;
  if (connection.send(bytes_of(magic), deadline) != SocketResult::Done) return false;
  place = std::move(connection);
  return true;
}

std::vector<Socket> gather_peers(const RendezvousOptions& options, Deadline deadline) {
  std::vector<Socket> peers(static_cast<std::size_t>(options.world));
  Socket listener = detail::listen_on(options.address, options.port);
  int missing = options.world - 1;
  while (missing > 0) {
    Socket connection = listener.accept(deadline);
    if (connection.is_open() && admit(std::move(connection), options, peers)) --missing;
    if (missing == 0 || Clock::now() < deadline) continue;
    std::vector<Rank> absent;
    for (Rank rank = 1; rank < options.world; ++rank)
      if (!peers[static_cast<std::size_t>(rank)].is_open()) absent.push_back(rank);
    throw CommunicationError(0,
                             fmt::format("rendezvous on {} port {}: within {} ms these ranks did "
                                         "not come, or did not know the token: {}",
                                         options.address, options.port, options.patience.count(),
                                         fmt::join(absent, " ")));
  }
  return peers;
}

/// One attempt; not open when rank 0 is not there yet or did not admit this rank.
Socket join_once(const RendezvousOptions& options, Deadline deadline) {
  Socket connection = detail::connect_to(options.address, options.port, deadline);
  if (!connection.is_open()) return connection;
  const Greeting greeting{magic, options.rank, options.world, detail::random_digest()};
  Answer answer{};
  if (connection.send(bytes_of(greeting), deadline) != SocketResult::Done ||
      connection.receive(writable_bytes_of(answer), deadline) != SocketResult::Done)
    return Socket();
  if (!detail::equal_digests(answer.proof, proof_of("rank 0", options, greeting, answer.challenge)))
    return Socket();
  std::uint64_t welcome = 0;
  if (connection.send(proof_of("peer", options, greeting, answer.challenge), deadline) !=
          SocketResult::Done ||
      connection.receive(writable_bytes_of(welcome), deadline) != SocketResult::Done)
    return Socket();
  return connection;
}

Socket join(const RendezvousOptions& options, Deadline deadline) {
  while (Clock::now() < deadline) {
    Socket connection = join_once(options, deadline);
    if (connection.is_open()) return connection;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  throw CommunicationError(
      options.rank,
      fmt::format("rendezvous with rank 0 at {} port {}: not admitted within {} ms: it "
                  "is not there, or has another token, job or world size",
                  options.address, options.port, options.patience.count()));
}

void check(const RendezvousOptions& options) {
  FLATSHARD_EXPECTS(options.world >= 1 && options.rank >= 0 && options.rank < options.world,
                    fmt::format("rendezvous: rank {} of {}", options.rank, options.world));
  FLATSHARD_EXPECTS(options.port > 0 && options.port < 65536,
                    fmt::format("rendezvous: port {}", options.port));
  FLATSHARD_EXPECTS(options.token.size() >= least_token,
                    fmt::format("rendezvous: the token has {} characters, at least {} are needed",
                                options.token.size(), least_token));
}

}  // namespace

std::unique_ptr<ControlChannel> rendezvous(const RendezvousOptions& options) {
  check(options);
  const Deadline deadline = Clock::now() + options.patience;
  std::vector<Socket> peers;
  if (options.rank == 0)
    peers = gather_peers(options, deadline);
  else
    peers.push_back(join(options, deadline));
  return std::make_unique<detail::TcpChannel>(options.rank, options.world, std::move(peers),
                                              options.patience);
}

}  // namespace flatshard
