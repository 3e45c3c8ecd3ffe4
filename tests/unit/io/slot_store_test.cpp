#include <flatshard/io/integrity_error.hpp>
#include <flatshard/io/slot_store.hpp>

#include <doctest/doctest.h>

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "random.hpp"
#include "scratch_folder.hpp"
#include "slot_cases.hpp"

using namespace slot_cases;
using flatshard_test::ScratchFolder;

namespace {

const std::vector<Bytes> odd_sizes{0, 1, 4095, 4096, 4097, 3 * 4096, 100001, 0, 65536};

std::string message_of(const std::function<void()>& call) {
  try {
    call();
    return {};
  } catch (const UsageError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("what was written into a slot comes back, from and to memory anywhere") {
  auto random = flatshard_test::generator();
  const ScratchFolder scratch;
  HostMemory memory;
  for (const IoBackend backend : backends()) {
    for (const bool direct : {true, false}) {
      SlotStoreOptions options = options_for(scratch.path(), backend);
      options.direct = direct;
      options.block_bytes = 8192;
      SlotStore store(odd_sizes, memory, options);
      CHECK(store.backend() == backend);
      CHECK((!store.direct() || direct));
      CHECK(store.space_reserved());
      for (std::int64_t tag = 1; tag <= 2; ++tag) {
        for (const std::size_t skew : {std::size_t{0}, std::size_t{1}, std::size_t{512}}) {
          std::vector<Data> written;
          for (std::size_t slot = 0; slot < store.slots(); ++slot) {
            const Memory source(store.bytes(slot), skew);
            written.push_back(fresh(store, slot, random));
            std::copy(written[slot].begin(), written[slot].end(), source.span().begin());
            write(store, slot, tag, source.span());
          }
          for (std::size_t slot = 0; slot < store.slots(); ++slot) {
            CHECK(read(store, slot, tag) == written[slot]);
            CHECK(read(store, slot, tag, skew) == written[slot]);
          }
        }
      }
    }
  }
}

TEST_CASE("all slots are on their way at once, and requests of any order end") {
  auto random = flatshard_test::generator(1);
  const ScratchFolder scratch;
  HostMemory memory;
  const std::vector<Bytes> slot_bytes(40, 3 * 4096 + 7);
  for (const IoBackend backend : backends()) {
    SlotStore store(slot_bytes, memory, options_for(scratch.path(), backend));
    std::vector<Data> written(store.slots());
    std::vector<std::size_t> order(store.slots());
    for (std::size_t slot = 0; slot < order.size(); ++slot) order[slot] = slot;
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t slot : order) {
      written[slot] = fresh(store, slot, random);
      store.begin_write(slot, 5, written[slot]);
    }
    store.wait_all();
    std::shuffle(order.begin(), order.end(), random);
    std::vector<Data> found(store.slots(), Data(3 * 4096 + 7, std::byte{0xee}));
    for (const std::size_t slot : order) store.begin_read(slot, 5, found[slot]);
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t slot : order) {
      store.wait(slot);
      CHECK(store.finished(slot));
      CHECK(found[slot] == written[slot]);
    }
  }
}

TEST_CASE("slots do not touch each other; a read needs the tag of the last write") {
  auto random = flatshard_test::generator(2);
  const ScratchFolder scratch;
  HostMemory memory;
  for (const IoBackend backend : backends()) {
    SlotStore store(odd_sizes, memory, options_for(scratch.path(), backend));
    std::vector<Data> last(store.slots());
    std::vector<std::int64_t> tags(store.slots(), 0);
    for (std::size_t slot = 0; slot < store.slots(); ++slot)
      write(store, slot, 0, last[slot] = fresh(store, slot, random));
    for (int round = 1; round < 60; ++round) {
      const std::size_t slot = random() % store.slots();
      write(store, slot, tags[slot] = round, last[slot] = fresh(store, slot, random));
      const std::size_t other = random() % store.slots();
      CHECK(read(store, other, tags[other]) == last[other]);
      if (store.bytes(other) > 0) {
        CHECK_THROWS_AS(read(store, other, tags[other] + 1), IntegrityError);
        CHECK(read(store, other, tags[other]) == last[other]);
      }
    }
  }
}

TEST_CASE("a slot that was never written cannot be read") {
  const ScratchFolder scratch;
  HostMemory memory;
  const std::vector<Bytes> slot_bytes{4096, 10000};
  SlotStore store(slot_bytes, memory, options_for(scratch.path(), IoBackend::Threads));
  const auto error = io_cases::error_of([&] { read(store, 1, 7); });
  REQUIRE(error);
  CHECK(error->code() == EBADMSG);
  CHECK(error->operation() == "read");
  CHECK(error->offset() == 4096);
  CHECK(std::string(error->what()).find("slot 1, block 0 of 3 was not wholly written, not 7") !=
        std::string::npos);
  CHECK(error->path().starts_with(scratch / "flatshard-slots-"));
}

TEST_CASE("calls without meaning are refused, and change nothing") {
  const ScratchFolder scratch;
  HostMemory memory;
  const std::vector<Bytes> slot_bytes{4096, 10};
  SlotStore store(slot_bytes, memory, options_for(scratch.path(), IoBackend::Threads));
  Data data(4096, std::byte{1}), few(9);
  CHECK(message_of([&] { store.begin_write(2, 1, data); }) ==
        "SlotStore::begin_write: slot 2 of 2");
  CHECK(message_of([&] { store.wait(2); }) == "SlotStore::wait: slot 2 of 2");
  CHECK(message_of([&] { store.begin_read(1, 1, few); }) ==
        "SlotStore::begin_read: slot 1 has 10 bytes, the memory given has 9");
  CHECK(message_of([&] { store.begin_write(0, -1, data); }) ==
        "SlotStore::begin_write: slot 0: tag -1");
  store.wait(0);
  store.wait_all();
  write(store, 0, 1, data);
  CHECK(read(store, 0, 1) == data);
}

TEST_CASE("options without meaning are refused") {
  const ScratchFolder scratch;
  HostMemory memory;
  const std::vector<Bytes> slot_bytes{4096};
  const auto refused = [&](auto change, std::vector<Bytes> slots) {
    SlotStoreOptions options = options_for(scratch.path(), IoBackend::Threads);
    change(options);
    CHECK_THROWS_AS(SlotStore(slots, memory, options), UsageError);
  };
  for (const Bytes bytes : {Bytes{0}, Bytes{-4096}, Bytes{4097}, Bytes{512}, Bytes{2} << 30})
    refused([&](SlotStoreOptions& options) { options.block_bytes = bytes; }, slot_bytes);
  for (const int depth : {0, -1, 5000})
    refused([&](SlotStoreOptions& options) { options.queue_depth = depth; }, slot_bytes);
  refused([](SlotStoreOptions& options) { options.bounce_buffers = 0; }, slot_bytes);
  refused([](SlotStoreOptions&) {}, {4096, -1});
  CHECK(names_in(scratch.path()).empty());
  CHECK(memory.allocated() == 0);
}

TEST_CASE("memory and file are as large as was said before") {
  const ScratchFolder scratch;
  HostMemory memory;
  SlotStoreOptions options = options_for(scratch.path(), IoBackend::Threads);
  options.bounce_buffers = 3;
  options.block_bytes = 8192;
  const SlotStore store(odd_sizes, memory, options);
  CHECK(memory.allocated() == SlotStore::bounce_bytes(options));
  CHECK(memory.allocated() == 3 * 8192);
  struct ::stat status = {};
  REQUIRE(::stat(path_of_open_file(scratch.path()).c_str(), &status) == 0);
  CHECK(status.st_size == SlotStore::file_bytes(odd_sizes));
  CHECK(status.st_size == 4096 * (0 + 1 + 1 + 1 + 2 + 3 + 25 + 0 + 16));
  CHECK(status.st_blocks * 512 >= status.st_size);
}

TEST_CASE("a store says how it works") {
  const ScratchFolder scratch;
  HostMemory memory;
  SlotStoreOptions options = options_for(scratch.path(), IoBackend::Threads);
  options.direct = false;
  const SlotStore store(odd_sizes, memory, options);
  CHECK(store.description() == "threads, through the page cache, depth 3, blocks of 4096 bytes");
  CHECK(store.fallback().empty());
  options.backend = {};
  const SlotStore any(odd_sizes, memory, options);
  CHECK((any.backend() == IoBackend::Uring) == any.fallback().empty());
}

TEST_CASE("no slots, and only empty ones") {
  const ScratchFolder scratch;
  HostMemory memory;
  for (const IoBackend backend : backends()) {
    SlotStore none(std::vector<Bytes>{}, memory, options_for(scratch.path(), backend));
    none.wait_all();
    SlotStore empty(std::vector<Bytes>{0, 0}, memory, options_for(scratch.path(), backend));
    write(empty, 1, 3, {});
    CHECK(read(empty, 1, 3).empty());
  }
}

TEST_CASE("a store may be destroyed while requests are on their way") {
  auto random = flatshard_test::generator(3);
  const ScratchFolder scratch;
  HostMemory memory;
  const std::vector<Bytes> slot_bytes(8, 20 * 4096);
  for (const IoBackend backend : backends()) {
    for (int round = 0; round < 20; ++round) {
      const Data data = io_cases::random_bytes(random, 20 * 4096);
      SlotStore store(slot_bytes, memory, options_for(scratch.path(), backend));
      for (std::size_t slot = 0; slot < random() % 9; ++slot) store.begin_write(slot, 1, data);
    }
  }
  CHECK(names_in(scratch.path()).empty());
}
