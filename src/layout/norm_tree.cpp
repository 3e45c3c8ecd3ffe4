#include <flatshard/layout/norm_tree.hpp>

#include <flatshard/core/error.hpp>
#include <flatshard/layout/canonical.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

namespace flatshard {
namespace {

// Runs that end in absent positions are extended over them, up to the next multiple of this:
// parameters start there, so a parameter of any size ends in one node.
constexpr Elements extension = canonical_alignment;

struct RankRun {
  OwnedRun run;
  Rank rank;
  Elements end() const { return run.canonical + run.count; }
};

// A leaf of any rank: 2^level positions from `begin`; `value` is its index among its rank's leaves.
struct Leaf {
  Elements begin;
  NormLeaf sum;
  Rank rank;
  int value = 0;
};

int log2_floor(Elements n) { return 63 - std::countl_zero(static_cast<std::uint64_t>(n)); }

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
void cut(const RankRun& owned, Elements limit, std::vector<Leaf>& leaves) {
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

std::vector<Leaf> cut_all(const std::vector<RankRun>& runs) {
  std::vector<Leaf> leaves;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Elements limit = round_up(runs[i].end(), extension);
    if (i + 1 < runs.size()) limit = std::min(limit, runs[i + 1].run.canonical);
    cut(runs[i], limit, leaves);
  }
  return leaves;
}

// Gives every rank its leaves, sorted by buffer, and every leaf its place among them.
void hand_out(std::vector<Leaf>& leaves, NormPlan& plan) {
  std::vector<Leaf*> by_buffer;
  for (Leaf& leaf : leaves) by_buffer.push_back(&leaf);
  std::stable_sort(by_buffer.begin(), by_buffer.end(),
                   [](const Leaf* a, const Leaf* b) { return a->sum.buffer < b->sum.buffer; });
  for (Leaf* leaf : by_buffer) {
    std::vector<NormLeaf>& own = plan.ranks[static_cast<std::size_t>(leaf->rank)].leaves;
    leaf->value = static_cast<int>(own.size());
    own.push_back(leaf->sum);
  }
}

// Walks the tree over sorted leaves [first, last): nodes with two non-empty halves are adds, of one
// rank where all leaves below are its own, else global.
class Merger {
 public:
  Merger(const std::vector<Leaf>& leaves, NormPlan& plan) : leaves_(leaves), plan_(plan) {
    same_rank_until_.resize(leaves.size());
    for (std::size_t i = leaves.size(); i-- > 0;) {
      const bool same = i + 1 < leaves.size() && leaves[i].rank == leaves[i + 1].rank;
      same_rank_until_[i] = same ? same_rank_until_[i + 1] : i + 1;
    }
  }

  void run() {
    if (leaves_.empty()) return;
    const int root = merge_ranks(0, leaves_.size());
    for (const RankNorm& rank : plan_.ranks) {
      plan_.nodes_per_rank = std::max(plan_.nodes_per_rank, static_cast<int>(rank.exported.size()));
    }
    plan_.root = gathered(root);
    for (TreeAdd& add : plan_.adds) add = {gathered(add.into), gathered(add.from)};
  }

 private:
  struct Exported {
    Rank rank;
    int node;
  };

  // First leaf of the right half: the highest bit in which positions differ splits them.
  std::size_t split(std::size_t first, std::size_t last) const {
    const Elements differing = leaves_[first].begin ^ leaves_[last - 1].begin;
    const Elements bit = Elements{1} << log2_floor(differing);
    const auto from = leaves_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto to = leaves_.begin() + static_cast<std::ptrdiff_t>(last);
    const auto right =
        std::partition_point(from, to, [bit](const Leaf& leaf) { return (leaf.begin & bit) == 0; });
    return static_cast<std::size_t>(right - leaves_.begin());
  }

  // Number of the exported node that ends up holding the sum.
  int merge_ranks(std::size_t first, std::size_t last) {
    if (same_rank_until_[first] >= last) return export_node(first, last);
    const std::size_t middle = split(first, last);
    const int left = merge_ranks(first, middle);
    const int right = merge_ranks(middle, last);
    plan_.adds.push_back({left, right});
    return left;
  }

  int export_node(std::size_t first, std::size_t last) {
    const Rank rank = leaves_[first].rank;
    std::vector<int>& own = plan_.ranks[static_cast<std::size_t>(rank)].exported;
    exported_.push_back({rank, static_cast<int>(own.size())});
    own.push_back(merge_leaves(first, last));
    return static_cast<int>(exported_.size()) - 1;
  }

  // Index of the rank's value that ends up holding the sum.
  int merge_leaves(std::size_t first, std::size_t last) {
    if (last - first == 1) return leaves_[first].value;
    const std::size_t middle = split(first, last);
    const int left = merge_leaves(first, middle);
    const int right = merge_leaves(middle, last);
    const Rank rank = leaves_[first].rank;
    plan_.ranks[static_cast<std::size_t>(rank)].adds.push_back({left, right});
    return left;
  }

  int gathered(int number) const {
    const Exported& node = exported_[static_cast<std::size_t>(number)];
    return node.rank * plan_.nodes_per_rank + node.node;
  }

  const std::vector<Leaf>& leaves_;
  NormPlan& plan_;
  std::vector<std::size_t> same_rank_until_;
  std::vector<Exported> exported_;
};

}  // namespace

NormPlan plan_norm(std::span<const std::vector<OwnedRun>> runs_of_rank) {
  NormPlan plan;
  plan.ranks.resize(runs_of_rank.size());
  std::vector<Leaf> leaves = cut_all(sorted_runs(runs_of_rank));
  hand_out(leaves, plan);
  Merger{leaves, plan}.run();
  return plan;
}

}  // namespace flatshard
