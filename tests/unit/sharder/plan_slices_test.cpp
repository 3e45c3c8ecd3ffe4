// Who owns what: flats, slices, runs of the optimizer step, the norm's tree.
#include <doctest/doctest.h>

#include "../../property/perfect_tree.hpp"
#include "plan_cases.hpp"

using namespace flatshard_test;

namespace {

const ParameterSpec& spec_of(const PlanCase& made, const Flat& flat, int slot) {
  return made.model.parameters().at(at(flat.parameters.at(at(slot))));
}

/// Canonical index of the element at each position of the whole flat; -1: padding.
std::vector<Elements> canonical_positions(const PlanCase& made, const Flat& flat) {
  std::vector<Elements> positions(at(flat.partition.padded()), -1);
  bool disjoint = true;
  for (int slot = 0; slot < flat.layout.parameters(); ++slot)
    for (Elements e = 0; e < spec_of(made, flat, slot).numel(); ++e) {
      Elements& position = positions.at(at(flat.layout.start(slot) + e));
      disjoint = disjoint && position == -1;
      position = made.plan.canonical.start(flat.parameters.at(at(slot))) + e;
    }
  CHECK(disjoint);
  return positions;
}

int group_at(const PlanCase& made, const Flat& flat, Elements position) {
  for (int slot = flat.layout.parameters(); slot-- > 0;)
    if (flat.layout.start(slot) <= position) return spec_of(made, flat, slot).options.group;
  return -1;
}

Bytes narrowest(const Flat& flat) {
  return std::min({size_of(flat.master), size_of(flat.compute), size_of(flat.reduce),
                   size_of(flat.accumulate), size_of(flat.state)});
}

/// Checks one rank's runs and says how often each position of its slice is in one.
std::vector<int> coverage(const PlanCase& made, const Flat& flat,
                          const std::vector<Elements>& canonical, Rank rank) {
  std::vector<int> covered(at(flat.partition.slice()), 0);
  const Elements first = rank * flat.partition.slice();
  bool contiguous = true;
  bool grouped = true;
  for (const StepRun& run : flat.runs.at(at(rank))) {
    CHECK(canonical.at(at(first + run.offset)) == run.canonical);
    for (Elements i = 0; i < run.count; ++i) {
      ++covered.at(at(run.offset + i));
      const Elements index = canonical.at(at(first + run.offset + i));
      contiguous = contiguous && index == run.canonical + i;
      if (index < 0) continue;
      grouped = grouped && group_at(made, flat, first + run.offset + i) == run.group;
    }
  }
  CHECK(grouped);
  if (flat.step_row.stochastic) CHECK(contiguous);
  return covered;
}

Values random_gradients(const PlanCase& made, Random& random) {
  Values values;
  std::normal_distribution<double> normal;
  for (std::size_t p = 0; p < made.model.parameters().size(); ++p) {
    const ParameterSpec& parameter = made.model.parameters()[p];
    for (Elements e = 0; parameter.options.requires_grad && e < parameter.numel(); ++e)
      values[made.plan.canonical.start(static_cast<int>(p)) + e] = normal(random);
  }
  return values;
}

/// The gradient slices of every rank of a shard group, padding poisoned.
Cut gradient_slices(const PlanCase& made, const Values& values) {
  Cut cut(at(made.plan.shard_group), made.plan.flats.size());
  for (std::size_t f = 0; f < made.plan.flats.size(); ++f) {
    const Flat& flat = made.plan.flats[f];
    const std::vector<Elements> canonical = canonical_positions(made, flat);
    for (std::size_t rank = 0; rank < cut.contents.size(); ++rank)
      for (Elements i = 0; i < flat.partition.slice(); ++i) {
        const Elements index = canonical.at(rank * at(flat.partition.slice()) + at(i));
        cut.contents[rank][f].push_back(index < 0 || !flat.requires_grad ? poison
                                                                         : values.at(index));
      }
  }
  return cut;
}

}  // namespace

TEST_CASE("every parameter is in one flat of its unit, with its like, in order") {
  for_random_cases(1, [](const PlanCase& made) {
    const Plan& plan = made.plan;
    std::vector<int> seen(made.model.parameters().size(), 0);
    for (std::size_t f = 0; f < plan.flats.size(); ++f) {
      const Flat& flat = plan.flats[f];
      std::pair<int, int> before{-1, -1};
      for (std::size_t slot = 0; slot < flat.parameters.size(); ++slot) {
        const int parameter = flat.parameters[slot];
        const ParameterSpec& spec = made.model.parameters().at(at(parameter));
        ++seen.at(at(parameter));
        CHECK(plan.flat_of_parameter.at(at(parameter)) == static_cast<int>(f));
        CHECK(plan.slot_of_parameter.at(at(parameter)) == static_cast<int>(slot));
        CHECK(plan.unit_of_module.at(at(spec.module)) == flat.unit);
        CHECK(spec.options.requires_grad == flat.requires_grad);
        CHECK(spec.options.dtype.value_or(made.request.precision.compute) == flat.compute);
        CHECK(flat.layout.numel(static_cast<int>(slot)) == spec.numel());
        const std::pair<int, int> place{spec.options.group, parameter};
        CHECK(before < place);
        before = place;
      }
    }
    CHECK(std::count(seen.begin(), seen.end(), 1) == static_cast<std::ptrdiff_t>(seen.size()));
  });
}

