// The order of every sum over contributions: T(1) = the leaf, T(n) = T(first k) + T(the rest), k
// the largest power of two below n.
#pragma once

#include <flatshard/core/types.hpp>

namespace flatshard {

/// Partial sums that a running evaluation of T holds at once for n >= 1 terms: floor(log2 n) + 1.
constexpr int reduction_tree_partials(std::int64_t terms) {
  int partials = 0;
  for (; terms > 0; terms /= 2) ++partials;
  return partials;
}

/// How many sums are complete once `terms` terms have been taken: equal neighbours on the stack of
/// partial sums are added while a sum of 2^j terms meets another one. Carried out after every term
/// and closed by adding what is left from the right, this is T:
///   for term = 0, 1, ...: push(leaf[term]); repeat merges_after(term + 1) times: add the top to
///   the one below it and pop.  At the end: repeat until one is left: the same.
constexpr int merges_after(std::int64_t terms) {
  int merges = 0;
  for (; terms > 0 && terms % 2 == 0; terms /= 2) ++merges;
  return merges;
}

}  // namespace flatshard
