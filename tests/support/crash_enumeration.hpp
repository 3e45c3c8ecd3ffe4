// A save, broken at every one of its file operations in turn.
#pragma once

#include <flatshard/io/file_operations.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace flatshard_test {

/// One save by several ranks. Every function gets the file operations to use, and a path of its
/// own choice from the root of an empty disk ("/run") to save into.
struct CrashScenario {
  int ranks = 1;
  /// Leaves the old checkpoint.
  std::function<void(flatshard::FileOperations&)> prepare;
  /// Saves the new one; operations[r] are rank r's. True only if every rank was told that it is
  /// saved; an exception counts as false.
  std::function<bool(const std::vector<flatshard::FileOperations*>& operations)> save;
  /// What a loader finds: the same text only for the same step with the same bytes. Throws when it
  /// finds no whole checkpoint.
  std::function<std::string(flatshard::FileOperations&)> load;
  /// The next save of a healthy program on what is left; an exception means that it cannot.
  std::function<void(flatshard::FileOperations&)> save_later;
  /// Where an fsync has failed, that next save dies in its turn, at each of its operations.
  bool later_dies = false;
};

struct CrashReport {
  std::vector<std::int64_t> operations;  // of each rank, in a save without faults
  std::int64_t saves = 0;                // that something went wrong in
  std::int64_t reported = 0;             // of these, reported as saved
  std::int64_t disks = 0;                // that a loader was set on
  std::int64_t found_old = 0, found_new = 0, found_later = 0;
  std::vector<std::string> violations;  // the first few
};

/// For every rank and every n: the n-th operation fails (EIO; EIO from then on; ENOSPC; ENOSPC half
/// way; a failed fsync loses what it should have written), is short, or all ranks die at it. After
/// each, and after crashes that keep all, none, all but one, only one, and `random_states` random
/// sets of torn and whole changes, a loader finds the old or the new checkpoint, bit by bit; after
/// a reported success, the new one; and the next save succeeds.
CrashReport enumerate_crashes(const CrashScenario& scenario, int random_states);

/// "2 ranks, 61 + 40 operations: ..." in one line.
std::string to_string(const CrashReport& report);

}  // namespace flatshard_test
