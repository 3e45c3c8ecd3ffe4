// Control channels: of threads, and over TCP on the loopback interface.
#include <doctest/doctest.h>
#include <flatshard/comm/rendezvous.hpp>
#include <flatshard/core/error.hpp>

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "../../../src/comm/tcp_channel.hpp"
#include "../../../src/comm/thread_channel.hpp"
#include "random.hpp"
#include "worlds.hpp"

using namespace flatshard;
using conformance::index;
using conformance::message_of;
using namespace std::chrono_literals;

namespace {

using RankMain = std::function<void(ControlChannel&)>;
using Run = std::function<std::vector<std::string>(int, const RankMain&)>;

/// All different.
template <std::size_t count>
std::array<int, count> free_ports() {
  std::vector<detail::Socket> listeners;
  std::array<int, count> ports;
  for (int& port : ports) {
    listeners.push_back(detail::listen_on("127.0.0.1", 0));
    port = listeners.back().port();
  }
  return ports;
}
int free_port() { return free_ports<1>()[0]; }

RendezvousOptions options_of(Rank rank, int world, int port) {
  RendezvousOptions options;
  options.rank = rank;
  options.world = world;
  options.port = port;
  options.token = "a token of 27 characters ...";
  options.job = "job";
  options.patience = 20s;
  return options;
}

/// What each rank threw.
std::vector<std::string> on_threads(int size, const std::function<void(Rank)>& rank_main) {
  std::vector<std::string> messages(index(size));
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < size; ++rank)
    threads.emplace_back(
        [&, rank] { messages[index(rank)] = message_of([&] { rank_main(rank); }); });
  for (std::thread& thread : threads) thread.join();
  return messages;
}

std::vector<std::string> over_tcp(int size, const RankMain& rank_main) {
  const int port = free_port();
  return on_threads(size, [&](Rank rank) { rank_main(*rendezvous(options_of(rank, size, port))); });
}

std::vector<std::string> over_memory(int size, const RankMain& rank_main) {
  const auto channels = std::make_shared<detail::ThreadChannels>(size, 20s);
  return on_threads(size, [&](Rank rank) {
    detail::ThreadChannel channel(channels, rank);
    rank_main(channel);
    channels->leave(rank);
  });
}

const std::array<Run, 2> both{over_memory, over_tcp};

template <class Value>
std::vector<Value> gathered(ControlChannel& channel, const Value& mine) {
  std::vector<Value> all(index(channel.size()));
  channel.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

void expect_silence(const std::vector<std::string>& messages) {
  for (const std::string& message : messages) CHECK(message == "");
}

}  // namespace

TEST_CASE("channels gather what every rank gave, again and again") {
  for (const Run& run : both)
    for (int size : {1, 2, 3, 5})
      expect_silence(run(size, [&](ControlChannel& channel) {
        for (int round = 0; round < 20; ++round) {
          const auto all = gathered(channel, std::int64_t{1000} * round + channel.rank());
          for (Rank rank = 0; rank < size; ++rank)
            conformance::expect(all[index(rank)] == 1000 * round + rank, "what each rank gave");
        }
        gathered(channel, std::array<char, 3000>{});  // of another size
        conformance::expect(!channel.failure(), "no failure");
      }));
}

TEST_CASE("a failure reaches every rank, and the first one counts") {
  for (const Run& run : both)
    for (Rank bad : {0, 1, 2}) {
      CAPTURE(bad);
      const auto messages = run(3, [&](ControlChannel& channel) {
        gathered(channel, 1);
        if (channel.rank() == bad) channel.fail({bad, "disk full"});
        for (int round = 0; round < 3; ++round) gathered(channel, 2);
      });
      for (const std::string& message : messages)
        CHECK(message == "rank " + std::to_string(bad) + ": disk full");
    }
}

TEST_CASE("a failure is seen without a call of its own") {
  for (const Run& run : both) {
    const auto messages = run(3, [&](ControlChannel& channel) {
      gathered(channel, 1);
      if (channel.rank() == 2) channel.fail({2, "overheated"});
      while (!channel.failure()) std::this_thread::yield();
      conformance::expect(*channel.failure() == Failure{2, "overheated"}, "the failure");
    });
    expect_silence(messages);
  }
}

