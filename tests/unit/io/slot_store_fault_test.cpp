// Each fault at every transfer and every file operation: a typed error or the right bytes.
#include <flatshard/io/faulty_file_operations.hpp>
#include <flatshard/io/faulty_transfer_queue.hpp>
#include <flatshard/io/integrity_error.hpp>
#include <flatshard/io/slot_store.hpp>

#include <doctest/doctest.h>

#include <cerrno>
#include <thread>

#include "random.hpp"
#include "scratch_folder.hpp"
#include "slot_cases.hpp"

using namespace slot_cases;
using flatshard_test::ScratchFolder;

namespace {

// Blocks of 4096: 3 with a tail, 1 whole, 1 of a tail.
const std::vector<Bytes> faulty_sizes{2 * 4096 + 100, 4096, 70};
constexpr std::int64_t faulty_rounds = 2;
constexpr std::int64_t all_transfers = faulty_rounds * 2 * 5;

struct Outcome {
  int errors = 0, integrity_errors = 0;
  std::vector<int> codes;
};

template <class Call>
bool succeeds(Outcome& outcome, Call call) {
  try {
    call();
    return true;
  } catch (const IntegrityError& error) {
    ++outcome.integrity_errors;
    outcome.codes.push_back(error.code());
  } catch (const IoError& error) {
    CHECK(error.path().ends_with("/slots"));
    CHECK(error.offset() >= 0);
    outcome.codes.push_back(error.code());
  }
  ++outcome.errors;
  return false;
}

/// Writes and reads all slots again and again. Reads that succeed give what was written.
Outcome use(SlotStore& store, std::mt19937_64& random) {
  Outcome outcome;
  for (std::int64_t tag = 1; tag <= faulty_rounds; ++tag) {
    std::vector<Data> written;
    std::vector<bool> whole;
    for (std::size_t slot = 0; slot < store.slots(); ++slot)
      written.push_back(fresh(store, slot, random));
    for (std::size_t slot = 0; slot < store.slots(); ++slot)
      store.begin_write(slot, tag, written[slot]);
    for (std::size_t slot = 0; slot < store.slots(); ++slot)
      whole.push_back(succeeds(outcome, [&] { store.wait(slot); }));
    std::vector<Memory> found;
    for (std::size_t slot = 0; slot < store.slots(); ++slot) found.emplace_back(store.bytes(slot));
    for (std::size_t slot = 0; slot < store.slots(); ++slot)
      store.begin_read(slot, tag, found[slot].span());
    for (std::size_t slot = 0; slot < store.slots(); ++slot) {
      const bool came = succeeds(outcome, [&] { store.wait(slot); });
      if (came) CHECK(found[slot].copy() == written[slot]);
      CHECK((whole[slot] || !came));  // what was not wholly written is not read
    }
  }
  return outcome;
}

Outcome use_with(const SlotStoreOptions& options, std::mt19937_64& random) {
  HostMemory memory;
  SlotStore store(faulty_sizes, memory, options);
  return use(store, random);
}

SlotStoreOptions faulty(const std::string& folder, IoBackend backend, TransferFaults faults) {
  SlotStoreOptions options = options_for(folder, backend);
  options.decorate = [faults](std::unique_ptr<TransferQueue> queue) {
    return std::make_unique<FaultyTransferQueue>(std::move(queue), faults);
  };
  return options;
}

}  // namespace

TEST_CASE("an error at any transfer is the error of its slot") {
  auto random = flatshard_test::generator();
  const ScratchFolder scratch;
  for (const IoBackend backend : backends()) {
    for (const int code : {EIO, ENOSPC}) {
      for (std::int64_t n = 1; n <= all_transfers; ++n) {
        const Outcome outcome =
            use_with(faulty(scratch.path(), backend, {.transfer = n, .code = code}), random);
        REQUIRE(outcome.errors >= 1);
        CHECK(outcome.codes[0] == code);
        CHECK(outcome.errors - outcome.integrity_errors == 1);
      }
      CHECK(use_with(faulty(scratch.path(), backend, {.transfer = all_transfers + 1}), random)
                .errors == 0);
    }
  }
}

TEST_CASE(
    "a slot whose write failed gives neither its new bytes nor its old ones, until it is whole") {
  auto random = flatshard_test::generator(7);
  const ScratchFolder scratch;
  HostMemory memory;
  for (const IoBackend backend : backends()) {
    for (const std::size_t slot : {std::size_t{0}, std::size_t{1}}) {
      const std::int64_t blocks = slot == 0 ? 3 : 1;
      for (std::int64_t n = 1; n <= blocks; ++n) {
        const TransferFaults faults{.transfer = blocks + n, .code = ENOSPC};  // of the second write
        SlotStore store(faulty_sizes, memory, faulty(scratch.path(), backend, faults));
        const Data last = fresh(store, slot, random);
        write(store, slot, 1, fresh(store, slot, random));
        CHECK(io_cases::code_of([&] { write(store, slot, 2, last); }) == ENOSPC);
        for (const std::int64_t tag : {1, 2})
          CHECK(io_cases::code_of([&] { read(store, slot, tag); }) == EBADMSG);
        write(store, slot, 2, last);
        CHECK(read(store, slot, 2) == last);
      }
    }
  }
}

TEST_CASE("an error that nobody waited for is told by the next request, once") {
  auto random = flatshard_test::generator(8);
  const ScratchFolder scratch;
  HostMemory memory;
  for (const IoBackend backend : backends()) {
    SlotStore store(faulty_sizes, memory, faulty(scratch.path(), backend, {.transfer = 1}));
    const Data data = fresh(store, 1, random);
    store.begin_write(1, 1, data);
    while (!store.finished(1)) std::this_thread::yield();
    CHECK(io_cases::code_of([&] { store.begin_write(1, 2, data); }) == EIO);
    store.wait(1);
    write(store, 1, 2, data);
    CHECK(read(store, 1, 2) == data);
  }
}

