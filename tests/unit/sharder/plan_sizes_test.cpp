// Bytes per role: a table written by hand, a computation from the definitions, rings and caps.
#include <doctest/doctest.h>

#include <map>

#include "plan_cases.hpp"

using namespace flatshard_test;

namespace {

using ByRole = std::map<Role, Bytes>;

Bytes of(const ByRole& bytes, Role role) {
  const auto found = bytes.find(role);
  return found == bytes.end() ? 0 : found->second;
}

/// All roles but Control, which depends on the norm's tree.
void check_bytes(const Plan& plan, const ByRole& expected) {
  for (int index = 0; index < role_count; ++index) {
    const Role role = static_cast<Role>(index);
    if (role == Role::Control) continue;
    CHECK_MESSAGE(plan.bytes(role) == of(expected, role), name_of(role));
  }
}

// The computation from the definitions (design, section 3; comments of Role and Options). ---------

DType holder_of(DType one, DType other) {
  if (one == other) return one;
  if (one == DType::Float64 || other == DType::Float64) return DType::Float64;
  return DType::Float32;  // of the four floating dtypes that cases use, only fp32 holds two others
}

PrecisionTraits roles_of(const PlanCase& made, const ParameterOptions& parameter) {
  PrecisionTraits roles = made.request.precision;
  const DType own = parameter.dtype.value_or(roles.compute);
  if (!parameter.requires_grad) return {own, own, own, own, own};
  if (!parameter.dtype) return roles;
  return {holder_of(roles.master, own),
          own,
          holder_of(roles.reduce, own),
          holder_of(roles.accumulate, own),
          holder_of(roles.state, own),
          roles.rounding,
          roles.loss_scaling};
}

/// Parameters that share everything, of one unit.
struct Like {
  std::size_t unit;
  std::array<DType, 5> dtypes;
  bool trainable, persistent;
  int skipping_module;
  friend auto operator<=>(const Like&, const Like&) = default;
};

struct Size {
  Elements slice, padded;
};

class Reference {
 public:
  explicit Reference(const PlanCase& made)
      : made_(made),
        strategy_(made.request.strategy),
        group_(made.plan.shard_group),
        moment_(made.plan.moment),
        units_(assign_units(made.model, made.options.wrap)),
        ring_(units_.size()),
        gradients_(units_.size()) {}

  ByRole bytes() {
    for (const auto& [like, parameters] : sorted_parameters())
      add(like, size_of_all(like, parameters));
    add_rings();
    for (const BufferSpec& buffer : made_.model.buffers())
      bytes_[Role::RegisteredData] += buffer.numel() * 8;
    return bytes_;
  }

 private:
  std::map<Like, std::vector<std::pair<int, int>>> sorted_parameters() const {
    std::map<Like, std::vector<std::pair<int, int>>> result;
    for (std::size_t u = 0; u < units_.size(); ++u)
      for (int p : units_[u].parameters) {
        const ParameterSpec& spec = made_.model.parameters()[static_cast<std::size_t>(p)];
        const PrecisionTraits roles = roles_of(made_, spec.options);
        const Elements threshold = made_.options.persistence_threshold;
        const bool small = threshold > 0 && spec.numel() <= threshold;
        const bool skips =
            made_.model.modules()[static_cast<std::size_t>(spec.module)].options.skip_when_unused &&
            spec.options.requires_grad;
        result[{u,
                {roles.master, roles.compute, roles.reduce, roles.accumulate, roles.state},
                spec.options.requires_grad,
                small && group_ > 1 && strategy_.parameters_whole != ParametersWhole::Always,
                skips ? spec.module : -1}]
            .push_back({spec.options.group, p});
      }
    for (auto& [like, parameters] : result) std::sort(parameters.begin(), parameters.end());
    return result;
  }

  Size size_of_all(const Like& like, const std::vector<std::pair<int, int>>& parameters) const {
    Bytes narrowest = 8;
    for (DType dtype : like.dtypes) narrowest = std::min(narrowest, size_of(dtype));
    const Elements aligned = 128 / narrowest;
    Elements end = 0;
    for (const auto& [group, p] : parameters) {
      while (end % aligned != 0) ++end;
      end += made_.model.parameters()[static_cast<std::size_t>(p)].numel();
    }
    Elements slice = end / group_ + (end % group_ != 0);
    while (slice % aligned != 0) ++slice;
    return {slice, slice * group_};
  }

