#include "affinity.hpp"

namespace flatshard::host {

#if defined(__linux__)

std::vector<int> cores_of_rank(int rank, int threads) {
  cpu_set_t allowed;
  if (rank < 0 || threads < 2 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
  std::vector<int> cores;
  int seen = 0;  // cores that may be used
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed) && seen++ / threads == rank) cores.push_back(core);
  return static_cast<int>(cores.size()) == threads ? cores : std::vector<int>{};
}

OnCore::OnCore(int core) noexcept {
  if (core < 0 || core >= CPU_SETSIZE) return;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  holds_ = sched_getaffinity(0, sizeof before_, &before_) == 0 &&
           sched_setaffinity(0, sizeof only, &only) == 0;
}

OnCore::~OnCore() {
  if (holds_) sched_setaffinity(0, sizeof before_, &before_);
}

#else

std::vector<int> cores_of_rank(int, int) { return {}; }
OnCore::OnCore(int) noexcept {}
OnCore::~OnCore() = default;

#endif

}  // namespace flatshard::host
