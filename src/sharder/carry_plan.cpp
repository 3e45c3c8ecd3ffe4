#include "carry_plan.hpp"

#include <algorithm>

namespace flatshard::detail {

namespace {

/// A run of a tensor's elements on one rank.
struct Holding {
  Rank rank;
  Elements first, end;
  bool covers(Elements begin, Elements stop) const { return first <= begin && stop <= end; }
  bool meets(Elements begin, Elements stop) const { return first < stop && begin < end; }
};

using Holdings = std::map<StateTensor, std::vector<Holding>>;

template <class PiecesOf>
Holdings holdings(const Sharded& sharded, PiecesOf pieces_of) {
  Holdings holdings;
  for (Rank rank = 0; rank < sharded.plan.world; ++rank)
    for (const ShardPiece& piece : pieces_of(sharded.plan, sharded.model, rank))
      holdings[piece.tensor].push_back({rank, piece.first, piece.first + piece.count});
  return holdings;
}

void add_bounds(std::vector<Elements>& bounds, const std::vector<Holding>& holdings) {
  for (const Holding& holding : holdings) bounds.insert(bounds.end(), {holding.first, holding.end});
}

/// Of one tensor: who must be given which elements, who has them, and who gives each.
struct Ownership {
  const std::vector<Holding>& needed;
  const std::vector<Holding>& held;
  const std::vector<Holding>& given;

  /// Between two of them every rank has all or nothing, and one gives all.
  std::vector<Elements> bounds() const {
    std::vector<Elements> bounds;
    for (const auto* holdings : {&needed, &held, &given}) add_bounds(bounds, *holdings);
    std::sort(bounds.begin(), bounds.end());
    bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
    return bounds;
  }

  bool has(Rank rank, Elements first, Elements end) const {
    return std::any_of(held.begin(), held.end(), [&](const Holding& holding) {
      return holding.rank == rank && holding.covers(first, end);
    });
  }

  Rank root(Elements first, Elements end) const {
    const bool all_have = std::all_of(needed.begin(), needed.end(), [&](const Holding& need) {
      return !need.meets(first, end) || has(need.rank, first, end);
    });
    if (all_have) return Transfer::in_place;
    return std::find_if(given.begin(), given.end(),
                        [&](const Holding& giver) { return giver.covers(first, end); })
        ->rank;
  }
};

void append_transfers(std::vector<Transfer>& transfers, const StateTensor& from,
                      const StateTensor& to, const Ownership& ownership) {
  const std::vector<Elements> bounds = ownership.bounds();
  const std::size_t before = transfers.size();
  for (std::size_t next = 1; next < bounds.size(); ++next) {
    const Elements first = bounds[next - 1], count = bounds[next] - first;
    const Rank root = ownership.root(first, bounds[next]);
    if (transfers.size() > before && transfers.back().root == root)
      transfers.back().count += count;
    else
      transfers.push_back({from, to, first, count, root});
  }
}

}  // namespace

CarryPlan plan_carry_over(const Sharded& from, const Sharded& to, const CarryOverOptions& options) {
  CarryPlan plan = plan_sources(from, to, options);
  Holdings given = holdings(from, pieces_to_save);
  Holdings held = holdings(from, pieces_to_load);
  Holdings needed = holdings(to, pieces_to_load);
  for (const auto& [fresh, old] : plan.sources)
    append_transfers(plan.transfers, old, fresh, {needed[fresh], held[old], given[old]});
  return plan;
}

}  // namespace flatshard::detail
