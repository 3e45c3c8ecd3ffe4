#include <doctest/doctest.h>

#include "crash_enumeration.hpp"
#include "model_disk.hpp"
#include "tiny_save.hpp"

using namespace flatshard;
using flatshard_test::CrashReport;
using flatshard_test::CrashScenario;
using flatshard_test::ModelDisk;

namespace {

constexpr int ranks = 2;
const CommitOptions first{.folder = "/run", .step = 1};

/// Step 1 is there, `second` is saved, with other contents.
CrashScenario scenario(const CommitOptions& second) {
  const std::vector<FileOperations*> none;
  return {.ranks = ranks,
          .prepare =
              [](FileOperations& disk) {
                tiny::save_by_all(first, 1, {&disk, &disk});
              },
          .save = [second](const auto& disks) { return tiny::save_by_all(second, 2, disks); },
          .load = [](FileOperations& disk) { return tiny::load("/run", disk); },
          .save_later =
              [](FileOperations& disk) {
                CommitOptions third{.folder = "/run", .step = 3};
                if (!tiny::save_by_all(third, 3, {&disk, &disk}))
                  throw std::runtime_error("the next save fails");
              }};
}

void check(const CrashScenario& scenario) {
  const CrashReport report = flatshard_test::enumerate_crashes(scenario, 4);
  MESSAGE(flatshard_test::to_string(report));
  for (const std::string& violation : report.violations) FAIL_CHECK(violation);
  CHECK(report.operations.size() == ranks);
  for (const std::int64_t operations : report.operations) CHECK(operations > 10);
  CHECK(report.found_old + report.found_new + report.found_later == report.disks);
  CHECK(report.found_old > 0);
  CHECK(report.found_new > 0);
  CHECK(report.reported > 0);
}

}  // namespace

TEST_CASE("a save broken at any operation leaves the old or the new checkpoint") {
  check(scenario({.folder = "/run", .step = 2}));
}

TEST_CASE("so does one that deletes the old checkpoint afterwards") {
  check(scenario({.folder = "/run", .step = 2, .retention = {.keep_last = 1}}));
}

TEST_CASE("so does one that replaces the same step") {
  CrashScenario replacing =
      scenario({.folder = "/run", .step = 1, .existing = ExistingStep::Replace});
  replacing.later_dies = true;  // what is swept may be what the exchange has not durably replaced
  check(replacing);
}

TEST_CASE("the first save of all leaves itself or nothing") {
  CrashScenario first_save = scenario(first);
  first_save.prepare = [](FileOperations& disk) { Folder::open_or_create("/run", disk); };
  check(first_save);
}
