#include <flatshard/io/faulty_transfer_queue.hpp>
#include <flatshard/io/integrity_error.hpp>
#include <flatshard/io/slot_pipeline.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "random.hpp"
#include "scratch_folder.hpp"
#include "slot_cases.hpp"

using namespace slot_cases;
using flatshard_test::ScratchFolder;

namespace {

const std::vector<Bytes> pipeline_sizes{10000, 1, 0, 4096, 20480, 777, 8192, 12288};

void add_one(std::span<std::byte> data) {
  for (std::byte& byte : data) byte = static_cast<std::byte>(std::to_integer<unsigned>(byte) + 1);
}

/// A store whose slots were written under tag 0.
struct Filled {
  Filled(const SlotStoreOptions& options, std::mt19937_64& random)
      : store(pipeline_sizes, memory, options) {
    for (std::size_t slot = 0; slot < store.slots(); ++slot) {
      slots.push_back(slot);
      write(store, slot, 0, contents.emplace_back(fresh(store, slot, random)));
    }
  }
  HostMemory memory;
  SlotStore store;
  std::vector<std::size_t> slots;
  std::vector<Data> contents;
};

/// Passes on; counts the most reads and writes that were in flight together.
class Watching final : public TransferQueue {
 public:
  struct Seen {
    std::mutex mutex;
    int reads = 0, writes = 0;
    bool overlapped = false;
  };
  Watching(std::unique_ptr<TransferQueue> inner, Seen& seen)
      : inner_(std::move(inner)), seen_(seen) {}
  IoBackend backend() const override { return inner_->backend(); }
  int depth() const override { return inner_->depth(); }
  void submit(std::span<const Transfer> transfers) noexcept override {
    {
      const std::lock_guard hold(seen_.mutex);
      for (const Transfer& transfer : transfers) {
        is_write_[transfer.id] = transfer.kind == Transfer::Kind::Write;
        ++(is_write_[transfer.id] ? seen_.writes : seen_.reads);
      }
      seen_.overlapped |= seen_.reads > 0 && seen_.writes > 0;
    }
    inner_->submit(transfers);
  }
  std::size_t wait(std::span<TransferResult> results) noexcept override {
    const std::size_t count = inner_->wait(results);
    const std::lock_guard hold(seen_.mutex);
    for (const TransferResult& result : results.first(count))
      --(is_write_[result.id] ? seen_.writes : seen_.reads);
    return count;
  }

 private:
  std::unique_ptr<TransferQueue> inner_;
  Seen& seen_;
  bool is_write_[16] = {};
};

}  // namespace

TEST_CASE("every slot is worked on once, in order, whatever the number of buffers") {
  auto random = flatshard_test::generator();
  const ScratchFolder scratch;
  for (const IoBackend backend : backends()) {
    for (const int buffers : {1, 2, 3, 8, 20}) {
      Filled filled(options_for(scratch.path(), backend), random);
      HostMemory memory;
      SlotPipeline pipeline(filled.store, memory, buffers);
      CHECK(memory.allocated() == buffers * 20480);
      CHECK(memory.allocated() == SlotPipeline::buffer_bytes(pipeline_sizes, buffers));
      for (std::int64_t tag = 0; tag < 3; ++tag) {
        std::vector<std::size_t> order = filled.slots, seen;
        std::shuffle(order.begin(), order.end(), random);
        pipeline.wait_for_each(order, tag, tag + 1,
                               [&](std::size_t slot, std::span<std::byte> data) {
                                 seen.push_back(slot);
                                 CHECK(Data(data.begin(), data.end()) == filled.contents[slot]);
                                 add_one(data);
                                 add_one(filled.contents[slot]);
                               });
        CHECK(seen == order);
      }
      for (const std::size_t slot : filled.slots)
        CHECK(read(filled.store, slot, 3) == filled.contents[slot]);
    }
  }
}

TEST_CASE("without a new tag slots are only read") {
  auto random = flatshard_test::generator(1);
  const ScratchFolder scratch;
  Filled filled(options_for(scratch.path(), IoBackend::Threads), random);
  SlotPipeline pipeline(filled.store, filled.memory, 3);
  for (int round = 0; round < 2; ++round)
    pipeline.wait_for_each(filled.slots, 0, std::nullopt,
                           [&](std::size_t slot, std::span<std::byte> data) {
                             CHECK(Data(data.begin(), data.end()) == filled.contents[slot]);
                             add_one(data);
                           });
  for (const std::size_t slot : filled.slots)
    CHECK(read(filled.store, slot, 0) == filled.contents[slot]);
}

TEST_CASE("reads, work and writes overlap with three buffers, and not with one") {
  auto random = flatshard_test::generator(2);
  const ScratchFolder scratch;
  for (const IoBackend backend : backends()) {
    for (const int buffers : {1, 3}) {
      Watching::Seen seen;
      SlotStoreOptions options = options_for(scratch.path(), backend);
      options.decorate = [&](std::unique_ptr<TransferQueue> queue) {
        return std::make_unique<Watching>(std::move(queue), seen);
      };
      Filled filled(options, random);
      SlotPipeline pipeline(filled.store, filled.memory, buffers);
      int ahead = 0;
      for (std::int64_t tag = 0; tag < 20; ++tag) {
        pipeline.wait_for_each(filled.slots, tag, tag + 1,
                               [&](std::size_t slot, std::span<std::byte>) {
                                 if (slot + 1 < pipeline_sizes.size())
                                   ahead += pipeline.prefetch(slot + 1, tag);
                               });
      }
      CHECK(seen.overlapped == (buffers == 3));
      CHECK((ahead > 0) == (buffers == 3));
    }
  }
}

