#include <flatshard/core/error.hpp>
#include <flatshard/io/file.hpp>
#include <flatshard/io/transfer_queue.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "random.hpp"
#include "refused_calls.hpp"
#include "scratch_folder.hpp"
#include "slot_cases.hpp"

using namespace slot_cases;
using flatshard_test::ScratchFolder;
using refused_calls::in_child;
using refused_calls::refuse;

namespace {

/// All results, by id; each id comes once.
std::map<std::uint64_t, std::int64_t> run(TransferQueue& queue,
                                          const std::vector<Transfer>& transfers) {
  std::map<std::uint64_t, std::int64_t> results;
  std::size_t begun = 0;
  while (results.size() < transfers.size()) {
    const std::size_t room = static_cast<std::size_t>(queue.depth()) - (begun - results.size());
    const std::size_t count = std::min(room, transfers.size() - begun);
    queue.submit(std::span(transfers).subspan(begun, count));
    begun += count;
    TransferResult found[2];
    const std::size_t came = queue.wait(found);
    REQUIRE(came >= 1);
    for (const TransferResult& result : std::span(found).first(came))
      REQUIRE(results.emplace(result.id, result.moved).second);
  }
  return results;
}

}  // namespace

TEST_CASE("every transfer gives one result, and bytes are where they belong") {
  auto random = flatshard_test::generator();
  const ScratchFolder scratch;
  for (const IoBackend backend : backends()) {
    for (const int depth : {1, 3, 32}) {
      const MadeQueue made = make_transfer_queue(backend, depth);
      CHECK(made.queue->backend() == backend);
      CHECK(made.queue->depth() == depth);
      CHECK(made.fallback.empty());
      const File file = File::create(scratch / (to_string(backend) + std::to_string(depth)));
      Data written = io_cases::random_bytes(random, 100000), found(written.size(), std::byte{0xee});
      std::vector<Transfer> writes, reads;
      for (Bytes at = 0; at < 100000;) {
        const Bytes bytes = std::min<Bytes>(1 + static_cast<Bytes>(random() % 5000), 100000 - at);
        writes.push_back({Transfer::Kind::Write, file.descriptor(), written.data() + at, bytes, at,
                          writes.size() + 7});
        reads.push_back(
            {Transfer::Kind::Read, file.descriptor(), found.data() + at, bytes, at, reads.size()});
        at += bytes;
      }
      std::shuffle(writes.begin(), writes.end(), random);
      std::shuffle(reads.begin(), reads.end(), random);
      const auto written_bytes = run(*made.queue, writes);
      for (const Transfer& transfer : writes)
        CHECK(written_bytes.at(transfer.id) == transfer.bytes);
      const auto read_bytes = run(*made.queue, reads);
      for (const Transfer& transfer : reads) CHECK(read_bytes.at(transfer.id) == transfer.bytes);
      CHECK(found == written);
    }
  }
}

TEST_CASE("a transfer past the end is short, one of a closed file an error") {
  const ScratchFolder scratch;
  for (const IoBackend backend : backends()) {
    const MadeQueue made = make_transfer_queue(backend, 4);
    File file = File::create(scratch / to_string(backend));
    file.write(0, Data(1000));
    Data data(4096);
    const auto results =
        run(*made.queue, {{Transfer::Kind::Read, file.descriptor(), data.data(), 4096, 0, 0},
                          {Transfer::Kind::Read, file.descriptor(), data.data(), 100, 1000, 1},
                          {Transfer::Kind::Read, -1, data.data(), 100, 0, 2},
                          {Transfer::Kind::Write, -1, data.data(), 100, 0, 3}});
    CHECK(results.at(0) == 1000);
    CHECK(results.at(1) == 0);
    CHECK(results.at(2) == -EBADF);
    CHECK(results.at(3) == -EBADF);
  }
}

TEST_CASE("a queue that is destroyed waits for what is in flight") {
  auto random = flatshard_test::generator(1);
  const ScratchFolder scratch;
  for (const IoBackend backend : backends()) {
    const File file = File::create(scratch / to_string(backend));
    Data data = io_cases::random_bytes(random, 1 << 20);
    {
      const MadeQueue made = make_transfer_queue(backend, 16);
      std::vector<Transfer> writes;
      for (Bytes n = 0; n < 16; ++n)
        writes.push_back({Transfer::Kind::Write, file.descriptor(), data.data() + n * 65536, 65536,
                          n * 65536, 0});
      made.queue->submit(writes);
    }
    Data found(data.size());
    file.read(0, found);
    CHECK(found == data);
  }
}

TEST_CASE("a depth without meaning is refused") {
  for (const int depth : {0, -1, 4097}) CHECK_THROWS_AS(make_transfer_queue({}, depth), UsageError);
}

// The codes of the children: 0 as it should be, 1 not so, 2 not to be tried here.
TEST_CASE("where the kernel refuses io_uring, threads take over and say why") {
  if (backends().size() < 2) return;
  struct Case {
    long call;
    int code;
    const char* reason;
  };
  for (const Case& refused :
       {Case{SYS_io_uring_setup, EPERM, "io_uring_setup: Operation not permitted"},
        Case{SYS_io_uring_setup, ENOSYS, "io_uring_setup: Function not implemented"},
        Case{SYS_io_uring_enter, EACCES, "io_uring_enter: Permission denied"}}) {
    const int status = in_child([&] {
      if (!refuse(refused.call, refused.code)) return 2;
      const MadeQueue made = make_transfer_queue({}, 2);
      if (made.queue->backend() != IoBackend::Threads || made.fallback != refused.reason) return 1;
      return io_cases::code_of([] { make_transfer_queue(IoBackend::Uring, 2); }) == refused.code
                 ? 0
                 : 1;
    });
    if (status == 2) MESSAGE("not tested: this kernel lets nobody refuse system calls");
    CHECK((status == 0 || status == 2));
  }
}

TEST_CASE("a kernel that takes nothing any more is an error of every request, not a hang") {
  if (backends().size() < 2) return;
  const ScratchFolder scratch;
  const int status = in_child([&] {
    HostMemory memory;
    const std::vector<Bytes> slot_bytes{40960, 5};
    SlotStore store(slot_bytes, memory, options_for(scratch.path(), IoBackend::Uring));
    const Data large(40960), small(5);
    write(store, 0, 1, large);
    if (!refuse(SYS_io_uring_enter, EINVAL)) return 2;
    if (io_cases::code_of([&] { write(store, 1, 2, small); }) != EINVAL) return 1;
    if (io_cases::code_of([&] { write(store, 0, 2, large); }) != EINVAL) return 1;
    return io_cases::code_of([&] { read(store, 0, 2); }) == EBADMSG ? 0 : 1;
  });
  if (status == 2) MESSAGE("not tested: this kernel lets nobody refuse system calls");
  CHECK((status == 0 || status == 2));
}
