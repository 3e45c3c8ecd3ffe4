// The norm of a whole model: any wrap, world size and alignment, with frozen parameters left out.
#include <flatshard/layout/canonical.hpp>
#include <flatshard/layout/flat_layout.hpp>
#include <flatshard/layout/unit.hpp>

#include <doctest/doctest.h>

#include "perfect_tree.hpp"

using namespace flatshard;
using namespace flatshard_test;

namespace {

Model random_model(Random& random) {
  Model model;
  int count = 0;
  for (const Elements numel : random_numels(random)) {
    auto module = model.module("h." + std::to_string(between(random, 0, 4)));
    module.add("p" + std::to_string(count++), {numel},
               {.requires_grad = between(random, 0, 5) > 0});
  }
  return model;
}

WrapPolicy random_wrap(Random& random) {
  const auto kind = between(random, 0, 3);
  if (kind == 0) return wrap::each_module();
  if (kind == 1) return wrap::all_in_one();
  if (kind == 2) return wrap::up_to(between(random, 1, 1000));
  return [seed = random()](const Model& model) {
    Random own{seed};
    std::vector<int> labels(model.modules().size());
    for (int& label : labels) label = static_cast<int>(own() % labels.size());
    return labels;
  };
}

std::vector<Elements> numels_of(const Model& model) {
  std::vector<Elements> numels;
  for (const ParameterSpec& parameter : model.parameters()) numels.push_back(parameter.numel());
  return numels;
}

struct Sharded {
  const Model& model;
  const CanonicalIndex canonical{numels_of(model)};
  Values values;  // of trainable parameters
};

Sharded with_values(const Model& model, Random& random) {
  Sharded sharded{.model = model, .values = {}};
  std::normal_distribution<double> normal;
  for (std::size_t p = 0; p < model.parameters().size(); ++p) {
    if (!model.parameters()[p].options.requires_grad) continue;
    for (Elements i = 0; i < model.parameters()[p].numel(); ++i) {
      sharded.values[sharded.canonical.start(static_cast<int>(p)) + i] = normal(random);
    }
  }
  return sharded;
}

/// Shards the trainable parameters of one unit over all ranks: buffer number `buffer`.
void shard(const Sharded& sharded, const Unit& unit, int buffer, Elements alignment, Cut& cut) {
  std::vector<int> trainable;
  std::vector<Elements> numels;
  for (const int p : unit.parameters) {
    if (!sharded.model.parameters()[at(p)].options.requires_grad) continue;
    trainable.push_back(p);
    numels.push_back(sharded.model.parameters()[at(p)].numel());
  }
  const FlatLayout layout(numels, alignment);
  const Partition partition(layout.total(), static_cast<int>(cut.runs.size()), alignment);
  for (Rank rank = 0; rank < partition.world(); ++rank) {
    auto& content = cut.contents[at(rank)][at(buffer)];
    content.assign(at(partition.slice()), poison);
    for (const Fragment& f : fragments(layout, partition, rank)) {
      const Elements first =
          sharded.canonical.start(trainable[at(f.parameter)]) + f.parameter_offset;
      cut.runs[at(rank)].push_back({buffer, f.slice_offset, first, f.count});
      for (Elements i = 0; i < f.count; ++i) {
        content[at(f.slice_offset + i)] = sharded.values.at(first + i);
      }
    }
  }
}

}  // namespace

TEST_CASE("the norm's bits do not depend on wrap, world size and alignment") {
  auto random = generator(13);
  for (int repeat = 0; repeat < 40; ++repeat) {
    const Model model = random_model(random);
    const Sharded sharded = with_values(model, random);
    const double expected = reference(sharded.values, 0, 13);
    for (std::size_t world = 1; world <= 9; ++world) {
      const std::vector<Unit> units = assign_units(model, random_wrap(random));
      const Elements alignment = random_alignment(random);
      Cut cut(world, units.size());
      for (std::size_t u = 0; u < units.size(); ++u) {
        shard(sharded, units[u], static_cast<int>(u), alignment, cut);
      }
      CHECK(evaluate(plan_norm(cut.runs), cut) == expected);
    }
  }
}