TEST_CASE("slices are equal, aligned, disjoint, and cover every element") {
  for_random_cases(2, [](const PlanCase& made) {
    for (const Flat& flat : made.plan.flats) {
      const Elements aligned = 128 / narrowest(flat);
      CHECK(flat.partition.slice() % aligned == 0);
      CHECK(flat.partition.padded() == made.plan.shard_group * flat.partition.slice());
      CHECK(flat.partition.slice() < flat.layout.total() / made.plan.shard_group + 1 + aligned);
      for (int slot = 0; slot < flat.layout.parameters(); ++slot)
        CHECK(flat.layout.start(slot) % aligned == 0);
      canonical_positions(made, flat);  // inside, disjoint
    }
  });
}

TEST_CASE("step runs take each owned element once, with its group, and nobody else's") {
  for_random_cases(3, [](const PlanCase& made) {
    for (const Flat& flat : made.plan.flats) {
      const std::size_t ranks = flat.requires_grad ? at(made.plan.shard_group) : 0;
      REQUIRE(flat.runs.size() == ranks);
      const std::vector<Elements> canonical = canonical_positions(made, flat);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const std::vector<int> covered = coverage(made, flat, canonical, static_cast<Rank>(rank));
        bool once = true;
        for (std::size_t i = 0; i < covered.size(); ++i) {
          const bool element = canonical[rank * covered.size() + i] >= 0;
          once = once && covered[i] <= 1 && (!element || covered[i] == 1);
        }
        CHECK(once);
      }
    }
  });
}

TEST_CASE("runs of one group are one run where rounding does not need to know the element") {
  Model model;
  for (int index = 0; index < 6; ++index)
    model.root().add("p" + std::to_string(index), {5}, {.group = index % 2});
  Options options;
  options.groups = {{}, {}};
  const Plan nearest = plan_for<strategy::NoShard>(model, 1, options);
  REQUIRE(nearest.flats.size() == 1);
  CHECK(nearest.flats[0].parameters == std::vector<int>{0, 2, 4, 1, 3, 5});
  CHECK(nearest.flats[0].runs[0] == std::vector<StepRun>{{0, 69, 0, 0}, {96, 69, 32, 1}});
  const Plan stochastic = plan_for<strategy::NoShard, precision::Bf16Stochastic>(model, 1, options);
  CHECK(stochastic.flats[0].runs[0].size() == 6);
  CHECK(stochastic.flats[0].runs[0][1] == StepRun{64, 5, 64, 0});
}

TEST_CASE("the norm's tree gives the bits of the perfect tree over the canonical index") {
  Random random = generator(4);
  for_random_cases(5, [&](const PlanCase& made) {
    if (made.plan.shard_group > 9) return;
    const Values values = random_gradients(made, random);
    const double expected = reference(values, 0, 16);
    REQUIRE(made.plan.canonical.size() <= Elements{1} << 16);
    CHECK(evaluate(made.plan.norm, gradient_slices(made, values)) == expected);
  });
}

TEST_CASE("fp64 gradients are measured twice: their squares may overflow") {
  const Model model = equal_modules(2, {3});
  const Options infinity{.norm = NormKind::Infinity};
  const Plan two = plan_for<strategy::FullShard, precision::Full<double>>(model, 2);
  const Plan one = plan_for<strategy::FullShard, precision::Full<double>>(model, 2, infinity);
  CHECK(two.norm_passes == 2);
  CHECK(one.norm_passes == 1);
  CHECK(plan_for<strategy::FullShard>(model, 2).norm_passes == 1);
  const Elements values = two.norm_leaves + 2 * two.norm.nodes_per_rank;
  CHECK(two.bytes(Role::Control) - one.bytes(Role::Control) == values * 8);
}

TEST_CASE("a parameter with a dtype of its own widens every role; a frozen one has no other") {
  Model model;
  model.root().add("wide", {3}, {.dtype = DType::Float64});
  model.root().add("half", {3}, {.dtype = DType::Float16});
  model.root().add("frozen", {3}, {.requires_grad = false});
  const Plan plan = plan_for<strategy::FullShard, precision::Bf16Stochastic>(model, 2);
  REQUIRE(plan.flats.size() == 3);
  const auto dtypes = [&](std::size_t f) {
    const Flat& flat = plan.flats[f];
    return std::array{flat.master, flat.compute, flat.reduce, flat.accumulate, flat.state};
  };
  const DType f64 = DType::Float64, f32 = DType::Float32, f16 = DType::Float16;
  const DType b16 = DType::BFloat16;
  CHECK(dtypes(0) == std::array{f64, f64, f64, f64, f64});
  CHECK(dtypes(1) == std::array{f32, f16, f32, f32, f32});  // fp32 holds bf16 and fp16
  CHECK(dtypes(2) == std::array{b16, b16, b16, b16, b16});
  CHECK_FALSE(plan.flats[0].step_row.stochastic);
  CHECK_FALSE(plan.flats[1].step_row.stochastic);
}
