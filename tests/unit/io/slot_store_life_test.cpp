// What a store leaves behind, and what grows while it lives: nothing.
#include <flatshard/io/faulty_file_operations.hpp>
#include <flatshard/io/slot_pipeline.hpp>
#include <flatshard/io/slot_store.hpp>

#include <doctest/doctest.h>

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "allocation_count.hpp"
#include "random.hpp"
#include "refused_calls.hpp"
#include "scratch_folder.hpp"
#include "slot_cases.hpp"

using namespace slot_cases;
using flatshard_test::ScratchFolder;

namespace {

const std::vector<Bytes> lasting_sizes{3 * 4096, 5000, 100, 2 * 4096};

struct Held {
  std::size_t descriptors = 0;
  Bytes resident = 0, file_bytes = 0, file_blocks = 0;
};

Held held(const std::string& folder) {
  Held now;
  now.descriptors = names_in("/proc/self/fd").size();
  Bytes all = 0;
  std::ifstream("/proc/self/statm") >> all >> now.resident;
  now.resident *= ::sysconf(_SC_PAGESIZE);
  struct ::stat status = {};
  REQUIRE(::stat(path_of_open_file(folder).c_str(), &status) == 0);
  now.file_bytes = status.st_size;
  now.file_blocks = status.st_blocks;
  return now;
}

/// A few rounds in a process that kills itself just before its n-th file operation.
int use_and_die(const std::string& folder, std::int64_t n) {
  return refused_calls::in_child([&] {
    FaultyFileOperations deadly(
        posix_file_operations(),
        {.operation = n, .at_fault = [](std::int64_t) { ::kill(::getpid(), SIGKILL); }});
    SlotStoreOptions options = options_for(folder, IoBackend::Threads);
    options.operations = &deadly;
    HostMemory memory;
    SlotStore store(lasting_sizes, memory, options);
    for (std::size_t slot = 0; slot < store.slots(); ++slot) {
      const Data data(static_cast<std::size_t>(store.bytes(slot)), std::byte{1});
      write(store, slot, 1, data);
      if (read(store, slot, 1) != data) return 1;
    }
    return 0;
  });
}

}  // namespace

TEST_CASE("a store's folder is its owner's alone, empty, and gone with the store") {
  const ScratchFolder scratch;
  HostMemory memory;
  const std::string folder = scratch / "made";
  for (const IoBackend backend : backends()) {
    {
      const SlotStore store(lasting_sizes, memory, options_for(folder, backend));
      const auto names = names_in(folder);
      REQUIRE(names.size() == 1);
      CHECK(names[0].starts_with("flatshard-slots-"));
      CHECK(names[0].size() == 16 + 16);
      CHECK(names_in(folder + "/" + names[0]).empty());
      struct ::stat status = {};
      REQUIRE(::stat((folder + "/" + names[0]).c_str(), &status) == 0);
      CHECK((status.st_mode & 0777) == 0700);
      CHECK(!path_of_open_file(folder).empty());
    }
    CHECK(names_in(folder).empty());
    CHECK(path_of_open_file(folder).empty());
  }
}

TEST_CASE("kill -9 at any moment leaves at most one folder, which the next store removes") {
  const ScratchFolder scratch;
  HostMemory memory;
  int with_file = 0;
  for (std::int64_t n = 1;; ++n) {
    const int status = use_and_die(scratch.path(), n);
    const auto left = names_in(scratch.path());
    if (status == 0) {
      CHECK(left.empty());
      CHECK(n > 20);
      break;
    }
    REQUIRE(status == 200 + SIGKILL);
    REQUIRE(left.size() <= 1);
    for (const std::string& name : left) {
      for (const std::string& file : names_in(scratch / name)) {
        ++with_file;  // killed between open and unlink: nothing is in it yet
        CHECK(std::filesystem::file_size(scratch / (name + "/" + file)) == 0);
      }
    }
    const SlotStore next(lasting_sizes, memory, options_for(scratch.path(), IoBackend::Threads));
    const auto now = names_in(scratch.path());
    REQUIRE(now.size() == 1);
    CHECK(now != left);
  }
  CHECK(with_file <= 2);
}

TEST_CASE("sweeping spares the living and what is not a store's") {
  const ScratchFolder scratch;
  HostMemory memory;
  const std::vector<std::string> others{"flatshard-slots-", "flatshard-slots-0123456789abcdeg",
                                        "flatshard-slots-0123456789abcdef0", "mine"};
  for (const std::string& name : others) std::filesystem::create_directory(scratch / name);
  const std::string used = "flatshard-slots-0123456789abcdef";
  std::filesystem::create_directory(scratch / used);
  std::ofstream(scratch / (used + "/notes")) << "not a store's";
  std::ofstream(scratch / "flatshard-slots-00000000000000ff") << "a file";
  std::filesystem::create_symlink(scratch / "mine", scratch / "flatshard-slots-00000000000000fe");
  std::filesystem::create_directory(scratch / "flatshard-slots-00000000000000fd");  // of the dead
  const auto before = names_in(scratch.path());
  {
    const SlotStore first(lasting_sizes, memory, options_for(scratch.path(), IoBackend::Threads));
    const auto alone = names_in(scratch.path());
    CHECK(alone.size() == before.size());  // one came, that of the dead went
    SlotStore second(lasting_sizes, memory, options_for(scratch.path(), IoBackend::Threads));
    CHECK(names_in(scratch.path()).size() == alone.size() + 1);
    write(second, 2, 1, Data(100));
  }
  CHECK(names_in(scratch.path()).size() == before.size() - 1);
  CHECK(std::filesystem::exists(scratch / (used + "/notes")));
}

TEST_CASE("a thousand rounds leave memory, descriptors and file as they were") {
  auto random = flatshard_test::generator();
  const ScratchFolder scratch;
  HostMemory memory;
  const std::vector<std::size_t> slots{0, 1, 2, 3};
  for (const IoBackend backend : backends()) {
    SlotStore store(lasting_sizes, memory, options_for(scratch.path(), backend));
    SlotPipeline pipeline(store, memory, 3);
    std::vector<Data> expected;
    for (const std::size_t slot : slots)
      write(store, slot, 0, expected.emplace_back(fresh(store, slot, random)));
    const auto round = [&](std::int64_t tag) {
      pipeline.wait_for_each(slots, tag, tag + 1, [&](std::size_t, std::span<std::byte> data) {
        for (std::byte& byte : data) byte ^= std::byte{0x5a};
      });
    };
    std::int64_t tag = 0;
    for (; tag < 20; ++tag) round(tag);
    const Held before = held(scratch.path());
    const Bytes taken = memory.high_water();
    const std::int64_t allocated = flatshard_test::allocations();
    for (; tag < 1020; ++tag) round(tag);
    CHECK(flatshard_test::allocations() == allocated);
    const Held after = held(scratch.path());
    CHECK(after.descriptors == before.descriptors);
    CHECK(after.file_bytes == before.file_bytes);
    CHECK(after.file_blocks == before.file_blocks);
    CHECK(after.resident < before.resident + (Bytes{4} << 20));
    CHECK(memory.high_water() == taken);
    for (const std::size_t slot : slots) CHECK(read(store, slot, tag) == expected[slot]);
  }
}
