#include <doctest/doctest.h>

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>

#include "commit_cases.hpp"

using namespace flatshard;
using namespace commit_cases;

namespace {
constexpr std::uint64_t any_id = 0x0123456789abcdef;
}

TEST_CASE("a step that exists is refused, or replaced as a whole") {
  const ScratchFolder scratch;
  save(scratch, 1);
  const std::string before = found_in(scratch);
  CommitOptions again = options(scratch, 1);
  CHECK(message_of([&] { save(again, 2); }) ==
        "save: rank 0: " + (scratch / "run/step-1") + ": exists already");
  CHECK(found_in(scratch) == before);
  again.existing = ExistingStep::Replace;
  save(again, 2);
  CHECK(found_in(scratch) != before);
  CHECK(names_in(scratch / "run") == Names{".lock", "latest", "step-1"});
  again.step = 2;  // nothing to replace
  save(again, 2);
  CHECK(names_in(scratch / "run") == Names{".lock", "latest", "step-1", "step-2"});
  REQUIRE(::symlink("step-1", (scratch / "run/step-3").c_str()) == 0);
  again.step = 3;
  CHECK(message_of([&] { save(again, 3); }) != "");
}

TEST_CASE("what cannot fit is refused before anything is written") {
  const ScratchFolder scratch;
  CommitOptions large = options(scratch, 1);
  large.bytes = Bytes{1} << 60;
  CHECK(message_of([&] { save(large, 1); }).find("bytes are to be written") != std::string::npos);
  large.bytes = 1, large.reserve = Bytes{1} << 60;
  CHECK(message_of([&] { save(large, 1); }).find("to stay free") != std::string::npos);
  CHECK(names_in(scratch / "run") == Names{".lock"});
  large.bytes = 0;
  save(large, 1);
  large.step = 2, large.retention.keep_last = -1;
  CHECK(message_of([&] { save(large, 2); }).find("keep_last") != std::string::npos);
  large.step = -1, large.retention = {};
  CHECK(message_of([&] { save(large, 2); }).find("negative") != std::string::npos);
}

TEST_CASE("one save at a time: a second one is refused while the first lives") {
  const ScratchFolder scratch;
  SoloAgreement solo;
  {
    const Commit first(solo, options(scratch, 1));
    CHECK(message_of([&] { save(scratch, 2); }).find("another save") != std::string::npos);
    CHECK(names_in(scratch / "run") == Names{".lock", first.stage().folder_name()});
  }
  CHECK(names_in(scratch / "run") == Names{".lock"});  // deleted with the Commit
  save(scratch, 2);
}

TEST_CASE("what dead saves have left is swept; other files and links are not") {
  const ScratchFolder scratch;
  const Folder run = Folder::open_or_create(scratch / "run");
  const std::string stage = StageName{1, any_id}.folder_name(),
                    trash = ".trash-2-" + stage.substr(7);
  run.create_folder(stage).create("half").close();
  run.create_folder(trash).create("half").close();
  run.create_folder(".tmp-mine").create("x").close();
  run.create(StageName{3, any_id}.folder_name()).close();  // a file of that name
  const ScratchFolder precious;
  Folder::open(precious.path()).create("x").close();
  const std::string link = StageName{4, any_id}.folder_name();
  REQUIRE(::symlink(precious.path().c_str(), (scratch / ("run/" + link)).c_str()) == 0);
  save(scratch, 1);
  CHECK(names_in(scratch / "run") ==
        Names{".lock", "latest", "step-1", ".tmp-mine", link, StageName{3, any_id}.folder_name()});
  CHECK(names_in(precious.path()) == Names{"x"});
}

TEST_CASE("without locks only what is older than a day is swept") {
  const ScratchFolder scratch;
  const Folder run = Folder::open_or_create(scratch / "run");
  const std::string fresh = StageName{1, any_id}.folder_name();
  const std::string old = StageName{2, any_id}.folder_name();
  run.create_folder(fresh), run.create_folder(old);
  const auto path = std::filesystem::path(scratch / ("run/" + old));
  std::filesystem::last_write_time(path,
                                   std::filesystem::last_write_time(path) - std::chrono::hours(25));
  // mkdir, open, fsync, close, open; open .lock, fstat, lock
  FaultyFileOperations faulty(posix, {.operation = 8, .code = ENOLCK});
  const CheckpointFolder folder(scratch / "run", faulty);
  REQUIRE(faulty.faulty_operation() == "lock");
  CHECK(names_in(scratch / "run") == Names{".lock", fresh});
}

TEST_CASE("older checkpoints go when a new one is there") {
  const ScratchFolder scratch;
  CommitOptions with = options(scratch, 0);
  with.retention = {.keep_last = 2, .keep_every = 4};
  for (with.step = 0; with.step < 8; ++with.step) save(with, with.step);
  CHECK(names_in(scratch / "run") ==
        Names{".lock", "latest", "step-0", "step-4", "step-6", "step-7"});
  // A folder without a manifest is no checkpoint: it counts for nothing and stays.
  Folder::open(scratch / "run").create_folder("step-100");
  save(with, 8);
  CHECK(names_in(scratch / "run") ==
        Names{".lock", "latest", "step-0", "step-100", "step-4", "step-7", "step-8"});
}