  bool dedicated(std::size_t unit) const {
    const std::vector<int>& own = units_[unit].modules;
    bool result = own.back() - own.front() >= static_cast<int>(own.size());
    for (int module = 0; module < static_cast<int>(made_.model.modules().size()); ++module) {
      const ModuleSpec& spec = made_.model.modules()[static_cast<std::size_t>(module)];
      const bool mine = std::count(own.begin(), own.end(), module) > 0;
      if (mine && spec.options.uses > 1) result = true;
      for (int tied : spec.tied)
        if (!mine &&
            std::count(units_[unit].parameters.begin(), units_[unit].parameters.end(), tied))
          result = true;
    }
    return result;
  }

  void add(const Like& like, Size size) {
    const auto [master, compute, reduce, accumulate, state] = like.dtypes;
    ParametersWhole whole = strategy_.parameters_whole;
    if (whole == ParametersWhole::PerUse && dedicated(like.unit))
      whole = ParametersWhole::UntilBackward;
    if (group_ == 1 || like.persistent) whole = ParametersWhole::Always;
    const bool rests_whole = whole == ParametersWhole::Always;
    const bool per_use = whole == ParametersWhole::PerUse;
    const bool two_copies = !like.trainable || master != compute;

    if (!per_use) bytes_[Role::Whole] += size.padded * size_of(compute);
    if (!rests_whole && two_copies) bytes_[Role::Compute] += size.slice * size_of(compute);
    if (per_use) ring_[like.unit] += rounded(size.padded * size_of(compute));
    if (per_use && strategy_.secondary_shard)
      bytes_[Role::Secondary] += size.padded / made_.plan.secondary_group * size_of(compute);
    if (!like.trainable) return;
    if (!rests_whole || two_copies) bytes_[Role::Master] += size.slice * size_of(master);
    bytes_[Role::State] += made_.request.optimizer_states * size.slice * size_of(state);
    add_gradient(like, size);
    add_scratch(like, size);
  }

  void add_gradient(const Like& like, Size size) {
    const auto [master, compute, reduce, accumulate, state] = like.dtypes;
    const bool boundary = moment_ == ReduceMoment::Boundary;
    const Bytes bytes = (boundary ? size.padded : size.slice) * size_of(accumulate);
    bytes_[Role::Gradient] += bytes;
    if (made_.options.accumulation == Accumulation::Tree)
      for (int power = 2; power <= made_.options.max_micro_steps; power *= 2)
        bytes_[Role::Partial] += bytes;
    const bool in_place = made_.options.max_micro_steps == 1 && compute == reduce &&
                          reduce == accumulate && (boundary || made_.request.world == 1);
    if (!in_place) gradients_[like.unit] += rounded(size.padded * size_of(compute));
  }

  void add_scratch(const Like& like, Size size) {
    const auto [master, compute, reduce, accumulate, state] = like.dtypes;
    const bool boundary = moment_ == ReduceMoment::Boundary;
    const bool two_times = moment_ == ReduceMoment::ReplicaBoundary;
    const DType sent = boundary ? accumulate : compute;
    const DType wide = sent == DType::Float64 ? DType::Float64 : DType::Float32;
    const DType landed = two_times ? wide : reduce;
    const bool added = made_.options.accumulation == Accumulation::Running && !boundary &&
                       made_.options.max_micro_steps > 1;
    if (added || landed != accumulate) landing_ = std::max(landing_, size.slice * size_of(landed));
    if (two_times && reduce != accumulate)
      landing_ = std::max(landing_, size.slice * size_of(reduce));
    const bool two_levels = group_ > 1 && group_ < made_.request.world && !two_times;
    if (two_levels && reduce != wide) wide_ = std::max(wide_, size.slice * size_of(wide));
  }

