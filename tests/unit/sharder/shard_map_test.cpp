#include <flatshard/sharder/shard_map.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "plan_cases.hpp"

namespace flatshard_test {
namespace {

using Kind = StateTensor::Kind;

struct Case {
  Model model;
  Plan plan;
};

/// A random model under a random strategy, precision and world; tries again when refused.
Case random_case(Random& random) {
  for (;;) {
    Model model = random_model(random);
    PlanRequest request;
    request.strategy = strategies[static_cast<std::size_t>(between(random, 0, 6))].traits;
    request.precision = precisions[static_cast<std::size_t>(between(random, 0, 9))].traits;
    request.world = static_cast<int>(between(random, 1, 9));
    request.optimizer_states = static_cast<int>(between(random, 0, 3));
    Options options;
    options.groups.resize(3);
    options.persistence_threshold = between(random, 0, 1) * between(random, 0, 500);
    if (between(random, 0, 1) == 0) options.wrap = wrap::up_to(between(random, 1, 3000));
    if (refusal(model, request, options).empty())
      return {model, make_plan(model, request, options)};
  }
}

/// How often each element of each tensor is in a piece.
using Counts = std::map<StateTensor, std::vector<int>>;

Counts zero_counts(const Case& made) {
  Counts counts;
  for (const StateTensor& tensor : state_tensors(made.plan, made.model))
    counts[tensor].assign(static_cast<std::size_t>(numel_of(shape_of_tensor(made.model, tensor))),
                          0);
  return counts;
}

void count(Counts& counts, const std::vector<ShardPiece>& pieces) {
  for (const ShardPiece& piece : pieces) {
    REQUIRE(counts.count(piece.tensor) == 1);
    REQUIRE(piece.count > 0);
    std::vector<int>& tensor = counts[piece.tensor];
    REQUIRE(piece.first + piece.count <= static_cast<Elements>(tensor.size()));
    for (Elements i = 0; i < piece.count; ++i) ++tensor[static_cast<std::size_t>(piece.first + i)];
  }
}

bool all_are(const Counts& counts, int expected) {
  return std::all_of(counts.begin(), counts.end(), [&](const auto& entry) {
    return std::all_of(entry.second.begin(), entry.second.end(),
                       [&](int times) { return times == expected; });
  });
}

bool lies_inside(const Case& made, const ShardPiece& piece) {
  if (piece.tensor.kind == Kind::Buffer) return piece.flat == -1 && piece.offset == 0;
  const Flat& flat = made.plan.flats[static_cast<std::size_t>(piece.flat)];
  const Elements size = piece.in_whole ? flat.partition.padded() : flat.partition.slice();
  return piece.offset >= 0 && piece.offset + piece.count <= size &&
         piece.dtype == dtype_of_tensor(made.plan, made.model, piece.tensor);
}

TEST_CASE("every element of every tensor is saved exactly once, whoever holds copies of it") {
  auto random = generator();
  for (int round = 0; round < 200; ++round) {
    const Case made = random_case(random);
    Counts counts = zero_counts(made);
    for (Rank rank = 0; rank < made.plan.world; ++rank)
      count(counts, pieces_to_save(made.plan, made.model, rank));
    CHECK(all_are(counts, 1));
  }
}

TEST_CASE("ranks of one shard group load every sharded element once; buffers go to all") {
  auto random = generator(1);
  for (int round = 0; round < 200; ++round) {
    const Case made = random_case(random);
    for (int replica = 0; replica < made.plan.replicas; ++replica) {
      Counts counts = zero_counts(made);
      for (int member = 0; member < made.plan.shard_group; ++member) {
        auto pieces =
            pieces_to_load(made.plan, made.model, replica * made.plan.shard_group + member);
        for (const ShardPiece& piece : pieces) CHECK(lies_inside(made, piece));
        std::erase_if(pieces, [&](const ShardPiece& piece) {
          const bool on_all = piece.in_whole || piece.tensor.kind == Kind::Buffer;
          return on_all && member > 0;  // the same on every member: looked at once
        });
        count(counts, pieces);
      }
      CHECK(all_are(counts, 1));
    }
  }
}

TEST_CASE("what a rank saves lies inside what it loads") {
  auto random = generator(2);
  for (int round = 0; round < 50; ++round) {
    const Case made = random_case(random);
    for (Rank rank = 0; rank < made.plan.world; ++rank) {
      Counts held = zero_counts(made);
      count(held, pieces_to_load(made.plan, made.model, rank));
      for (const ShardPiece& piece : pieces_to_save(made.plan, made.model, rank)) {
        CHECK(lies_inside(made, piece));
        for (Elements i = 0; i < piece.count; ++i)
          CHECK(held[piece.tensor][static_cast<std::size_t>(piece.first + i)] == 1);
      }
    }
  }
}

TEST_CASE("replicas share the work of saving") {
  Model model;
  model.module("m").add("w", {1000});
  const Plan plan = plan_for<strategy::NoShard>(model, 4);
  for (Rank rank = 0; rank < 4; ++rank) {
    const auto pieces = pieces_to_save(plan, model, rank);
    REQUIRE(pieces.size() == 3);  // the parameter and two states
    CHECK(pieces[0].count >= 224);
    CHECK(pieces[0].count <= 256);
  }
}

}  // namespace
}  // namespace flatshard_test
