// Threads of a rank on cores of their own. Where the system refuses to move threads, everything
// here must work as well, on any core.
#include <sched.h>

#include <algorithm>
#include <thread>

#include "../../../kernels/host/affinity.hpp"
#include "../../../kernels/host/thread_team.hpp"
#include "host_kernels.hpp"

using namespace flatshard_test;
using host::cores_of_rank;

namespace {

std::vector<int> allowed_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

}  // namespace

TEST_CASE("affinity: ranks have consecutive cores of their own, or none") {
  const std::vector<int> allowed = allowed_cores();
  const auto total = static_cast<int>(allowed.size());
  std::vector<int> covered;
  for (int rank = 0; rank < total / 2; ++rank)
    for (int core : cores_of_rank(rank, 2)) covered.push_back(core);
  CHECK(covered == std::vector<int>(allowed.begin(), allowed.begin() + total / 2 * 2));
  if (total >= 2) CHECK(cores_of_rank(0, total) == allowed);
  CHECK(cores_of_rank(0, total + 1).empty());
  CHECK(cores_of_rank(total / 2, 2).empty());
  CHECK(cores_of_rank(2147483647, 2147483647).empty());
  CHECK(cores_of_rank(-1, 2).empty());
  CHECK(cores_of_rank(0, 1).empty());
  CHECK(cores_of_rank(0, 0).empty());
}

TEST_CASE("affinity: a thread is on one core while it asks for it, and then where it was") {
  const std::vector<int> before = allowed_cores();
  if (before.empty()) return;
  {
    const host::OnCore last(before.back());
    if (last.holds()) CHECK(allowed_cores() == std::vector<int>{before.back()});
    const host::OnCore any(-1);
    CHECK_FALSE(any.holds());
    const host::OnCore absent(CPU_SETSIZE - 1);
    if (before.back() != CPU_SETSIZE - 1) CHECK_FALSE(absent.holds());
  }
  CHECK(allowed_cores() == before);
}

TEST_CASE("affinity: every thread of a team is on its core during a call") {
  const std::vector<int> before = allowed_cores();
  for (int threads : {1, 2, 3}) {
    const std::vector<int> cores = cores_of_rank(0, threads);
    host::ThreadTeam team(threads, cores);
    std::vector<std::vector<int>> seen(static_cast<std::size_t>(threads));
    team.for_parts(threads,
                   [&](int part, int) { seen[static_cast<std::size_t>(part)] = allowed_cores(); });
    const bool moves = !cores.empty() && host::OnCore(cores[0]).holds();
    for (std::size_t part = 0; part < seen.size(); ++part)
      CHECK(seen[part] == (moves ? std::vector<int>{cores[part]} : before));
    CHECK(allowed_cores() == before);
  }
}

TEST_CASE("affinity: pinned kernels leave the same bits, for ranks that have cores or have none") {
  auto random = generator();
  const auto elements = random_elements(random, DType::Float32, long_length);
  const auto narrowed = [&](std::optional<int> rank) {
    HostDevice device({.threads = 2, .pin_as_rank = rank});
    std::vector<std::byte> result(elements.size() / 2);
    run_on(device, [&](const KernelTable& kernels, StreamRef stream) {
      kernels.cast(elements.data(), DType::Float32, result.data(), DType::BFloat16, long_length,
                   stream);
    });
    return result;
  };
  const auto expected = narrowed({});
  for (int rank : {0, 1, 100000, -1}) CHECK(narrowed(rank) == expected);
}