  void add_rings() {
    const Bytes largest = *std::max_element(ring_.begin(), ring_.end());
    const bool backward = made_.options.prefetch_backward != BackwardPrefetch::None;
    const std::int64_t ahead = std::max(made_.options.prefetch_forward, backward ? 1 : 0);
    const std::int64_t units =
        std::count_if(ring_.begin(), ring_.end(), [](Bytes b) { return b > 0; });
    bytes_[Role::GatherRing] = std::min(units, 1 + ahead) * largest;
    Bytes largest_gradient = 0;
    std::int64_t sharing = 0;
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      if (dedicated(unit)) {
        bytes_[Role::GradientUnit] += gradients_[unit];
      } else {
        largest_gradient = std::max(largest_gradient, gradients_[unit]);
        sharing += gradients_[unit] > 0;
      }
    }
    bytes_[Role::GradientRing] = std::min<std::int64_t>(sharing, 2) * largest_gradient;
    bytes_[Role::Scratch] = landing_ + wide_;
  }

  static Bytes rounded(Bytes bytes) { return (bytes + 127) / 128 * 128; }

  const PlanCase& made_;
  StrategyTraits strategy_;
  int group_;
  ReduceMoment moment_;
  std::vector<Unit> units_;
  std::vector<Bytes> ring_, gradients_;  // per unit
  Bytes landing_ = 0;
  Bytes wide_ = 0;
  ByRole bytes_;
};

constexpr Elements many = 1 << 20;  // P, elements

/// Plan of two modules of P / 2 elements under fp32 and AdamW.
template <class Strategy, class Precision = precision::Full<float>>
Plan two_modules(int world, Options options = {}) {
  return plan_for<Strategy, Precision>(equal_modules(2, {many / 2}), world, options);
}

}  // namespace

TEST_CASE("bytes per role are those of the definitions, for random models") {
  for_random_cases(11,
                   [](const PlanCase& made) { check_bytes(made.plan, Reference(made).bytes()); });
}

TEST_CASE("fp32 AdamW: bytes per parameter fall with W as the strategy table says") {
  const Bytes p = many;
  for (const int w : {1, 2, 4, 8}) {
    const Bytes whole = 4 * p;
    check_bytes(two_modules<strategy::NoShard>(w),
                {{Role::Whole, whole}, {Role::Gradient, whole}, {Role::State, 8 * p}});
    check_bytes(two_modules<strategy::ShardOptimizer>(w),
                {{Role::Whole, whole}, {Role::Gradient, whole}, {Role::State, 8 * p / w}});
    if (w == 1) continue;      // every strategy is then NoShard
    const Bytes ring = whole;  // two slots of one module: all, here
    const ByRole sharded{{Role::Master, 4 * p / w},
                         {Role::Gradient, 4 * p / w},
                         {Role::State, 8 * p / w},
                         {Role::GradientRing, ring}};
    ByRole expected = sharded;
    expected[Role::Whole] = whole;
    check_bytes(two_modules<strategy::ShardGradOp>(w), expected);
    expected = sharded;
    expected[Role::GatherRing] = ring;
    check_bytes(two_modules<strategy::FullShard>(w), expected);
    expected[Role::Secondary] = whole / std::max(1, w / 2);
    check_bytes(two_modules<strategy::FullShardSecondary>(w), expected);
  }
}

TEST_CASE("hybrids shard over the group, whatever the world size") {
  const Bytes p = many;
  for (const int w : {2, 4, 8, 16}) {
    const ByRole expected{{Role::Master, 2 * p},
                          {Role::Gradient, 2 * p},
                          {Role::State, 4 * p},
                          {Role::GradientRing, 4 * p}};
    const Options options{.shard_group = 2};
    ByRole full = expected;
    full[Role::GatherRing] = 4 * p;
    check_bytes(two_modules<strategy::HybridShard>(w, options), full);
    ByRole kept = expected;
    kept[Role::Whole] = 4 * p;
    check_bytes(two_modules<strategy::HybridShardGradOp>(w, options), kept);
  }
}

TEST_CASE("at one rank every strategy holds 16 bytes a parameter under fp32 AdamW") {
  const Model model = equal_modules(2, {many / 2});
  for (const auto& strategy : strategies)
    check_bytes(make_plan(model, {strategy.traits, {}, {}, 1}, {}),
                {{Role::Whole, 4 * many}, {Role::Gradient, 4 * many}, {Role::State, 8 * many}});
}

