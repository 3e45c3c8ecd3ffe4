// Files and disks that are really damaged or full.
#include <flatshard/io/faulty_file_operations.hpp>
#include <flatshard/io/file.hpp>
#include <flatshard/io/integrity_error.hpp>
#include <flatshard/io/slot_store.hpp>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "random.hpp"
#include "refused_calls.hpp"
#include "scratch_folder.hpp"
#include "slot_cases.hpp"

using namespace slot_cases;
using flatshard_test::ScratchFolder;

namespace {

/// A file system in memory, of so many bytes.
class SmallDisk {
 public:
  explicit SmallDisk(Bytes bytes) {
    const std::string options = "size=" + std::to_string(bytes);
    mounted_ = ::mount("none", folder_.path().c_str(), "tmpfs", 0, options.c_str()) == 0;
    if (!mounted_) MESSAGE("not tested: this user may not mount a small disk");
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  const std::string& path() const { return folder_.path(); }

 private:
  ScratchFolder folder_;
  bool mounted_ = false;
};

/// A file system that cannot reserve.
class WithoutReservation final : public FaultyFileOperations {
 public:
  WithoutReservation() : FaultyFileOperations(posix_file_operations(), {}) {}
  int fallocate(int, Bytes, Bytes) override { return -EOPNOTSUPP; }
};

/// A file system that knows no way past the page cache: refused when a file is opened, or later.
class WithoutDirect final : public FaultyFileOperations {
 public:
  explicit WithoutDirect(bool when_opened)
      : FaultyFileOperations(posix_file_operations(), {}), when_opened_(when_opened) {}
  int open(int folder, const std::string& path, int flags, unsigned mode) override {
    const bool direct = (flags & O_DIRECT) != 0;
    if (direct && when_opened_) {
      // Older kernels make the file all the same.
      FaultyFileOperations::close(
          FaultyFileOperations::open(folder, path, flags & ~O_DIRECT, mode));
      return -EINVAL;
    }
    const int file = FaultyFileOperations::open(folder, path, flags, mode);
    if (direct) direct_ = file;
    return file;
  }
  std::int64_t pwrite(int file, const void* data, std::size_t bytes, Bytes offset) override {
    return file == direct_ ? -EINVAL : FaultyFileOperations::pwrite(file, data, bytes, offset);
  }
  int close(int file) override {
    if (file == direct_) direct_ = -1;
    return FaultyFileOperations::close(file);
  }

 private:
  bool when_opened_;
  int direct_ = -1;
};

void write_at(const std::string& path, Bytes offset, std::span<const std::byte> data) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(::pwrite(file, data.data(), data.size(), offset) == static_cast<ssize_t>(data.size()));
  ::close(file);
}

}  // namespace

TEST_CASE("a bit that the disk changed is noticed, wherever it is") {
  auto random = flatshard_test::generator();
  const ScratchFolder scratch;
  HostMemory memory;
  const std::vector<Bytes> slot_bytes{100, 3 * 4096 + 17};
  for (const IoBackend backend : backends()) {
    SlotStore store(slot_bytes, memory, options_for(scratch.path(), backend));
    const std::string path = path_of_open_file(scratch.path());
    REQUIRE(!path.empty());
    for (int round = 0; round < 30; ++round) {
      const std::size_t slot = random() % 2;
      Data data = fresh(store, slot, random);
      write(store, slot, round, data);
      const auto at = static_cast<Bytes>(random() % data.size());
      const std::byte wrong = data[static_cast<std::size_t>(at)] ^ std::byte{1} << (random() % 8);
      const Bytes offset = static_cast<Bytes>(slot) * 4096 + at;
      write_at(path, offset, {&wrong, 1});
      const auto error = io_cases::error_of([&] { read(store, slot, round); });
      REQUIRE(error);
      CHECK(error->code() == EBADMSG);
      CHECK(error->offset() == offset / 4096 * 4096);
      write_at(path, offset, {&data[static_cast<std::size_t>(at)], 1});
      CHECK(read(store, slot, round) == data);
    }
  }
}

TEST_CASE("what follows a slot's bytes in the file is zeros, whatever memory held before") {
  auto random = flatshard_test::generator(5);
  const ScratchFolder scratch;
  HostMemory memory;
  const std::vector<Bytes> slot_bytes{8192 - 1, 1, 3};
  for (const IoBackend backend : backends()) {
    SlotStore store(slot_bytes, memory, options_for(scratch.path(), backend));
    for (int round = 0; round < 3; ++round) {
      Data expected(16384);
      for (std::size_t slot = 0; slot < store.slots(); ++slot) {
        const Data data = fresh(store, slot, random);
        write(store, slot, round, data);
        std::copy(
            data.begin(), data.end(),
            expected.begin() + (slot == 0 ? 0 : 4096 + 4096 * static_cast<std::ptrdiff_t>(slot)));
      }
      Data found(expected.size());
      File::open_for_reading(path_of_open_file(scratch.path())).read(0, found);
      CHECK(found == expected);
    }
  }
}

