// One step on the device and on the host, compared.
#pragma once

#include <flatshard/ops/step_rows.hpp>

#include "kernels_gpu.hpp"

namespace flatshard_test {

template <class... Types>
std::vector<StepRow> rows_of(StepRowList<Types...>) {
  return {Types::row()...};
}

struct Steps {
  HostStep host;
  CudaStep cuda;
};

/// The arrays of one range on both sides. On the device each begins at an alignment of its own, or
/// all at the same.
struct StepArrays {
  static constexpr std::size_t copy = 2, first_state = 3;
  std::vector<DType> dtypes;
  std::vector<std::vector<std::byte>> on_host;
  std::vector<OnGpu> on_gpu;

  StepArrays(std::mt19937_64& random, const StepRow& row, Elements count, bool scattered)
      : dtypes{row.master, row.gradient, row.copy, row.state, row.state, row.state} {
    const Elements offsets[] = {1, 3, 5, 2, 0, 1};
    for (std::size_t k = 0; k < dtypes.size(); ++k) {
      on_host.push_back(k == first_state ? random_finite(random, dtypes[k], count)
                                         : random_elements(random, dtypes[k], count));
      on_gpu.emplace_back(dtypes[k], on_host[k], scattered ? offsets[k] : 4);
    }
  }
  bool same() {
    bool same = true;
    for (std::size_t k = 0; k < dtypes.size(); ++k)
      same = equals(on_gpu[k], on_host[k], dtypes[k]) && same;
    return same;
  }
};

/// Steps ranges of these lengths at once; every second one with all arrays at equal alignment.
template <class Functor>
void check_step(const Functor& functor, const Steps& steps, const StepRow& row,
                const std::vector<Elements>& counts, const StepScalars& scalars,
                std::int64_t time) {
  CAPTURE(counts.size());
  CAPTURE(counts.front());
  CAPTURE(time);
  auto random = generator(static_cast<std::uint64_t>(counts.front()));
  OnGpu gpu_scalars(DType::UInt8, bytes_of(std::vector<StepScalars>{scalars}));
  OnGpu gpu_time(DType::Int64, bytes_of(std::vector<std::int64_t>{time}));
  std::vector<StepArrays> arrays;
  std::vector<StepArguments> on_host, on_gpu;
  arrays.reserve(counts.size());
  const bool scattered = random() % 2 == 0;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    arrays.emplace_back(random, row, counts[k], scattered == (k % 2 == 0));
    StepArguments arguments{};
    arguments.count = counts[k];
    arguments.canonical = (Elements{1} << 32) - static_cast<Elements>(random() % 2000);
    arguments.seed = seed();
    arguments.row = row;
    Functor of_group = functor;
    of_group.lr *= static_cast<double>(k + 1);
    std::memcpy(arguments.functor.data(), &of_group, sizeof functor);
    const auto with = [&](auto pointer, const StepScalars* s, const std::int64_t* t) {
      StepArguments placed = arguments;
      placed.master = pointer(0);
      placed.gradient = pointer(1);
      placed.copy = row.writes_copy ? pointer(StepArrays::copy) : nullptr;
      for (std::size_t state = 0; state < state_count<Functor>; ++state)
        placed.states[state] = pointer(StepArrays::first_state + state);
      placed.scalars = s;
      placed.time = t;
      return placed;
    };
    StepArrays& own = arrays.back();
    on_host.push_back(with([&](std::size_t i) { return own.on_host[i].data(); }, &scalars, &time));
    on_gpu.push_back(with([&](std::size_t i) { return own.on_gpu[i].data(); },
                          gpu_scalars.as<const StepScalars>(), gpu_time.as<const std::int64_t>()));
  }
  run_on_host([&](const KernelTable& kernels, StreamRef stream) {
    kernels.step_ranges(steps.host, on_host, stream);
  });
  run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
    kernels.step_ranges(steps.cuda, on_gpu, stream);
  });
  for (StepArrays& own : arrays) CHECK(own.same());
}

}  // namespace flatshard_test
