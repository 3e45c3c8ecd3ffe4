#include <flatshard/io/faulty_file_operations.hpp>

#include <doctest/doctest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "scratch_folder.hpp"
#include "tiny_save.hpp"
#include "without_fsync.hpp"

using namespace flatshard;
using flatshard_test::ScratchFolder;

namespace {

constexpr int saved = 0, failed = 1, killed = 2;

flatshard_test::WithoutFsync unsynchronized;

/// In a process of its own that kills itself just before its n-th file operation.
int save_in_child(const CommitOptions& options, std::int64_t contents_of, std::int64_t n) {
  std::cout.flush();  // or the child has it, too
  const pid_t child = ::fork();
  if (child == 0) {
    int status = failed;
    try {
      FaultyFileOperations deadly(unsynchronized, {.operation = n, .at_fault = [](std::int64_t) {
                                                     ::kill(::getpid(), SIGKILL);
                                                   }});
      SoloAgreement solo;
      tiny::save(solo, options, contents_of, deadly);
      status = saved;
    } catch (const std::exception&) {
      // Told by the status.
    }
    ::_exit(status);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? killed : WEXITSTATUS(status);
}

std::string load(const ScratchFolder& scratch) {
  return tiny::load(scratch / "run", posix_file_operations());
}

void start(const ScratchFolder& scratch) {
  std::filesystem::remove_all(scratch / "run");
  SoloAgreement solo;
  tiny::save(solo, {.folder = scratch / "run", .step = 1}, 1, unsynchronized);
}

struct Seen {
  std::int64_t operations = 0, old_ones = 0, new_ones = 0;
};

/// Kills at every operation in turn until one run comes through; each time a loader finds the old
/// or the new checkpoint, and the next save succeeds and sweeps.
Seen kill_everywhere(const ScratchFolder& scratch, const CommitOptions& options) {
  start(scratch);
  const std::string before = load(scratch);
  REQUIRE(save_in_child(options, 2, 0) == saved);
  const std::string after = load(scratch);
  REQUIRE(before != after);
  Seen seen;
  for (std::int64_t n = 1;; ++n) {
    start(scratch);
    const int outcome = save_in_child(options, 2, n);
    const std::string found = load(scratch);
    if (outcome == saved) {
      CHECK(found == after);
      return seen;
    }
    CHECK(outcome == killed);
    CHECK((found == before || found == after));
    seen.operations = n;
    seen.old_ones += found == before;
    seen.new_ones += found == after;
    SoloAgreement solo;
    tiny::save(solo, {.folder = scratch / "run", .step = 9}, 9, unsynchronized);
    for (const FolderEntry& entry : Folder::open(scratch / "run").list())
      CHECK((entry.kind == FileKind::Regular || entry.name.starts_with("step-")));
  }
}

}  // namespace

TEST_CASE("a process killed at any file operation leaves the old or the new checkpoint") {
  const ScratchFolder scratch;
  const CommitOptions plain{.folder = scratch / "run", .step = 2};
  CommitOptions pruning = plain, replacing = plain;
  pruning.retention.keep_last = 1;
  replacing.step = 1, replacing.existing = ExistingStep::Replace;
  for (const CommitOptions& options : {plain, pruning, replacing}) {
    const Seen seen = kill_everywhere(scratch, options);
    MESSAGE("killed at " << seen.operations << " operations: " << seen.old_ones << " old, "
                         << seen.new_ones << " new");
    CHECK(seen.operations > 40);
    CHECK(seen.old_ones > 0);
    CHECK(seen.new_ones > 0);
  }
}
