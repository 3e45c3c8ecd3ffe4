#include <flatshard/core/host_memory.hpp>
#include <flatshard/io/faulty_file_operations.hpp>
#include <flatshard/io/read_ahead.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cerrno>

#include "io_cases.hpp"
#include "random.hpp"
#include "scratch_folder.hpp"

using namespace flatshard;
using namespace io_cases;
using flatshard_test::ScratchFolder;
using Kind = FileFaults::Kind;

namespace {

/// Two files of random bytes, the second of whole blocks, and random ranges of them.
struct Case {
  explicit Case(std::mt19937_64& random) {
    for (const std::size_t count : {std::size_t{70001}, std::size_t{16} * 4096}) {
      contents.push_back(random_bytes(random, count));
      const std::string path = scratch / ("f" + std::to_string(count));
      File::create(path).write(0, contents.back());
      paths.push_back(path);
    }
  }
  void open(FileOperations& operations = posix_file_operations()) {
    for (const std::string& path : paths) files.push_back(File::open_for_reading(path, operations));
  }
  /// Of length 0, 1, up to all, with ends at and beside those of blocks and of the file.
  FileRange random_range(std::mt19937_64& random) {
    const std::size_t file = random() % 2;
    const auto size = static_cast<Bytes>(contents[file].size());
    Bytes begin = static_cast<Bytes>(random() % contents[file].size());
    if (random() % 3 == 0) begin = begin / 4096 * 4096;
    Bytes bytes = static_cast<Bytes>(random() % 20000);
    if (random() % 4 == 0) bytes = static_cast<Bytes>(random() % 2);
    if (random() % 4 == 0) bytes = size;
    return {&files[file], begin, std::min(bytes, size - begin)};
  }
  std::vector<std::byte> expected(const FileRange& range) const {
    const auto& all = contents[range.file == &files[0] ? 0 : 1];
    return {all.begin() + range.offset, all.begin() + range.offset + range.bytes};
  }
  void check(ReadAhead& ahead, const FileRange& range) const {
    const auto bytes = ahead.next();
    CHECK(std::vector<std::byte>(bytes.begin(), bytes.end()) == expected(range));
  }

  ScratchFolder scratch;
  std::vector<std::vector<std::byte>> contents;
  std::vector<std::string> paths;
  std::vector<File> files;
};

/// Every other read says that it moved an odd part of what it moved, as a real one may.
class OddReads final : public FaultyFileOperations {
 public:
  OddReads() : FaultyFileOperations(posix_file_operations(), {}) {}
  std::int64_t pread(int file, void* data, std::size_t bytes, Bytes offset) override {
    const std::int64_t moved = FaultyFileOperations::pread(file, data, bytes, offset);
    return reads_++ % 2 == 0 && moved > 2 ? (moved / 2) | 1 : moved;
  }

 private:
  std::atomic<int> reads_{0};
};

}  // namespace

TEST_CASE("a read that ends inside a block goes on where the block began") {
  auto random = flatshard_test::generator();
  OddReads odd;
  Case files(random);
  files.open(odd);
  std::vector<FileRange> ranges(40);
  for (FileRange& range : ranges) range = files.random_range(random);
  for (const bool page_cache : {false, true}) {
    HostMemory memory;
    ReadAhead ahead(ranges, memory, {.page_cache = page_cache, .operations = &odd});
    for (const FileRange& range : ranges) files.check(ahead, range);
  }
}

TEST_CASE("ranges come in order with the file's bytes, by every way and depth") {
  auto random = flatshard_test::generator();
  Case files(random);
  files.open();
  for (const int depth : {1, 2, 3, 7})
    for (const bool page_cache : {false, true})
      for (FileOperations* operations :
           {static_cast<FileOperations*>(nullptr), &posix_file_operations()}) {
        std::vector<FileRange> ranges(random() % 40);
        for (FileRange& range : ranges) range = files.random_range(random);
        HostMemory memory;
        {
          ReadAhead ahead(ranges, memory, {depth, page_cache, operations});
          for (const FileRange& range : ranges) files.check(ahead, range);
          CHECK_THROWS_AS(ahead.next(), UsageError);
        }
        Bytes longest = 0;
        for (const FileRange& range : ranges) longest = std::max(longest, range.bytes);
        CHECK(memory.high_water() <= (depth + 1) * (longest + 2 * ReadAhead::block));
        CHECK(memory.allocated() == 0);
      }
}

