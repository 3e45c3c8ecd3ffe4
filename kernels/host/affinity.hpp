// Which cores a thread may run on. Where the system does not say or refuses, nothing changes: where
// a thread runs changes no result.
#pragma once

#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace flatshard::host {

/// Cores rank * threads ... rank * threads + threads - 1, in ascending order, of those that the
/// calling thread may use. Empty where there are not as many, or for fewer than two threads.
std::vector<int> cores_of_rank(int rank, int threads);

/// Keeps the calling thread on one core while it lives; does nothing where that is refused, and for
/// a negative core.
class OnCore {
 public:
  explicit OnCore(int core) noexcept;
  ~OnCore();
  OnCore(const OnCore&) = delete;
  OnCore& operator=(const OnCore&) = delete;

  bool holds() const { return holds_; }  // the thread is there

 private:
#if defined(__linux__)
  cpu_set_t before_;
#endif
  bool holds_ = false;
};

}  // namespace flatshard::host
