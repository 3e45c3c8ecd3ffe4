// Offload policies. The one question they answer: where does each part rest between uses?
#pragma once

#include <concepts>

namespace flatshard {

/// A kind of memory.
enum class Tier { Device, Host, Nvme };

namespace offload {

/// Everything rests in the memory of the device that computes.
struct None {
  static constexpr Tier parameters = Tier::Device;
  static constexpr Tier optimizer = Tier::Device;
};

}  // namespace offload

template <class Policy>
concept SaysWhereParametersRest = requires {
  { Policy::parameters } -> std::same_as<const Tier&>;
};
template <class Policy>
concept SaysWhereTheOptimizerRests = requires {
  { Policy::optimizer } -> std::same_as<const Tier&>;
};

/// A type that places parameters (the compute-dtype shard or whole copy) and the optimizer (master
/// weights, states and gradients).
template <class Policy>
concept OffloadPolicy = SaysWhereParametersRest<Policy> && SaysWhereTheOptimizerRests<Policy>;

/// The answers as a value, for the Plan.
struct OffloadTraits {
  Tier parameters = Tier::Device;  // of the compute dtype
  Tier optimizer = Tier::Device;   // masters and states
  friend constexpr bool operator==(const OffloadTraits&, const OffloadTraits&) = default;
};

/// The answers of a policy.
template <OffloadPolicy Policy>
constexpr OffloadTraits offload_traits() {
  return {Policy::parameters, Policy::optimizer};
}

static_assert(OffloadPolicy<offload::None>);

}  // namespace flatshard
