#include <flatshard/layout/norm_leaves.hpp>

#include <flatshard/core/error.hpp>
#include <flatshard/layout/canonical.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace flatshard::detail {
namespace {

// Runs that end in absent positions are extended over them, up to the next multiple of this:
// parameters start there, so a parameter of any size ends in one node.
constexpr Elements extension = canonical_alignment;

struct RankRun {
  OwnedRun run;
  Rank rank;
  Elements end() const { return run.canonical + run.count; }
};

void check_run(const OwnedRun& run, Rank rank) {
  constexpr Elements most = std::numeric_limits<Elements>::max() - extension;
  const bool fits =
      run.count >= 0 && run.canonical >= 0 && run.offset >= 0 && run.canonical <= most - run.count;
  FLATSHARD_EXPECTS(fits, fmt::format("plan_norm: rank {} has a run of {} elements at {}", rank,
                                      run.count, run.canonical));
}

void check_disjoint(const std::vector<RankRun>& runs) {
  for (std::size_t i = 1; i < runs.size(); ++i) {
    FLATSHARD_EXPECTS(runs[i - 1].end() <= runs[i].run.canonical,
                      fmt::format("plan_norm: ranks {} and {} both own canonical element {}",
                                  runs[i - 1].rank, runs[i].rank, runs[i].run.canonical));
  }
}

bool continues(const RankRun& first, const RankRun& next) {
  return first.rank == next.rank && first.run.buffer == next.run.buffer &&
         first.end() == next.run.canonical && first.run.offset + first.run.count == next.run.offset;
}

std::vector<RankRun> joined(const std::vector<RankRun>& runs) {
  std::vector<RankRun> joined;
  for (const RankRun& next : runs) {
    if (!joined.empty() && continues(joined.back(), next)) {
      joined.back().run.count += next.run.count;
    } else {
      joined.push_back(next);
    }
  }
  return joined;
}

std::vector<RankRun> sorted_runs(std::span<const std::vector<OwnedRun>> runs_of_rank) {
  std::vector<RankRun> runs;
  for (std::size_t rank = 0; rank < runs_of_rank.size(); ++rank) {
    for (const OwnedRun& run : runs_of_rank[rank]) {
      check_run(run, static_cast<Rank>(rank));
      if (run.count > 0) runs.push_back({run, static_cast<Rank>(rank)});
    }
  }
  std::sort(runs.begin(), runs.end(),
            [](const RankRun& a, const RankRun& b) { return a.run.canonical < b.run.canonical; });
  check_disjoint(runs);
  return joined(runs);
}

// Cuts [canonical, limit), of which the run's elements come first, into maximal aligned nodes.
void cut(const RankRun& owned, Elements limit, std::vector<PlacedLeaf>& leaves) {
  const OwnedRun& run = owned.run;
  for (Elements begin = run.canonical; begin < owned.end();) {
    const int aligned = begin == 0 ? 62 : std::countr_zero(static_cast<std::uint64_t>(begin));
    const int level = std::min(aligned, log2_floor(limit - begin));
    const Elements size = Elements{1} << level;
    const Elements present = std::min(size, owned.end() - begin);
    leaves.push_back(
        {begin, {run.buffer, run.offset + begin - run.canonical, present, level}, owned.rank});
    begin += present;
  }
}

}  // namespace

std::vector<PlacedLeaf> cut_runs(std::span<const std::vector<OwnedRun>> runs_of_rank) {
  const std::vector<RankRun> runs = sorted_runs(runs_of_rank);
  std::vector<PlacedLeaf> leaves;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Elements limit = round_up(runs[i].end(), extension);
    if (i + 1 < runs.size()) limit = std::min(limit, runs[i + 1].run.canonical);
    cut(runs[i], limit, leaves);
  }
  return leaves;
}

}  // namespace flatshard::detail
