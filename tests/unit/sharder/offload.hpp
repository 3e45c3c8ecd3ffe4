// Places of parameters and optimizer, for tests.
#pragma once

#include <array>

#include "training.hpp"

namespace sharder_test {

inline constexpr OffloadTraits none{};
inline constexpr OffloadTraits all_on_host{Tier::Host, Tier::Host};
inline constexpr OffloadTraits optimizer_on_host{Tier::Device, Tier::Host};
inline constexpr OffloadTraits parameters_on_host{Tier::Host, Tier::Device};
inline constexpr std::array offloads{all_on_host, optimizer_on_host, parameters_on_host};
inline constexpr std::array nvme_offloads{
    OffloadTraits{Tier::Nvme, Tier::Nvme}, OffloadTraits{Tier::Device, Tier::Nvme},
    OffloadTraits{Tier::Nvme, Tier::Device}, OffloadTraits{Tier::Host, Tier::Nvme},
    OffloadTraits{Tier::Nvme, Tier::Host}};

inline std::string to_string(const OffloadTraits& offload) {
  const auto name = [](Tier tier) {
    if (tier == Tier::Nvme) return "NVMe";
    return tier == Tier::Host ? "host" : "device";
  };
  return std::string("parameters on ") + name(offload.parameters) + ", optimizer on " +
         name(offload.optimizer);
}

}  // namespace sharder_test
