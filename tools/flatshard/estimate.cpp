#include "estimate.hpp"

#include <algorithm>

namespace flatshard_tool {

using flatshard::Bytes;
using flatshard::Elements;

Elements elements_of(const flatshard::Plan& plan, bool trainable) {
  Elements sum = 0;
  for (const flatshard::Flat& flat : plan.flats)
    if (flat.requires_grad == trainable)
      for (std::size_t i = 0; i < flat.parameters.size(); ++i)
        sum += flat.layout.numel(static_cast<int>(i));
  return sum;
}

Bytes update_bytes(const flatshard::Plan& plan) {
  Bytes sum = 0;
  for (const flatshard::Flat& flat : plan.flats) {
    if (!flat.requires_grad) continue;
    const Bytes copy = flat.master_is_compute ? 0 : flatshard::size_of(flat.compute);
    const Bytes element = 2 * flatshard::size_of(flat.accumulate) +
                          2 * flatshard::size_of(flat.master) +
                          2 * plan.request.optimizer_states * flatshard::size_of(flat.state) + copy;
    sum += flat.partition.slice() * element;
  }
  return sum;
}

Estimate estimate(const flatshard::Plan& plan, int micro_steps, const Rates& rates) {
  Estimate result;
  if (rates.link) {
    double seconds = 0;
    for (const flatshard::Traffic& entry : flatshard::traffic(plan, micro_steps)) {
      const double link =
          entry.over == "replicas" ? rates.replicas.value_or(*rates.link) : *rates.link;
      seconds += static_cast<double>(entry.bytes) / link + entry.calls * rates.latency;
    }
    result.communication = seconds;
  }
  if (rates.compute)
    result.compute = (6.0 * static_cast<double>(elements_of(plan, true)) +
                      4.0 * static_cast<double>(elements_of(plan, false))) *
                     static_cast<double>(rates.tokens) * micro_steps / *rates.compute;
  if (rates.memory) result.update = static_cast<double>(update_bytes(plan)) / *rates.memory;
  if (result.communication && result.compute && result.update) {
    result.step_least = std::max(*result.compute, *result.communication) + *result.update;
    result.step_most = *result.compute + *result.communication + *result.update;
  }
  return result;
}

}  // namespace flatshard_tool
