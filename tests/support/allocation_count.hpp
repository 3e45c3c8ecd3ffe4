#pragma once

#include <cstdint>

namespace flatshard_test {

/// Calls of operator new so far, in all threads. For programs that list allocation_count.cpp, which
/// replaces the global operator new and delete.
std::int64_t allocations();

}  // namespace flatshard_test
