#include <flatshard/layout/norm_tree.hpp>

#include <flatshard/layout/norm_leaves.hpp>

#include <algorithm>

namespace flatshard {
namespace {

using Leaves = std::vector<detail::PlacedLeaf>;

// A node's leaves, [first, last) in canonical order, at least one.
struct Node {
  std::size_t first;
  std::size_t last;
  std::size_t leaves() const { return last - first; }
};

// Where the halves of a node part: at the highest bit in which positions below it differ.
std::size_t middle(const Leaves& leaves, Node node) {
  const Elements differing = leaves[node.first].begin ^ leaves[node.last - 1].begin;
  const Elements bit = Elements{1} << detail::log2_floor(differing);
  const auto right = std::partition_point(
      leaves.begin() + static_cast<std::ptrdiff_t>(node.first),
      leaves.begin() + static_cast<std::ptrdiff_t>(node.last),
      [bit](const detail::PlacedLeaf& leaf) { return (leaf.begin & bit) == 0; });
  return static_cast<std::size_t>(right - leaves.begin());
}

// Gives every rank its leaves, sorted by buffer; returns the place of every leaf among them.
std::vector<int> hand_out(const Leaves& leaves, NormPlan& plan) {
  std::vector<std::size_t> by_buffer(leaves.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) by_buffer[i] = i;
  std::stable_sort(by_buffer.begin(), by_buffer.end(), [&](std::size_t a, std::size_t b) {
    return leaves[a].sum.buffer < leaves[b].sum.buffer;
  });
  std::vector<int> places(leaves.size());
  for (const std::size_t i : by_buffer) {
    std::vector<NormLeaf>& own = plan.ranks[static_cast<std::size_t>(leaves[i].rank)].leaves;
    places[i] = static_cast<int>(own.size());
    own.push_back(leaves[i].sum);
  }
  return places;
}

// For every leaf the end of the row of leaves, from it on, that belong to its rank.
std::vector<std::size_t> ends_of_rows(const Leaves& leaves) {
  std::vector<std::size_t> ends(leaves.size());
  for (std::size_t end = leaves.size(); end > 0; --end) {
    const bool last = end == leaves.size() || leaves[end - 1].rank != leaves[end].rank;
    ends[end - 1] = last ? end : ends[end];
  }
  return ends;
}

// Walks down the tree, passing over nodes with an empty half. What a node's sum is held in after
// its adds is what its left half's was.
class Merger {
 public:
  Merger(const Leaves& leaves, NormPlan& plan)
      : leaves_(leaves),
        plan_(plan),
        values_(hand_out(leaves, plan)),
        rows_(ends_of_rows(leaves)) {}

  void merge() {
    const int root = merge_ranks({0, leaves_.size()});
    for (const RankNorm& rank : plan_.ranks) {
      plan_.nodes_per_rank = std::max(plan_.nodes_per_rank, static_cast<int>(rank.exported.size()));
    }
    plan_.root = gathered(root);
    for (TreeAdd& add : plan_.adds) add = {gathered(add.into), gathered(add.from)};
  }

 private:
  struct Exported {
    Rank rank;
    int place;  // among its rank's
  };

  // Down to the nodes that one rank owns. Returns the number, over all ranks, of an exported node.
  int merge_ranks(Node node) {
    if (rows_[node.first] >= node.last) return export_node(node);
    const std::size_t half = middle(leaves_, node);
    const int left = merge_ranks({node.first, half});
    const int right = merge_ranks({half, node.last});
    plan_.adds.push_back({left, right});
    return left;
  }

  int export_node(Node node) {
    std::vector<int>& own = owner(node).exported;
    exported_.push_back({leaves_[node.first].rank, static_cast<int>(own.size())});
    own.push_back(merge_own(node));
    return static_cast<int>(exported_.size()) - 1;
  }

  // Below a node that one rank owns. Returns the index of one of the rank's values.
  int merge_own(Node node) {
    if (node.leaves() == 1) return values_[node.first];
    const std::size_t half = middle(leaves_, node);
    const int left = merge_own({node.first, half});
    const int right = merge_own({half, node.last});
    owner(node).adds.push_back({left, right});
    return left;
  }

  RankNorm& owner(Node node) {
    return plan_.ranks[static_cast<std::size_t>(leaves_[node.first].rank)];
  }

  int gathered(int number) const {
    const Exported& node = exported_[static_cast<std::size_t>(number)];
    return node.rank * plan_.nodes_per_rank + node.place;
  }

  const Leaves& leaves_;
  NormPlan& plan_;
  std::vector<int> values_;
  std::vector<std::size_t> rows_;
  std::vector<Exported> exported_;
};

}  // namespace

NormPlan plan_norm(std::span<const std::vector<OwnedRun>> runs_of_rank) {
  NormPlan plan;
  plan.ranks.resize(runs_of_rank.size());
  const Leaves leaves = detail::cut_runs(runs_of_rank);
  if (!leaves.empty()) Merger{leaves, plan}.merge();
  return plan;
}

}  // namespace flatshard
