#include "norm_kernels.hpp"

#include <flatshard/ops/reduction_tree.hpp>

#include <algorithm>

namespace flatshard::host {
namespace {

/// Nodes of at least this many elements are cut over the threads; smaller ones are dealt out whole.
constexpr Elements large_node = 1 << 18;
constexpr int most_pieces = 256;  // of a large node

/// The perfect binary tree over values taken in order, absent ones counting as zero: with a power
/// of two of values that is the tree of ops/reduction_tree.hpp, and x + 0 is x for x >= 0.
class PairwiseSum {
 public:
  void take(double value) {
    partials_[depth_++] = value;
    for (int i = merges_after(++taken_); i > 0; --i) merge();
  }
  double result() {
    while (depth_ > 1) merge();
    return depth_ == 0 ? 0.0 : partials_[0];
  }

 private:
  void merge() {
    --depth_;
    partials_[depth_ - 1] += partials_[depth_];
  }

  double partials_[64];
  std::int64_t taken_ = 0;
  int depth_ = 0;
};

/// How a node's value is formed from pieces: the two norms differ in nothing else.
struct Squares {
  static double of(const NodeValues& call, Elements offset, Elements count) {
    const SquareSum square_sum = call.kernels->square_sum[static_cast<std::size_t>(call.dtype)];
    const auto* first = static_cast<const std::byte*>(call.buffer) + offset * size_of(call.dtype);
    PairwiseSum sum;
    for (Elements done = 0; done < count; done += block_elements)
      sum.take(
          square_sum(first + done * size_of(call.dtype), std::min(block_elements, count - done)));
    return sum.result();
  }
  static double merged(const double* pieces, int count) {
    PairwiseSum sum;
    for (int i = 0; i < count; ++i) sum.take(pieces[i]);
    return sum.result();
  }
};

struct Maxima {
  static double of(const NodeValues& call, Elements offset, Elements count) {
    return call.kernels->absolute_maximum[static_cast<std::size_t>(call.dtype)](
        static_cast<const std::byte*>(call.buffer) + offset * size_of(call.dtype), count);
  }
  static double merged(const double* pieces, int count) {
    double most = 0;
    for (int i = 0; i < count; ++i) most = larger_magnitude(most, pieces[i]);
    return most;
  }
};

/// One large node, in pieces of a power of two of blocks so that each is a node itself.
template <class Form>
double value_of_large(const NodeValues& call, const NormNode& node, ThreadTeam& team) {
  Elements piece = block_elements;
  while (ceil_div(node.count, piece) > most_pieces) piece *= 2;
  const auto pieces = static_cast<int>(ceil_div(node.count, piece));
  double values[most_pieces];
  team.for_items(pieces, team.parts_for(node.count), [&](Elements i) {
    values[i] = Form::of(call, node.offset + i * piece, std::min(piece, node.count - i * piece));
  });
  return Form::merged(values, pieces);
}

Elements small_elements(std::span<const NormNode> nodes) {
  Elements total = 0;
  for (const NormNode& node : nodes) total += node.count < large_node ? node.count : 0;
  return total;
}

/// Small nodes go to the thread that owns their first element when all of them are laid end to end.
template <class Form>
void small_nodes(const NodeValues& call, Elements total, int part, int parts) {
  Elements before = 0;
  for (std::size_t k = 0; k < call.nodes.size(); ++k) {
    const NormNode& node = call.nodes[k];
    if (node.count >= large_node) continue;
    const Elements owner = total == 0 ? 0 : std::min<Elements>(before * parts / total, parts - 1);
    if (owner == part) call.values[k] = Form::of(call, node.offset, node.count);
    before += node.count;
  }
}

template <class Form>
void all_nodes(const NodeValues& call, ThreadTeam& team) {
  const Elements total = small_elements(call.nodes);
  team.for_parts(team.parts_for(total),
                 [&](int part, int parts) { small_nodes<Form>(call, total, part, parts); });
  for (std::size_t k = 0; k < call.nodes.size(); ++k)
    if (call.nodes[k].count >= large_node)
      call.values[k] = value_of_large<Form>(call, call.nodes[k], team);
}

}  // namespace

void NodeValues::square_sums(ThreadTeam& team) const { all_nodes<Squares>(*this, team); }
void NodeValues::absolute_maxima(ThreadTeam& team) const { all_nodes<Maxima>(*this, team); }

}  // namespace flatshard::host