TEST_CASE("mixed precision keeps an fp32 master beside what is gathered") {
  const Bytes p = many;
  check_bytes(two_modules<strategy::FullShard, precision::Bf16Mixed>(4),
              {{Role::Master, p},
               {Role::Compute, p / 2},
               {Role::Gradient, p},
               {Role::State, 2 * p},
               {Role::GatherRing, 2 * p},
               {Role::GradientRing, 2 * p}});
  check_bytes(two_modules<strategy::NoShard, precision::DeepSpeedBf16>(4),
              {{Role::Master, 4 * p},
               {Role::Whole, 2 * p},
               {Role::Gradient, 4 * p},
               {Role::State, 8 * p},
               {Role::GradientRing, 2 * p},
               {Role::Scratch, 2 * p / 2}});  // a reduced module in bf16
  check_bytes(two_modules<strategy::FullShard, precision::Bf16Stochastic>(4),
              {{Role::Master, p / 2},
               {Role::Gradient, p},
               {Role::State, 2 * p},
               {Role::GatherRing, 2 * p},
               {Role::GradientRing, 2 * p}});
}

TEST_CASE("the gather ring has a slot for the unit in use and one for each gathered ahead") {
  Model model = equal_modules(5, {320});
  model.module("large").add("w", {100, 64});
  const Bytes slot = 100 * 64 * 4;
  const auto ring = [&](int ahead, BackwardPrefetch backward) {
    const Plan plan = plan_for<strategy::FullShard>(
        model, 2, {.prefetch_forward = ahead, .prefetch_backward = backward});
    CHECK(plan.gather_slot_bytes == slot);
    CHECK(plan.bytes(Role::GatherRing) == plan.gather_slots * slot);
    return plan.gather_slots;
  };
  CHECK(ring(0, BackwardPrefetch::None) == 1);
  CHECK(ring(0, BackwardPrefetch::Post) == 2);
  CHECK(ring(1, BackwardPrefetch::Pre) == 2);
  CHECK(ring(3, BackwardPrefetch::None) == 4);
  CHECK(ring(99, BackwardPrefetch::Pre) == 6);  // there are no more units
}

TEST_CASE("a cap below what must be whole at once is refused with both numbers") {
  Model model = equal_modules(3, {320});
  model.module("large").add("w", {3200});
  model.module("twice", {.uses = 2}).add("w", {640});  // stays whole from first use to step
  const auto request = request_for<strategy::FullShard>(2);
  const auto with_cap = [&](Elements cap) {
    return refusal(model, request, {.max_live_elements = cap});
  };
  CHECK(with_cap(3840).empty());
  CHECK(says(with_cap(3839), {"max_live_elements is 3839", "3840 gathered elements"}));
  const Options none{.max_live_elements = 0};
  CHECK(refusal(model, request_for<strategy::NoShard>(2), none).empty());
  CHECK(says(refusal(model, request_for<strategy::ShardGradOp>(2), none),
             {"max_live_elements is 0", "4800 gathered elements"}));
}

TEST_CASE("the gather ring has no slot that the cap never lets be used") {
  const Model model = equal_modules(6, {320});
  const auto slots = [&](Elements cap) {
    return plan_for<strategy::FullShard>(model, 2,
                                         {.prefetch_forward = 4, .max_live_elements = cap})
        .gather_slots;
  };
  CHECK(slots(320) == 1);
  CHECK(slots(639) == 1);
  CHECK(slots(640) == 2);
  CHECK(slots(960) == 3);
  CHECK(slots(unlimited_elements) == 5);
}

TEST_CASE("parameters at or below the persistence threshold stay whole") {
  Model model;
  model.root().add("bias", {32});
  model.root().add("empty", {0});
  model.root().add("weight", {320});
  const auto whole_flats = [&](Elements threshold) {
    std::vector<std::vector<int>> whole;
    for (const Flat& flat :
         plan_for<strategy::FullShard>(model, 2, {.persistence_threshold = threshold}).flats)
      if (flat.whole == ParametersWhole::Always) whole.push_back(flat.parameters);
    return whole;
  };
  CHECK(whole_flats(0).empty());
  CHECK(whole_flats(31) == std::vector<std::vector<int>>{{1}});
  CHECK(whole_flats(32) == std::vector<std::vector<int>>{{0, 1}});
  CHECK(whole_flats(320) == std::vector<std::vector<int>>{{0, 1, 2}});
}