TEST_CASE("a read ahead that is not used to its end waits for what is in flight") {
  auto random = flatshard_test::generator();
  Case files(random);
  files.open();
  for (std::size_t used = 0; used < 4; ++used) {
    std::vector<FileRange> ranges(9);
    for (FileRange& range : ranges) range = files.random_range(random);
    HostMemory memory;
    {
      ReadAhead ahead(ranges, memory);
      for (std::size_t n = 0; n < used; ++n) files.check(ahead, ranges[n]);
    }
    CHECK(memory.allocated() == 0);
  }
}

TEST_CASE("a file that ends too early is an error of its range alone") {
  auto random = flatshard_test::generator();
  Case files(random);
  files.open();
  const FileRange beyond{&files.files[0], 69000, 2000}, outside{&files.files[0], 900000, 1};
  const FileRange good = files.random_range(random);
  for (const bool page_cache : {false, true}) {
    HostMemory memory;
    ReadAhead ahead({good, beyond, outside, good}, memory, {.page_cache = page_cache});
    files.check(ahead, good);
    const auto error = error_of([&] { ahead.next(); });
    REQUIRE(error);
    CHECK(error->code() == 0);
    CHECK(error->path() == files.paths[0]);
    CHECK(error->offset() == 70001);
    CHECK(code_of([&] { ahead.next(); }) == 0);
    files.check(ahead, good);
  }
}

TEST_CASE("faults: short reads are continued, interruptions tried again, the rest is an error") {
  auto random = flatshard_test::generator();
  Case files(random);
  struct Fault {
    Kind kind;
    int code;
  };
  for (const Fault fault : {Fault{Kind::ShortCount, 0}, Fault{Kind::Error, EINTR},
                            Fault{Kind::Error, EAGAIN}, Fault{Kind::Error, EIO}})
    for (const bool page_cache : {false, true})
      for (int operation = 1; operation < 30; ++operation) {
        files.files.clear();
        FaultyFileOperations faulty(
            posix_file_operations(),
            {.operation = operation + 4, .kind = fault.kind, .code = fault.code});
        files.open(faulty);  // four operations: open and fstat of each
        std::vector<FileRange> ranges(8);
        for (FileRange& range : ranges) range = files.random_range(random);
        HostMemory memory;
        int failed = 0;
        {
          // Depth 1 and two threads: which read is hit does not matter, every one is checked.
          ReadAhead ahead(ranges, memory, {1, page_cache, &faulty});
          for (const FileRange& range : ranges)
            if (const int code = code_of([&] { files.check(ahead, range); }); code != -1) {
              CHECK(code == fault.code);
              ++failed;
            }
        }
        const bool read_fails = fault.code == EIO && faulty.faulty_operation() == "pread";
        CHECK(failed == (read_fails ? 1 : 0));
        files.files.clear();
      }
}

TEST_CASE("a read that never moves ends, too") {
  auto random = flatshard_test::generator();
  Case files(random);
  files.open();
  FaultyFileOperations faulty(
      posix_file_operations(),
      {.operation = 1, .kind = Kind::Error, .code = EAGAIN, .sticky = true});
  HostMemory memory;
  ReadAhead ahead({{&files.files[0], 5, 100}}, memory, {.operations = &faulty});
  CHECK(code_of([&] { ahead.next(); }) == EAGAIN);
}

TEST_CASE("what cannot be asked for") {
  HostMemory memory;
  const ScratchFolder scratch;
  const File file = File::create(scratch / "x");
  CHECK_THROWS_AS(ReadAhead({{&file, -1, 1}}, memory), UsageError);
  CHECK_THROWS_AS(ReadAhead({{&file, 0, -1}}, memory), UsageError);
  CHECK_THROWS_AS(ReadAhead({{&file, 0, (Bytes{1} << 30) + 1}}, memory), UsageError);
  CHECK_THROWS_AS(ReadAhead({{&file, 0, 1}}, memory, {.depth = 0}), UsageError);
}
