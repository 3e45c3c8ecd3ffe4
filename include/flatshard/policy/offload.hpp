// Offload policies. The one question they answer: where does each part rest between uses?
#pragma once

#include <concepts>

namespace flatshard {

/// A kind of memory.
enum class Tier { Device, Host, Nvme };

/// A place of an offload policy: a type whose constant `tier` says which kind of memory it is.
template <class Place>
concept NamesATier = requires {
  { Place::tier } -> std::same_as<const Tier&>;
};

namespace offload {

/// Memory of the device that computes.
struct Device {
  static constexpr Tier tier = Tier::Device;
};
/// Memory of the host: pinned under a budget (Options::pinned_budget), pageable beyond it.
struct Cpu {
  static constexpr Tier tier = Tier::Host;
};
/// A file on a fast disk.
struct Nvme {
  static constexpr Tier tier = Tier::Nvme;
};

/// Each part in a place of its own. Parameters: the compute-dtype shard, or the whole copy where a
/// strategy keeps one. Optimizer: masters, states and gradients, which are updated where they rest.
/// Equal dtypes in two places are two copies.
template <NamesATier Parameters, NamesATier Optimizer>
struct Place {
  static constexpr Tier parameters = Parameters::tier;
  static constexpr Tier optimizer = Optimizer::tier;
};

/// Everything in one place.
template <NamesATier Everything>
using All = Place<Everything, Everything>;

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
  Tier optimizer = Tier::Device;   // masters, states and gradients
  friend constexpr bool operator==(const OffloadTraits&, const OffloadTraits&) = default;
};

/// The answers of a policy.
template <OffloadPolicy Policy>
constexpr OffloadTraits offload_traits() {
  return {Policy::parameters, Policy::optimizer};
}

static_assert(OffloadPolicy<offload::None>);
static_assert(OffloadPolicy<offload::All<offload::Cpu>>);
static_assert(offload_traits<offload::None>() == offload_traits<offload::All<offload::Device>>());

}  // namespace flatshard
