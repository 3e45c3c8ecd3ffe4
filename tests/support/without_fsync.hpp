#pragma once

#include <flatshard/io/faulty_file_operations.hpp>

namespace flatshard_test {

/// The operating system's operations, but fsync does nothing: for tests that the system outlives,
/// where it would only take time.
class WithoutFsync final : public flatshard::FaultyFileOperations {
 public:
  WithoutFsync() : FaultyFileOperations(flatshard::posix_file_operations(), {}) {}
  int fsync(int) override { return 0; }
};

}  // namespace flatshard_test