TEST_CASE("a disk that fails for good fails every request, and nothing hangs") {
  auto random = flatshard_test::generator(1);
  const ScratchFolder scratch;
  for (const IoBackend backend : backends()) {
    for (std::int64_t n = 1; n <= all_transfers; n += 3) {
      const Outcome outcome =
          use_with(faulty(scratch.path(), backend, {.transfer = n, .sticky = true}), random);
      CHECK(outcome.errors >= 1);
    }
    CHECK(
        use_with(faulty(scratch.path(), backend, {.transfer = 1, .sticky = true}), random).errors ==
        faulty_rounds * 2 * 3);
  }
}

TEST_CASE("short transfers, interruptions and busy moments change nothing") {
  auto random = flatshard_test::generator(2);
  const ScratchFolder scratch;
  for (const IoBackend backend : backends()) {
    for (std::int64_t n = 1; n <= all_transfers; ++n) {
      for (const int code : {EINTR, EAGAIN})
        CHECK(use_with(faulty(scratch.path(), backend, {.transfer = n, .code = code}), random)
                  .errors == 0);
      CHECK(use_with(faulty(scratch.path(), backend,
                            {.transfer = n, .kind = TransferFaults::Kind::ShortCount}),
                     random)
                .errors == 0);
    }
  }
}

TEST_CASE("transfers that are interrupted, or come to nothing, for ever end in an error") {
  auto random = flatshard_test::generator(3);
  const ScratchFolder scratch;
  for (const IoBackend backend : backends()) {
    const Outcome busy = use_with(
        faulty(scratch.path(), backend, {.transfer = 1, .code = EAGAIN, .sticky = true}), random);
    CHECK(busy.errors == faulty_rounds * 2 * 3);
    CHECK(busy.codes[0] == EAGAIN);
    for (std::int64_t n = 1; n <= all_transfers; ++n) {
      const Outcome outcome = use_with(
          faulty(scratch.path(), backend, {.transfer = n, .kind = TransferFaults::Kind::Nothing}),
          random);
      REQUIRE(outcome.errors >= 1);
      CHECK((outcome.codes[0] == 0 || outcome.codes[0] == EIO));  // the end of the file; of a write
    }
  }
}

TEST_CASE("large blocks whose transfers all stop half-way come through, down to one page") {
  auto random = flatshard_test::generator(4);
  const ScratchFolder scratch;
  HostMemory memory;
  const std::vector<Bytes> slot_bytes{128 << 10};
  for (const IoBackend backend : backends()) {
    // Of 64 KiB: 32, 16, 8, 4, and then half a page, which is no progress where pages are needed.
    SlotStoreOptions options =
        faulty(scratch.path(), backend,
               {.transfer = 1, .kind = TransferFaults::Kind::ShortCount, .sticky = true});
    options.block_bytes = 64 << 10;
    SlotStore store(slot_bytes, memory, options);
    const Data data = fresh(store, 0, random);
    const auto error = io_cases::error_of([&] { write(store, 0, 1, data); });
    REQUIRE(error);
    CHECK(error->code() == EIO);
    CHECK(error->offset() % (64 << 10) == (60 << 10));
  }
}

TEST_CASE("a wrong bit and a lost write are noticed when they are read") {
  auto random = flatshard_test::generator(5);
  const ScratchFolder scratch;
  for (const IoBackend backend : backends()) {
    int noticed = 0;
    for (std::int64_t n = 1; n <= all_transfers; ++n) {
      const Outcome flipped =
          use_with(faulty(scratch.path(), backend,
                          {.transfer = n, .kind = TransferFaults::Kind::FlippedBit}),
                   random);
      CHECK(flipped.errors == 1);
      CHECK(flipped.integrity_errors == 1);
      const Outcome lost = use_with(
          faulty(scratch.path(), backend, {.transfer = n, .kind = TransferFaults::Kind::Lost}),
          random);
      CHECK(lost.errors == lost.integrity_errors);
      noticed += lost.errors;
    }
    // A lost read may find the right bytes in a bounce buffer.
    CHECK(noticed >= all_transfers / 2);
  }
}

TEST_CASE(
    "a fault at any file operation is a typed error or the right bytes, and nothing is left "
    "behind") {
  auto random = flatshard_test::generator(6);
  const ScratchFolder scratch;
  const auto descriptors = [] { return names_in("/proc/self/fd").size(); };
  const auto before = descriptors();
  for (const IoBackend backend : backends()) {
    for (const auto kind :
         {FileFaults::Kind::Error, FileFaults::Kind::ShortCount, FileFaults::Kind::PartialError}) {
      std::int64_t last = 0;
      int failures = 0;
      for (std::int64_t n = 1; last == 0 || n <= last; ++n) {
        FaultyFileOperations operations(posix_file_operations(), {.operation = n, .kind = kind});
        SlotStoreOptions options = options_for(scratch.path(), backend);
        options.operations = &operations;
        try {
          failures += use_with(options, random).errors;
        } catch (const IoError& error) {
          ++failures;
          CHECK(error.code() == EIO);
        }
        if (operations.faulty_operation().empty()) last = n;
      }
      if (kind == FileFaults::Kind::ShortCount) CHECK(failures == 0);
      if (kind != FileFaults::Kind::ShortCount) CHECK(failures >= 5);
    }
  }
  CHECK(descriptors() == before);
  // Only a folder whose removal failed may be left; the next store removes it.
  HostMemory memory;
  {
    const SlotStore sweeping(faulty_sizes, memory, options_for(scratch.path(), IoBackend::Threads));
  }
  CHECK(names_in(scratch.path()).empty());
}
