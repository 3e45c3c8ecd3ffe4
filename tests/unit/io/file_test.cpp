#include <flatshard/io/faulty_file_operations.hpp>
#include <flatshard/io/file.hpp>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "io_cases.hpp"
#include "random.hpp"
#include "scratch_folder.hpp"

using namespace flatshard;
using namespace io_cases;
using flatshard_test::ScratchFolder;
using Kind = FileFaults::Kind;

namespace {

std::vector<std::byte> contents(const File& file) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(file.size()), std::byte{0xee});
  file.read(0, bytes);
  return bytes;
}

}  // namespace

TEST_CASE("bytes come back from where they were written, also beyond 4 GiB") {
  auto random = flatshard_test::generator();
  const ScratchFolder scratch;
  File file = File::create(scratch / "x");
  for (const Bytes offset : {Bytes{0}, Bytes{1}, Bytes{4097}, (Bytes{5} << 30) + 3}) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{70001}}) {
      const auto written = random_bytes(random, count);
      file.write(offset, written);
      std::vector<std::byte> read(count, std::byte{0xee});
      File::open_for_reading(scratch / "x").read(offset, read);
      CHECK(read == written);
    }
  }
  CHECK(file.size() == (Bytes{5} << 30) + 3 + 70001);
}

TEST_CASE("an early end of file is an error with path and offset") {
  const ScratchFolder scratch;
  File file = File::create(scratch / "x");
  file.write(0, std::vector<std::byte>(100));
  std::vector<std::byte> bytes(30);
  file.read(70, bytes);
  const auto error = error_of([&] { file.read(90, bytes); });
  REQUIRE(error);
  CHECK(error->code() == 0);
  CHECK(error->offset() == 100);
  CHECK(error->path() == scratch / "x");
  CHECK(error->operation() == "read");
  CHECK(error->what() == "read: " + (scratch / "x") +
                             ", at byte 100: the file ends here (10 of 30 bytes from byte 90 on)");
}

TEST_CASE("offsets outside 64 bits are refused") {
  const ScratchFolder scratch;
  File file = File::create(scratch / "x");
  std::vector<std::byte> bytes(2);
  CHECK(code_of([&] { file.read(-1, bytes); }) == EINVAL);
  CHECK(code_of([&] { file.write(-1, bytes); }) == EINVAL);
  CHECK(code_of([&] { file.read(0x7fffffffffffffff, bytes); }) == EINVAL);
  CHECK(code_of([&] { file.write(0x7ffffffffffffffe, bytes); }) != -1);
}

TEST_CASE("only new names are created, only regular files are opened, links are not written to") {
  const ScratchFolder scratch;
  File::create(scratch / "file").close();
  REQUIRE(::symlink("file", (scratch / "link").c_str()) == 0);
  REQUIRE(::symlink("nothing", (scratch / "dangling").c_str()) == 0);
  REQUIRE(::mkfifo((scratch / "pipe").c_str(), 0600) == 0);
  REQUIRE(::mkdir((scratch / "folder").c_str(), 0700) == 0);
  for (const char* name : {"file", "link", "dangling", "pipe", "folder"})
    CHECK(code_of([&] { File::create(scratch / name); }) == EEXIST);
  CHECK(code_of([&] { File::open_for_reading(scratch / "link"); }) == -1);
  CHECK(code_of([&] { File::open_for_writing(scratch / "link"); }) == ELOOP);
  CHECK(code_of([&] { File::open_for_reading(scratch / "pipe"); }) == EINVAL);
  CHECK(code_of([&] { File::open_for_reading("/dev/zero"); }) == EINVAL);
  CHECK(code_of([&] { File::open_for_reading(scratch / "folder"); }) == EISDIR);
  CHECK(code_of([&] { File::open_for_reading(scratch / "dangling"); }) == ENOENT);
  CHECK(code_of([&] { File::open_for_writing(scratch / "none"); }) == ENOENT);
}

TEST_CASE("short transfers are continued, however short") {
  auto random = flatshard_test::generator();
  const ScratchFolder scratch;
  const auto written = random_bytes(random, 5003);
  FaultyFileOperations halves(posix_file_operations(),
                              {.operation = 1, .kind = Kind::ShortCount, .sticky = true});
  File file = File::create(scratch / "x", halves);
  const std::int64_t before = halves.operations();
  file.write(0, written);
  CHECK(halves.operations() - before > 10);
  CHECK(contents(file) == written);
}

TEST_CASE("what is interrupted goes on; what is interrupted for ever ends") {
  const ScratchFolder scratch;
  const std::vector<std::byte> written(1000, std::byte{7});
  for (const int code : {EINTR, EAGAIN}) {
    for (std::int64_t operation = 3; operation <= 4;
         ++operation) {  // create, its fstat, write, read
      FaultyFileOperations faulty(posix_file_operations(), {.operation = operation, .code = code});
      File file = File::create(scratch / "x", faulty);
      file.write(0, written);
      std::vector<std::byte> read(1000);
      file.read(0, read);
      CHECK(read == written);
      CHECK(faulty.faulty_operation() == (operation == 3 ? "pwrite" : "pread"));
      ::unlink((scratch / "x").c_str());
    }
    FaultyFileOperations faulty(posix_file_operations(),
                                {.operation = 3, .code = code, .sticky = true});
    File file = File::create(scratch / "x", faulty);
    CHECK(code_of([&] { file.write(0, written); }) == code);
    ::unlink((scratch / "x").c_str());
  }
}