TEST_CASE("a file that was cut is an early end, at any length") {
  auto random = flatshard_test::generator(1);
  const ScratchFolder scratch;
  HostMemory memory;
  const std::vector<Bytes> slot_bytes{5 * 4096};
  for (const IoBackend backend : backends()) {
    SlotStoreOptions options = options_for(scratch.path(), backend);
    options.block_bytes = 2 * 4096;
    SlotStore store(slot_bytes, memory, options);
    const std::string path = path_of_open_file(scratch.path());
    for (const Bytes left : {Bytes{0}, Bytes{4096}, Bytes{3 * 4096}}) {
      const Data data = fresh(store, 0, random);
      write(store, 0, 1, data);
      CHECK(read(store, 0, 1) == data);
      REQUIRE(::truncate(path.c_str(), left) == 0);
      const auto error = io_cases::error_of([&] { read(store, 0, 1); });
      REQUIRE(error);
      CHECK((error->code() == 0 || error->code() == EBADMSG));
      CHECK(error->offset() >= left / 8192 * 8192);
    }
    write(store, 0, 2, Data(5 * 4096));
    REQUIRE(::truncate(path.c_str(), 2 * 4096 + 100) == 0);  // within a page
    CHECK(io_cases::error_of([&] { read(store, 0, 2); }));
  }
}

TEST_CASE("a disk without room for all slots is an error at construction, and is left as it was") {
  const SmallDisk disk(1 << 20);
  if (!disk.mounted()) return;
  HostMemory memory;
  const std::vector<Bytes> slot_bytes{512 << 10, 600 << 10};
  for (const IoBackend backend : backends()) {
    const auto error = io_cases::error_of(
        [&] { SlotStore(slot_bytes, memory, options_for(disk.path(), backend)); });
    REQUIRE(error);
    CHECK(error->code() == ENOSPC);
    CHECK(error->operation() == "allocate");
    CHECK(names_in(disk.path()).empty());
    // What fits works to the last byte.
    auto random = flatshard_test::generator(2);
    SlotStore store(std::vector<Bytes>{512 << 10, 500 << 10}, memory,
                    options_for(disk.path(), backend));
    for (const std::size_t slot : {std::size_t{0}, std::size_t{1}}) {
      const Data data = fresh(store, slot, random);
      write(store, slot, 1, data);
      CHECK(read(store, slot, 1) == data);
    }
  }
}

TEST_CASE(
    "where nothing can be reserved: room is looked for, and a full disk is an error of the slot") {
  auto random = flatshard_test::generator(3);
  const SmallDisk disk(1 << 20);
  if (!disk.mounted()) return;
  HostMemory memory;
  WithoutReservation operations;
  for (const IoBackend backend : backends()) {
    SlotStoreOptions options = options_for(disk.path(), backend);
    options.operations = &operations;
    CHECK(io_cases::code_of([&] { SlotStore(std::vector<Bytes>{2 << 20}, memory, options); }) ==
          ENOSPC);
    SlotStore store(std::vector<Bytes>{256 << 10, 512 << 10}, memory, options);
    CHECK_FALSE(store.space_reserved());
    CHECK(store.description().ends_with("space not reserved"));
    const Data first = fresh(store, 0, random), second = fresh(store, 1, random);
    write(store, 0, 1, first);
    File filler = File::create(disk.path() + "/" + to_string(backend));
    CHECK(io_cases::code_of([&] { filler.write(0, Data(1 << 20)); }) == ENOSPC);
    const auto error = io_cases::error_of([&] { write(store, 1, 1, second); });
    REQUIRE(error);
    CHECK(error->code() == ENOSPC);
    CHECK(error->operation() == "write");
    CHECK(read(store, 0, 1) == first);
    CHECK(io_cases::code_of([&] { read(store, 1, 1); }) == EBADMSG);
    filler.resize(0);
    write(store, 1, 2, second);
    CHECK(read(store, 1, 2) == second);
  }
}

TEST_CASE("a limit of file sizes is an error at construction") {
  const ScratchFolder scratch;
  const int status = refused_calls::in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100 << 10, 100 << 10};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    HostMemory memory;
    const auto construct = [&](Bytes bytes) {
      SlotStore(std::vector<Bytes>{bytes}, memory, options_for(scratch.path(), IoBackend::Threads));
    };
    construct(100 << 10);
    return io_cases::code_of([&] { construct(101 << 10); }) == EFBIG ? 0 : 1;
  });
  CHECK(status == 0);
  CHECK(names_in(scratch.path()).empty());
}

TEST_CASE("where the page cache cannot be passed by, it is used") {
  auto random = flatshard_test::generator(4);
  const ScratchFolder scratch;
  HostMemory memory;
  for (const bool when_opened : {true, false}) {
    WithoutDirect operations(when_opened);
    SlotStoreOptions options = options_for(scratch.path(), IoBackend::Threads);
    options.operations = &operations;
    SlotStore store(std::vector<Bytes>{5000}, memory, options);
    CHECK_FALSE(store.direct());
    const Data data = fresh(store, 0, random);
    write(store, 0, 1, data);
    CHECK(read(store, 0, 1) == data);
    CHECK(names_in(scratch.path()).size() == 1);
  }
  CHECK(names_in(scratch.path()).empty());
}
