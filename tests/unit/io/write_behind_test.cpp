#include <flatshard/core/host_memory.hpp>
#include <flatshard/io/faulty_file_operations.hpp>
#include <flatshard/io/write_behind.hpp>

#include <doctest/doctest.h>

#include <cerrno>
#include <set>
#include <thread>

#include "io_cases.hpp"
#include "random.hpp"
#include "scratch_folder.hpp"

using namespace flatshard;
using namespace io_cases;
using flatshard_test::ScratchFolder;
using Kind = FileFaults::Kind;

namespace {

constexpr std::size_t file_bytes = 90001;

struct Piece {
  std::size_t file;
  std::size_t offset, bytes;
};

/// Pieces of two files in order: some follow each other, some leave gaps, of 0 bytes and up.
std::vector<Piece> random_pieces(std::mt19937_64& random) {
  std::vector<Piece> pieces;
  for (std::size_t file = 0; file < 2; ++file)
    for (std::size_t at = random() % 9000; at < file_bytes;) {
      const std::size_t most = random() % 3 == 0 ? file_bytes : 6000;
      const std::size_t bytes = std::min(random() % most, file_bytes - at);
      pieces.push_back({file, at, bytes});
      at += bytes + (random() % 2) * (1 + random() % 9000);
    }
  return pieces;
}

/// Two files of random bytes, and what should be in them.
struct Case {
  Case(std::mt19937_64& random, FileOperations& operations = posix_file_operations())
      : operations_(operations) {
    for (const char* name : {"a", "b"}) {
      expected.push_back(random_bytes(random, file_bytes));
      File::create(scratch / name).write(0, expected.back());
    }
    open();
  }
  void open() {
    files.clear();
    for (const char* name : {"a", "b"})
      files.push_back(File::open_for_writing(scratch / name, operations_));
  }
  /// From memory that is overwritten at once.
  void write(WriteBehind& behind, const Piece& piece, std::mt19937_64& random) {
    auto bytes = random_bytes(random, piece.bytes);
    std::copy(bytes.begin(), bytes.end(),
              expected[piece.file].begin() + static_cast<std::ptrdiff_t>(piece.offset));
    behind.write(files[piece.file], static_cast<Bytes>(piece.offset), bytes);
    std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
  }
  void check() const {
    for (std::size_t file = 0; file < 2; ++file) {
      std::vector<std::byte> found(file_bytes);
      const File written = File::open_for_reading(scratch / (file == 0 ? "a" : "b"));
      REQUIRE(written.size() == static_cast<Bytes>(file_bytes));
      written.read(0, found);
      CHECK(found == expected[file]);
    }
  }

  ScratchFolder scratch;
  FileOperations& operations_;
  std::vector<std::vector<std::byte>> expected;
  std::vector<File> files;
};

/// Notes what goes past the cache; may refuse to open, or to write there.
class Watched final : public FaultyFileOperations {
 public:
  explicit Watched(int open_code = 0, int write_code = 0)
      : FaultyFileOperations(posix_file_operations(), {}),
        open_code_(open_code),
        write_code_(write_code) {}
  int reopen_past_cache(int file) override {
    const int opened =
        open_code_ != 0 ? -open_code_ : FaultyFileOperations::reopen_past_cache(file);
    const std::lock_guard hold(mutex_);
    if (opened >= 0) past_cache_.insert(opened);
    return opened;
  }
  std::int64_t pwrite(int file, const void* data, std::size_t bytes, Bytes offset) override {
    {
      const std::lock_guard hold(mutex_);
      const bool direct = past_cache_.contains(file);
      (direct ? direct_bytes : cached_bytes) += static_cast<Bytes>(bytes);
      if (direct && write_code_ != 0) return -write_code_;
      if (direct)
        aligned = aligned && bytes % 4096 == 0 && offset % 4096 == 0 &&
                  reinterpret_cast<std::uintptr_t>(data) % 4096 == 0;
    }
    return FaultyFileOperations::pwrite(file, data, bytes, offset);
  }
  int close(int file) override {
    {
      const std::lock_guard hold(mutex_);
      past_cache_.erase(file);
    }
    return FaultyFileOperations::close(file);
  }
  bool leaves_open() const { return !past_cache_.empty(); }

  Bytes direct_bytes = 0, cached_bytes = 0;
  bool aligned = true;

 private:
  int open_code_, write_code_;
  std::mutex mutex_;
  std::set<int> past_cache_;
};

bool goes_past_cache(const File& file) { return file.reopen_past_cache().has_value(); }

}  // namespace

TEST_CASE("pieces come to lie where they belong and nothing else changes, by every way and depth") {
  auto random = flatshard_test::generator();
  for (const int depth : {1, 3})
    for (const Bytes block_bytes : {Bytes{1}, Bytes{8192}, Bytes{1} << 20})
      for (const bool page_cache : {false, true})
        for (FileOperations* operations :
             {static_cast<FileOperations*>(nullptr), &posix_file_operations()}) {
          Case files(random);
          HostMemory memory;
          {
            WriteBehind behind(memory, {depth, block_bytes, page_cache, operations});
            for (int round = 0; round < 2; ++round) {
              for (const Piece& piece : random_pieces(random)) files.write(behind, piece, random);
              behind.wait();
              files.check();
            }
          }
          const Bytes block = std::max<Bytes>(block_bytes, 4096);
          const bool staged = !page_cache && goes_past_cache(files.files[0]);
          CHECK(memory.high_water() == (staged ? (depth + 1) * block : 0));
          CHECK(memory.allocated() == 0);
        }
}