TEST_CASE("a write that fails half way says where") {
  const ScratchFolder scratch;
  FaultyFileOperations full(
      posix_file_operations(),
      {.operation = 4, .kind = Kind::PartialError, .code = ENOSPC, .sticky = false});
  File file = File::create(scratch / "x", full);
  file.write(0, std::vector<std::byte>(10));
  const auto error = error_of([&] { file.write(10, std::vector<std::byte>(100)); });
  REQUIRE(error);
  CHECK(error->code() == ENOSPC);
  CHECK(error->offset() == 10);
}

TEST_CASE("after a failed fsync the file is given up, though a second fsync would succeed") {
  const ScratchFolder scratch;
  FaultyFileOperations faulty(posix_file_operations(), {.operation = 4});
  File file = File::create(scratch / "x", faulty);
  file.write(0, std::vector<std::byte>(10));
  CHECK(code_of([&] { file.synchronize(); }) == EIO);
  const std::int64_t before = faulty.operations();
  CHECK(code_of([&] { file.synchronize(); }) == EIO);
  CHECK(code_of([&] { file.write(0, std::vector<std::byte>(1)); }) == EIO);
  CHECK(code_of([&] { file.allocate(100); }) == EIO);
  CHECK(code_of([&] { file.resize(100); }) == EIO);
  CHECK(faulty.operations() == before);
  File moved = std::move(file);
  CHECK(code_of([&] { moved.synchronize(); }) == EIO);
  moved.close();
}

TEST_CASE("reserved space has a size, where the file system can reserve and where it cannot") {
  const ScratchFolder scratch;
  for (const int code : {0, EOPNOTSUPP, ENOSYS, ENOSPC}) {
    FaultyFileOperations faulty(posix_file_operations(),
                                {.operation = code == 0 ? 0 : 4, .code = code});
    File file = File::create(scratch / "x", faulty);
    file.write(0, std::vector<std::byte>(10, std::byte{5}));
    CHECK(code_of([&] { file.allocate(3000); }) == (code == ENOSPC ? ENOSPC : -1));
    CHECK(file.size() == (code == ENOSPC ? 10 : 3000));
    file.allocate(0);
    file.allocate(5);  // does not cut
    CHECK(file.size() == (code == ENOSPC ? 10 : 3000));
    CHECK(contents(file)[9] == std::byte{5});
    file.resize(4);
    CHECK(file.size() == 4);
    ::unlink((scratch / "x").c_str());
  }
}

TEST_CASE("a failed close is reported once, and the descriptor is gone") {
  const ScratchFolder scratch;
  FaultyFileOperations faulty(posix_file_operations(), {.operation = 3, .code = EDQUOT});
  File file = File::create(scratch / "x", faulty);
  const int descriptor = file.descriptor();
  CHECK(code_of([&] { file.close(); }) == EDQUOT);
  CHECK(::fcntl(descriptor, F_GETFD) == -1);
  file.close();
  CHECK(faulty.operations() == 3);
}

TEST_CASE("moved files close once; a file that is replaced closes") {
  const ScratchFolder scratch;
  FaultyFileOperations counting(posix_file_operations(), {});
  {
    File a = File::create(scratch / "a", counting);
    File b = File::create(scratch / "b", counting);
    File c = std::move(a);
    b = std::move(c);
    CHECK(b.path() == scratch / "a");
    b.write(0, std::vector<std::byte>(3));
  }
  CHECK(counting.operations() == 2 * 2 + 1 + 2);
  CHECK(File::open_for_reading(scratch / "a").size() == 3);
  CHECK(File::open_for_reading(scratch / "b").size() == 0);
}

TEST_CASE("a lock is held by one open file at a time") {
  const ScratchFolder scratch;
  File first = File::create(scratch / "x");
  File second = File::open_for_writing(scratch / "x");
  CHECK(first.try_lock());
  CHECK(first.try_lock());
  CHECK_FALSE(second.try_lock());
  first.close();
  CHECK(second.try_lock());
}

TEST_CASE("hints are only advice") {
  const ScratchFolder scratch;
  File file = File::create(scratch / "x");
  file.write(0, std::vector<std::byte>(10000, std::byte{3}));
  for (const FileHint hint : {FileHint::StartWriteback, FileHint::Sequential, FileHint::DontNeed}) {
    file.hint(hint);
    CHECK(posix_file_operations().hint(file.descriptor(), hint, 0, 10000) == 0);
  }
  CHECK(contents(file) == std::vector<std::byte>(10000, std::byte{3}));
}