TEST_CASE("slots may be taken and given back one by one") {
  auto random = flatshard_test::generator(3);
  const ScratchFolder scratch;
  for (const IoBackend backend : backends()) {
    Filled filled(options_for(scratch.path(), backend), random);
    SlotPipeline pipeline(filled.store, filled.memory, 2);
    CHECK(pipeline.prefetch(4, 0));
    CHECK(pipeline.prefetch(4, 0));
    CHECK(pipeline.prefetch(0, 0));
    CHECK_FALSE(pipeline.prefetch(3, 0));
    const std::span<std::byte> data = pipeline.wait_for(4, 0);
    CHECK(Data(data.begin(), data.end()) == filled.contents[4]);
    CHECK(pipeline.wait_for(0, 0).size() == 10000);
    CHECK_THROWS_AS(pipeline.wait_for(3, 0), UsageError);  // both are held
    CHECK_THROWS_AS(pipeline.put_back(3, 1), UsageError);
    add_one(data);
    pipeline.put_back(4, 1);
    CHECK_THROWS_AS(pipeline.put_back(4, 1), UsageError);
    pipeline.wait_and_drop(0);
    pipeline.wait_and_drop(0);
    CHECK(pipeline.wait_for(4, 1).size() == 20480);  // after its own write
    pipeline.wait_and_drop(4);
    const std::span<std::byte> empty = pipeline.wait_for_empty(6);
    std::fill(empty.begin(), empty.end(), std::byte{9});
    pipeline.put_back(6, 5);
    pipeline.wait_all();
    CHECK(read(filled.store, 6, 5) == Data(8192, std::byte{9}));
    add_one(filled.contents[4]);
    CHECK(read(filled.store, 4, 1) == filled.contents[4]);
  }
}

TEST_CASE(
    "an error of any transfer ends the pass with every buffer free, and work sees no wrong bytes") {
  auto random = flatshard_test::generator(4);
  const ScratchFolder scratch;
  using Kind = TransferFaults::Kind;
  for (const IoBackend backend : backends()) {
    for (const Kind kind : {Kind::Error, Kind::FlippedBit, Kind::Nothing}) {
      for (std::int64_t n = 1, failed = 1; failed > 0 || n < 20; ++n) {
        SlotStoreOptions options = options_for(scratch.path(), backend);
        options.decorate = [&](std::unique_ptr<TransferQueue> queue) {
          // Counting begins after the 16 blocks that Filled writes.
          return std::make_unique<FaultyTransferQueue>(
              std::move(queue), TransferFaults{.transfer = 16 + n, .kind = kind});
        };
        Filled filled(options, random);
        SlotPipeline pipeline(filled.store, filled.memory, 3);
        failed = 0;
        for (std::int64_t tag = 0; tag < 2 && failed == 0; ++tag) {
          try {
            pipeline.wait_for_each(filled.slots, tag, tag + 1,
                                   [&](std::size_t slot, std::span<std::byte> data) {
                                     CHECK(Data(data.begin(), data.end()) == filled.contents[slot]);
                                     add_one(data);
                                     add_one(filled.contents[slot]);
                                   });
          } catch (const IoError& error) {
            failed = 1;
            CHECK((error.code() == EIO || error.code() == EBADMSG || error.code() == 0));
          }
        }
        const std::vector<std::size_t> large{0, 4, 7};
        for (const std::size_t slot : large) CHECK_NOTHROW(pipeline.wait_for_empty(slot));
        for (const std::size_t slot : large) pipeline.wait_and_drop(slot);
        REQUIRE(n < 100);
      }
    }
  }
}

TEST_CASE("a slot whose read failed is read again when it is asked for again") {
  auto random = flatshard_test::generator(7);
  const ScratchFolder scratch;
  for (const IoBackend backend : backends()) {
    SlotStoreOptions options = options_for(scratch.path(), backend);
    options.decorate = [&](std::unique_ptr<TransferQueue> queue) {
      const TransferFaults faults{.transfer = 17, .kind = TransferFaults::Kind::FlippedBit};
      return std::make_unique<FaultyTransferQueue>(std::move(queue), faults);
    };
    Filled filled(options, random);
    SlotPipeline pipeline(filled.store, filled.memory, 1);
    CHECK_THROWS_AS(pipeline.wait_for(3, 0), IntegrityError);
    const std::span<std::byte> data = pipeline.wait_for(3, 0);
    CHECK(Data(data.begin(), data.end()) == filled.contents[3]);
  }
}

TEST_CASE("an exception of the work itself ends the pass") {
  auto random = flatshard_test::generator(5);
  const ScratchFolder scratch;
  Filled filled(options_for(scratch.path(), IoBackend::Threads), random);
  SlotPipeline pipeline(filled.store, filled.memory, 3);
  const auto fails_at = [&](std::size_t bad) {
    return [&filled, bad](std::size_t slot, std::span<std::byte> data) {
      if (slot == bad) throw UsageError("no");
      add_one(data);
      add_one(filled.contents[slot]);
    };
  };
  CHECK_THROWS_AS(pipeline.wait_for_each(filled.slots, 0, 1, fails_at(3)), UsageError);
  for (const std::size_t slot : filled.slots) {
    if (slot != 2) CHECK(read(filled.store, slot, slot < 3 ? 1 : 0) == filled.contents[slot]);
  }
}

TEST_CASE("a pipeline without buffers is refused") {
  auto random = flatshard_test::generator(6);
  const ScratchFolder scratch;
  Filled filled(options_for(scratch.path(), IoBackend::Threads), random);
  CHECK_THROWS_AS(SlotPipeline(filled.store, filled.memory, 0), UsageError);
}