TEST_CASE("long runs go past the cache in whole blocks, whatever pieces they were made of") {
  auto random = flatshard_test::generator();
  for (const Bytes block_bytes : {16 << 10, 128 << 10}) {
    Watched watched;
    Case files(random, watched);
    if (!goes_past_cache(files.files[0])) return;
    HostMemory memory;
    WriteBehind behind(memory, {.block_bytes = block_bytes, .operations = &watched});
    const std::size_t first = 1 + random() % 5000;
    for (std::size_t at = first; at < file_bytes;) {
      const std::size_t bytes = std::min(1 + random() % 3000, file_bytes - at);
      files.write(behind, {0, at, bytes}, random);
      at += bytes;
    }
    behind.wait();
    files.check();
    CHECK(!watched.leaves_open());
    CHECK(watched.aligned);
    const auto run = static_cast<Bytes>(file_bytes - first);
    CHECK(watched.direct_bytes > run - (32 << 10));  // less at most a short block at each end
    CHECK(watched.direct_bytes + watched.cached_bytes == run);
  }
}

TEST_CASE("short runs go through the cache") {
  auto random = flatshard_test::generator();
  Watched watched;
  Case files(random, watched);
  HostMemory memory;
  WriteBehind behind(memory, {.operations = &watched});
  const std::size_t bytes = WriteBehind::short_run + 4096 * (random() % 2);
  files.write(behind, {0, 4096, bytes - 1}, random);
  behind.wait();
  files.check();
  CHECK((watched.direct_bytes > 0) ==
        (bytes > WriteBehind::short_run && goes_past_cache(files.files[0])));
}

TEST_CASE("where nothing goes past the cache all goes through it") {
  auto random = flatshard_test::generator();
  for (const auto& [open_code, write_code] : {std::pair(EOPNOTSUPP, 0), std::pair(0, EINVAL)}) {
    Watched watched(open_code, write_code);
    Case files(random, watched);
    HostMemory memory;
    WriteBehind behind(memory, {.block_bytes = 8192, .operations = &watched});
    for (const Piece& piece : random_pieces(random)) files.write(behind, piece, random);
    behind.wait();
    files.check();
  }
}

TEST_CASE("writers of neighbouring ranges may share a block") {
  auto random = flatshard_test::generator();
  constexpr std::size_t writers = 4, parts = 40;
  for (int round = 0; round < 5; ++round) {
    Case files(random);
    std::vector<std::size_t> bounds{0, file_bytes};
    while (bounds.size() < parts + 1) bounds.push_back(random() % file_bytes);
    std::sort(bounds.begin(), bounds.end());
    files.expected[0] = random_bytes(random, file_bytes);
    std::vector<std::thread> threads;
    for (std::size_t writer = 0; writer < writers; ++writer)
      threads.emplace_back([&, writer] {
        HostMemory memory;
        File own = File::open_for_writing(files.scratch / "a");
        WriteBehind behind(memory, {.depth = 2, .block_bytes = 4096});
        for (std::size_t part = writer; part < parts; part += writers)
          behind.write(
              own, static_cast<Bytes>(bounds[part]),
              std::span(files.expected[0]).subspan(bounds[part], bounds[part + 1] - bounds[part]));
        behind.wait();
        own.synchronize();
      });
    for (std::thread& thread : threads) thread.join();
    files.check();
  }
}

TEST_CASE("a writer that is not waited for loses at most what it was given") {
  auto random = flatshard_test::generator();
  Case files(random);
  HostMemory memory;
  {
    WriteBehind behind(memory, {.block_bytes = 8192});
    for (int n = 0; n < 6; ++n) files.write(behind, {0, random() % 1000, 80000}, random);
  }
  CHECK(memory.allocated() == 0);
  File::open_for_writing(files.scratch / "a").write(0, files.expected[0]);
  files.check();
}

TEST_CASE("faults: short writes are continued, interruptions tried again, the rest is an error") {
  auto random = flatshard_test::generator();
  struct Fault {
    Kind kind;
    int code;
  };
  for (const Fault fault :
       {Fault{Kind::ShortCount, 0}, Fault{Kind::Error, EINTR}, Fault{Kind::Error, EAGAIN},
        Fault{Kind::Error, EIO}, Fault{Kind::Error, ENOSPC}, Fault{Kind::PartialError, ENOSPC}})
    for (const bool page_cache : {false, true})
      for (int operation = 1; operation < 25; ++operation) {
        // Four operations come first: open and fstat of each file.
        FaultyFileOperations faulty(
            posix_file_operations(),
            {.operation = operation + 4, .kind = fault.kind, .code = fault.code});
        Case files(random, faulty);
        HostMemory memory;
        const auto error = error_of([&] {
          WriteBehind behind(memory, {2, 8192, page_cache, &faulty});
          for (const Piece& piece : random_pieces(random)) files.write(behind, piece, random);
          behind.wait();
        });
        CHECK(memory.allocated() == 0);
        const bool fatal = fault.code == EIO || fault.code == ENOSPC;
        REQUIRE(error.has_value() == (fatal && faulty.faulty_operation() == "pwrite"));
        if (error) {
          CHECK(error->code() == fault.code);
          CHECK(error->operation() == "write");
          CHECK(error->offset() >= 0);
          CHECK(error->path().starts_with(files.scratch / ""));
        } else {
          files.check();
        }
      }
}

TEST_CASE("what cannot be asked for") {
  HostMemory memory;
  const ScratchFolder scratch;
  File file = File::create(scratch / "x");
  CHECK_THROWS_AS(WriteBehind(memory, {.depth = 0}), UsageError);
  CHECK_THROWS_AS(WriteBehind(memory, {.block_bytes = 0}), UsageError);
  CHECK_THROWS_AS(WriteBehind(memory, {.block_bytes = (Bytes{1} << 30) + 1}), UsageError);
  WriteBehind behind(memory);
  CHECK_THROWS_AS(behind.write(file, -1, {}), UsageError);
}
