#include <flatshard/core/error.hpp>
#include <flatshard/core/host_stream.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "allocation_count.hpp"
#include "random.hpp"

using flatshard::Event;
using flatshard::HostStream;
using flatshard::InlineStream;
using flatshard::make_host_event;
using flatshard::make_host_stream;
using flatshard::StreamForm;
using namespace std::chrono_literals;

namespace {

constexpr std::array forms{StreamForm::Inline, StreamForm::Threaded};

std::string message_of(auto call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// A door that a task of a threaded stream waits at.
struct Door {
  std::atomic<bool> open{false};
  void pass() const {
    while (!open.load()) std::this_thread::sleep_for(100us);
  }
};

}  // namespace

TEST_CASE("a stream runs its tasks in the order of issue, more of them than it has slots") {
  for (StreamForm form : forms) {
    std::vector<int> seen;
    const auto stream = make_host_stream(form);
    for (int i = 0; i < 2000; ++i) stream->enqueue([&seen, i] { seen.push_back(i); });
    stream->synchronize();
    REQUIRE(seen.size() == 2000);
    for (int i = 0; i < 2000; ++i) CHECK(seen[static_cast<std::size_t>(i)] == i);
  }
}

TEST_CASE("the forms differ in who runs: the issuing thread, or another one") {
  for (StreamForm form : forms) {
    std::thread::id runner;
    const auto stream = make_host_stream(form);
    stream->enqueue([&runner] { runner = std::this_thread::get_id(); });
    stream->synchronize();
    CHECK((runner == std::this_thread::get_id()) == (form == StreamForm::Inline));
  }
}

TEST_CASE("an event that was never recorded is complete") {
  const auto event = make_host_event();
  CHECK(event->is_complete());
  event->synchronize();
  for (StreamForm form : forms) {
    const auto stream = make_host_stream(form);
    stream->wait(*event);
    stream->synchronize();
  }
}

TEST_CASE("an event completes when the work before its record is done, not earlier") {
  Door door;
  const auto event = make_host_event();
  const auto stream = make_host_stream(StreamForm::Threaded);
  stream->enqueue([&door] { door.pass(); });
  stream->record(*event);
  CHECK_FALSE(event->is_complete());
  door.open.store(true);
  event->synchronize();
  CHECK(event->is_complete());
}

TEST_CASE("a wait is for the latest record made before it, whatever is recorded afterwards") {
  Door first_door, second_door;
  const auto event = make_host_event();
  const auto first = make_host_stream(StreamForm::Threaded);
  const auto second = make_host_stream(StreamForm::Threaded);
  const auto waiter = make_host_stream(StreamForm::Threaded);
  std::atomic<bool> passed{false};

  first->enqueue([&first_door] { first_door.pass(); });
  first->record(*event);
  waiter->wait(*event);
  waiter->enqueue([&passed] { passed.store(true); });
  SUBCASE("a later record on a stream that is done does not end the wait") {
    second->record(*event);
    CHECK(event->is_complete());
    std::this_thread::sleep_for(20ms);
    CHECK_FALSE(passed.load());
    first_door.open.store(true);
  }
  SUBCASE("a later record on a stream that is busy does not prolong it") {
    second->enqueue([&second_door] { second_door.pass(); });
    second->record(*event);
    first_door.open.store(true);
  }
  waiter->synchronize();
  CHECK(passed.load());
  second_door.open.store(true);
}

TEST_CASE("an event may outlive the stream that recorded it") {
  const auto event = make_host_event();
  int value = 0;
  {
    const auto stream = make_host_stream(StreamForm::Threaded);
    stream->enqueue([&value] { value = 7; });
    stream->record(*event);
  }
  CHECK(event->is_complete());
  event->synchronize();
  CHECK(value == 7);
}

TEST_CASE("events order plain memory across streams of both forms and across threads") {
  auto random = flatshard_test::generator();
  for (int round = 0; round < 50; ++round) {
    std::array<std::unique_ptr<HostStream>, 3> streams;
    for (auto& stream : streams) stream = make_host_stream(forms[random() % 2]);
    const auto ready = make_host_event();
    std::uint64_t value = 0;  // not atomic: the order must come from the events
    for (std::uint64_t step = 0; step < 60; ++step) {
      HostStream& stream = *streams[random() % 3];
      stream.wait(*ready);
      stream.enqueue([&value, step] { value = value * 3 + step; });
      stream.record(*ready);
    }
    std::uint64_t seen = 0;
    std::thread other([&] {
      ready->synchronize();
      seen = value;
    });
    other.join();
    std::uint64_t expected = 0;
    for (std::uint64_t step = 0; step < 60; ++step) expected = expected * 3 + step;
    CHECK(seen == expected);
  }
}

TEST_CASE("any thread may wait for an event while it is being recorded again") {
  const auto event = make_host_event();
  const auto stream = make_host_stream(StreamForm::Threaded);
  std::atomic<bool> stop{false};
  std::thread waiter([&] {
    while (!stop.load()) event->synchronize();
  });
  std::atomic<int> done{0};
  for (int i = 0; i < 1000; ++i) {
    stream->enqueue([&done] { done.fetch_add(1); });
    stream->record(*event);
  }
  stop.store(true);
  waiter.join();
  stream->synchronize();
  CHECK(done.load() == 1000);
}

TEST_CASE("after a task threw, tasks issued before the report are skipped, later ones run") {
  for (StreamForm form : forms) {
    CAPTURE(static_cast<int>(form));
    const auto stream = make_host_stream(form);
    Door door;
    if (form == StreamForm::Inline) door.open.store(true);
    int runs = 0;
    const auto event = make_host_event();
    stream->enqueue([&door] {
      door.pass();
      throw std::runtime_error("kernel failed");
    });
    if (form == StreamForm::Threaded)
      stream->enqueue([&runs] { ++runs; });  // issued before it threw
    stream->record(*event);
    door.open.store(true);
    event->synchronize();  // nobody hangs, and an event does not carry the error

    SUBCASE("synchronize reports, once") {
      CHECK(message_of([&] { stream->synchronize(); }) == "kernel failed");
    }
    SUBCASE("enqueue reports, once, and drops its own task") {
      CHECK(message_of([&] { stream->enqueue([&runs] { ++runs; }); }) == "kernel failed");
    }
    SUBCASE("check reports, once") {
      CHECK(message_of([&] { stream->check(); }) == "kernel failed");
      CHECK(message_of([&] { stream->check(); }) == "");
    }
    stream->synchronize();
    CHECK(runs == 0);
    stream->enqueue([&runs] { ++runs; });
    stream->synchronize();
    CHECK(runs == 1);
  }
}

TEST_CASE("the first error is the one that is reported") {
  const auto stream = make_host_stream(StreamForm::Threaded);
  Door door;
  stream->enqueue([&door] {
    door.pass();
    throw std::runtime_error("first");
  });
  stream->enqueue([] { throw std::runtime_error("second"); });
  door.open.store(true);
  CHECK(message_of([&] { stream->synchronize(); }) == "first");
  CHECK(message_of([&] { stream->synchronize(); }) == "");
}

TEST_CASE("check does not wait for work that is under way") {
  Door door;
  const auto stream = make_host_stream(StreamForm::Threaded);
  stream->enqueue([&door] { door.pass(); });
  stream->check();
  door.open.store(true);
}

TEST_CASE("waits of a stream in error still order") {
  Door door;
  const auto busy = make_host_stream(StreamForm::Threaded);
  const auto failed = make_host_stream(StreamForm::Threaded);
  const auto busy_done = make_host_event();
  const auto failed_done = make_host_event();
  busy->enqueue([&door] { door.pass(); });
  busy->record(*busy_done);
  failed->enqueue([] { throw std::runtime_error("x"); });
  failed->wait(*busy_done);
  failed->record(*failed_done);
  std::this_thread::sleep_for(20ms);
  CHECK_FALSE(failed_done->is_complete());
  door.open.store(true);
  failed_done->synchronize();
  CHECK(busy_done->is_complete());
}

TEST_CASE("a skipped task's destructor learns why, and only it") {
  struct Witness {
    std::string* reason;
    explicit Witness(std::string* where) : reason(where) {}
    Witness(Witness&& other) noexcept : reason(std::exchange(other.reason, nullptr)) {}
    ~Witness() {
      if (reason == nullptr) return;
      const std::exception_ptr error = HostStream::skip_reason();
      *reason = error ? message_of([&] { std::rethrow_exception(error); }) : "none";
    }
    void operator()() const {}
  };
  for (StreamForm form : forms) {
    const auto stream = make_host_stream(form);
    std::string ran, given, queued = "why";
    Door door;
    stream->enqueue(Witness(&ran));
    if (form == StreamForm::Inline) door.open.store(true);
    stream->enqueue([&door] {
      door.pass();
      throw std::runtime_error("why");
    });
    if (form == StreamForm::Threaded) {
      queued.clear();
      stream->enqueue(Witness(&queued));
    }
    const auto event = make_host_event();
    stream->record(*event);
    door.open.store(true);
    event->synchronize();
    CHECK(message_of([&] { stream->enqueue(Witness(&given)); }) == "why");
    CHECK(ran == "none");
    CHECK(queued == "why");
    CHECK(given == "why");
    CHECK(HostStream::skip_reason() == nullptr);
  }
}

TEST_CASE("the destructor runs what was issued and keeps an unread error to itself") {
  for (StreamForm form : forms) {
    int runs = 0;
    {
      const auto stream = make_host_stream(form);
      for (int i = 0; i < 100; ++i) stream->enqueue([&runs] { ++runs; });
    }
    CHECK(runs == 100);
    {
      const auto stream = make_host_stream(form);
      stream->enqueue([] { throw std::runtime_error("never read"); });
    }
  }
}

TEST_CASE("a queue that was full once has room for as many tasks without waiting") {
  const auto stream = make_host_stream(StreamForm::Threaded);
  int runs = 0;
  for (int round = 0; round < 2; ++round) {
    Door door;
    std::atomic<int> issued{0};
    std::thread issuer([&] {
      stream->enqueue([&door] { door.pass(); });
      for (int i = 0; i < 400; ++i, issued.fetch_add(1)) stream->enqueue([&runs] { ++runs; });
    });
    for (int wait = 0; wait < 3000 && round == 1 && issued.load() < 400; ++wait)
      std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(5ms);
    CHECK((issued.load() == 400) == (round == 1));
    door.open.store(true);
    issuer.join();
    stream->synchronize();
  }
  CHECK(runs == 800);
}

TEST_CASE("enqueue blocks while the queue is full and goes on when it is not") {
  Door door;
  const auto stream = make_host_stream(StreamForm::Threaded);
  std::atomic<int> issued{0};
  int runs = 0;
  std::thread issuer([&] {
    stream->enqueue([&door] { door.pass(); });
    for (int i = 0; i < 5000; ++i, issued.fetch_add(1)) stream->enqueue([&runs] { ++runs; });
  });
  std::this_thread::sleep_for(30ms);
  CHECK(issued.load() < 5000);
  door.open.store(true);
  issuer.join();
  stream->synchronize();
  CHECK(runs == 5000);
}

TEST_CASE("an empty task is refused") {
  for (StreamForm form : forms)
    CHECK_THROWS_AS(make_host_stream(form)->enqueue(flatshard::Task{}), flatshard::UsageError);
}

TEST_CASE("tasks, records and waits allocate nothing") {
  for (StreamForm form : forms) {
    const auto stream = make_host_stream(form);
    const auto other = make_host_stream(form);
    const auto event = make_host_event();
    std::array<std::byte, 200> captures{};
    long sum = 0;
    const auto round = [&] {
      stream->enqueue([captures, &sum] { sum += static_cast<long>(captures.size()); });
      stream->record(*event);
      other->wait(*event);
      other->enqueue([captures, &sum] { sum += static_cast<long>(captures.size()); });
      other->record(*event);
      stream->wait(*event);
    };
    round();
    stream->synchronize();
    const std::int64_t before = flatshard_test::allocations();
    for (int i = 0; i < 1000; ++i) {
      round();
      if (i % 50 == 0) stream->synchronize();  // fewer at once than there are slots at first
    }
    stream->synchronize();
    other->synchronize();
    CHECK(flatshard_test::allocations() == before);
    CHECK(sum == 2 * 1001 * 200);
  }
}

TEST_CASE("an inline stream may live on the stack") {
  InlineStream stream;
  int value = 0;
  stream.enqueue([&value] { value = 1; });
  CHECK(value == 1);
  stream.synchronize();
}

// At process exit: static streams are destroyed, a leaked one just ends with the process.
static const std::unique_ptr<HostStream> static_stream = make_host_stream(StreamForm::Threaded);
TEST_CASE("streams survive process exit") {
  static_stream->enqueue([] { std::this_thread::sleep_for(10ms); });
  auto* leaked = make_host_stream(StreamForm::Threaded).release();
  leaked->enqueue([] {});
  leaked->synchronize();
}