TEST_CASE("a rank that leaves is known to have left") {
  for (const Run& run : both)
    expect_silence(run(2, [&](ControlChannel& channel) {
      gathered(channel, 1);
      if (channel.rank() == 1) return;
      while (!channel.has_left(1)) std::this_thread::yield();
      conformance::expect(!channel.failure(), "leaving is no failure");
    }));
}

TEST_CASE("tcp: a process that ends without a word, or says what it may not, is a failure") {
  const std::array<std::uint32_t, 2> huge{1, 0xffffffff}, unknown{9, 4}, failed{3, 0x7fffffff};
  for (const auto& words : {std::array<std::uint32_t, 2>{}, huge, unknown, failed}) {
    std::array<int, 2> ends{};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0);
    std::vector<detail::Socket> peers(2);
    peers[1] = detail::Socket(ends[0]);
    detail::TcpChannel channel(0, 2, std::move(peers), 20s);
    detail::Socket other(ends[1]);
    if (words[0] != 0)
      other.send(std::as_bytes(std::span(words)), std::chrono::steady_clock::now() + 1s);
    other.close();
    const std::string message = message_of([&] { gathered(channel, 1); });
    CHECK(message.substr(0, 8) == "rank 1: ");
    CHECK(channel.failure().has_value());
  }
}

TEST_CASE("tcp: strangers do not keep the ranks apart") {
  const int port = free_port();
  std::atomic<bool> joined{false};
  std::thread strangers([&] {  // say nothing, say rubbish, pose as a rank without the token
    auto random = flatshard_test::generator();
    while (!joined.load()) {
      const auto soon = std::chrono::steady_clock::now() + 50ms;
      detail::Socket socket = detail::connect_to("127.0.0.1", port, soon);
      std::array<std::byte, 200> rubbish;
      for (std::byte& byte : rubbish) byte = static_cast<std::byte>(random() & 0xff);
      if (socket.is_open()) socket.send(rubbish, soon);
    }
  });
  const auto messages = on_threads(3, [&](Rank rank) {
    if (rank != 0) std::this_thread::sleep_for(100ms);
    gathered(*rendezvous(options_of(rank, 3, port)), 1);
  });
  joined.store(true);
  strangers.join();
  expect_silence(messages);
}

TEST_CASE("tcp: another token, job or world size is not admitted; the ranks that lack are named") {
  const auto ports = free_ports<3>();  // a world for each field
  const auto all = on_threads(9, [&](Rank thread) {
    const int field = thread / 3;
    RendezvousOptions options = options_of(thread % 3, 3, ports[index(field)]);
    options.patience = 3s;  // all of it is waited out: by then rank 1 must have come
    if (options.rank == 2 && field == 0) options.token = "another token of this length";
    if (options.rank == 2 && field == 1) options.job = "yesterday";
    if (options.rank == 2 && field == 2) options.world = 4;
    rendezvous(options);
  });
  for (int field = 0; field < 3; ++field) {
    CAPTURE(field);
    const std::string* const messages = &all[index(3 * field)];
    CHECK(messages[0].find("rank 0: rendezvous on 127.0.0.1") == 0);
    CHECK(messages[0].substr(messages[0].size() - 3) == ": 2");
    CHECK(messages[2].find("rank 2: rendezvous with rank 0") == 0);
    CHECK(messages[2].find("another token") != std::string::npos);
  }
}

TEST_CASE("tcp: options that cannot be are refused") {
  const auto refusal = [](auto change) {
    RendezvousOptions options = options_of(0, 1, 1);
    change(options);
    return message_of([&] { rendezvous(options); });
  };
  CHECK(refusal([](auto& options) { options.token = "short"; }).find("5 characters") !=
        std::string::npos);
  CHECK(refusal([](auto& options) { options.rank = 1; }).find("rank 1 of 1") != std::string::npos);
  CHECK(refusal([](auto& options) { options.port = 65536; }).find("port 65536") !=
        std::string::npos);
  for (const char* wildcard : {"0.0.0.0", "::"})
    CHECK(refusal([&](auto& options) {
            options.address = wildcard;
            options.port = free_port();
          }).find("every interface") != std::string::npos);
}
