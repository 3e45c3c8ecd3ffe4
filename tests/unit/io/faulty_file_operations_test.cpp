#include <flatshard/io/faulty_file_operations.hpp>
#include <flatshard/io/file.hpp>

#include <doctest/doctest.h>

#include <cerrno>

#include "io_cases.hpp"
#include "scratch_folder.hpp"

using namespace flatshard;
using namespace io_cases;
using flatshard_test::ScratchFolder;
using Kind = FileFaults::Kind;

namespace {

/// 6 operations: open, fstat, pwrite, pread, fsync, close. Returns the errno that came out.
int use(const ScratchFolder& scratch, FileOperations& operations) {
  return code_of([&] {
    File file = File::open_for_writing(scratch / "x", operations);
    std::vector<std::byte> bytes(8);
    file.write(0, bytes);
    file.read(0, bytes);
    file.synchronize();
    file.close();
  });
}

}  // namespace

TEST_CASE("the n-th operation fails, and no other") {
  const ScratchFolder scratch;
  File::create(scratch / "x").close();
  const std::vector<std::string> names{"open", "fstat", "pwrite", "pread", "fsync", "close"};
  for (std::size_t n = 1; n <= names.size(); ++n) {
    std::int64_t seen = 0;
    FaultyFileOperations faulty(posix_file_operations(),
                                {.operation = static_cast<std::int64_t>(n),
                                 .code = ENOSPC,
                                 .at_fault = [&](std::int64_t number) { seen = number; }});
    CHECK(use(scratch, faulty) == ENOSPC);
    CHECK(faulty.faulty_operation() == names[n - 1]);
    CHECK(seen == static_cast<std::int64_t>(n));
    CHECK(use(scratch, faulty) == -1);
  }
  FaultyFileOperations faulty(posix_file_operations(), {.operation = 7});
  CHECK(use(scratch, faulty) == -1);
  CHECK(faulty.operations() == 6);
  CHECK(faulty.faulty_operation().empty());
}

TEST_CASE("sticky faults stay; no fault does nothing") {
  const ScratchFolder scratch;
  File::create(scratch / "x").close();
  FaultyFileOperations none(posix_file_operations(), {});
  FaultyFileOperations sticky(posix_file_operations(), {.operation = 2, .sticky = true});
  for (int round = 0; round < 3; ++round) {
    CHECK(use(scratch, none) == -1);
    CHECK(use(scratch, sticky) == EIO);
  }
  CHECK(none.operations() == 18);
}

TEST_CASE("a failed write leaves nothing, or a part; a short one what it says") {
  const ScratchFolder scratch;
  const std::vector<std::byte> bytes(100, std::byte{1});
  const std::pair<Kind, std::pair<std::int64_t, Bytes>> cases[] = {
      {Kind::Error, {-EIO, 0}}, {Kind::PartialError, {-EIO, 50}}, {Kind::ShortCount, {50, 50}}};
  for (const auto& [kind, expected] : cases) {
    FaultyFileOperations faulty(posix_file_operations(), {.operation = 3, .kind = kind});
    const File file = File::create(scratch / std::to_string(static_cast<int>(kind)), faulty);
    CHECK(faulty.pwrite(file.descriptor(), bytes.data(), bytes.size(), 0) == expected.first);
    CHECK(file.size() == expected.second);
  }
}

TEST_CASE("a failed fsync is told with its file") {
  const ScratchFolder scratch;
  int told = -1;
  FaultyFileOperations faulty(posix_file_operations(),
                              {.operation = 3, .at_failed_fsync = [&](int file) { told = file; }});
  File file = File::create(scratch / "x", faulty);
  CHECK(code_of([&] { file.synchronize(); }) == EIO);
  CHECK(told == file.descriptor());
}
