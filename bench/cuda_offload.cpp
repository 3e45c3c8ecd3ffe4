// Offload from a CUDA device against what bounds it, measured in the same run: copies against a
// plain two-way pinned copy of the same bytes; steps with the optimizer on the host against
// compute, link and the host's update, each alone, and against a loop of copies and updates in the
// same parts without an engine, in which link and update share the host's memory. Prints tables.
//
//   cuda_offload_bench [MILLIONS OF PARAMETERS [UNITS [Options::update_part]]]     512 32
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "cuda_offload_training.hpp"

namespace flatshard_bench {
namespace {

struct LinkTimes {
  double both, down, up;  // milliseconds
};

LinkTimes measure_link(Link& link) {
  const LinkTimes plain{median([&] { link.plain(3); }), median([&] { link.plain(1); }),
                        median([&] { link.plain(2); })};
  const double ours = median([&] { link.by_units(); });
  const auto gigabytes = static_cast<double>(link.units * (link.down_bytes + link.up_bytes)) * 1e-9;
  std::printf(
      "copies, %.2f GB: plain two-way %.2f ms (%.1f GB/s; down alone %.2f, up alone %.2f); "
      "by units through the lane %.2f ms: %.3f of it\n",
      gigabytes, plain.both, gigabytes / plain.both * 1e3, plain.down, plain.up, ours,
      plain.both / ours);
  return plain;
}

/// What a step is measured by, in milliseconds: not the least there is, since updates of parts read
/// gradients from the cache, and forward hides some updates after clipping.
double bound_of(bool clips, double compute, const LinkTimes& link, double update) {
  if (clips) return std::max(compute, link.down) + std::max(update, link.up);
  return std::max({compute, link.both, update});
}

double median_of(const std::vector<StepTimes>& rounds, const std::function<double(StepTimes)>& of) {
  std::vector<double> values;
  for (const StepTimes& round : rounds) values.push_back(of(round));
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

/// Medians of each column; the ratios are medians of the rounds' ratios.
void print_row(bool clips, const LinkTimes& link, const std::vector<StepTimes>& rounds) {
  const auto column = [&](double StepTimes::*member) {
    return median_of(rounds, [=](const StepTimes& round) { return round.*member; });
  };
  const auto over_bound = [&](double StepTimes::*host) {
    return median_of(rounds, [&, host](const StepTimes& round) {
      return round.step / bound_of(clips, round.compute, link, round.*host);
    });
  };
  std::printf("%-9s %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f   %6.3f %6.3f\n",
              clips ? "clipped" : "unclipped", column(&StepTimes::compute),
              clips ? link.down : link.both, clips ? link.up : 0, column(&StepTimes::update),
              column(&StepTimes::loop), column(&StepTimes::step), over_bound(&StepTimes::update),
              over_bound(&StepTimes::loop));
  std::fflush(stdout);
}

template <class Precision>
void measure_steps(CudaDevice& device, const Size& size, bool clips, Link& link,
                   const LinkTimes& times) {
  constexpr int learning = 24, rounds = 5;
  Training<Precision> training(device, size, clips);
  const double update = median([&] { training.update_milliseconds(); });
  const double turn = median([&] { training.compute_milliseconds(10); }) / 10;
  for (const double share : {0.5, 1.0, 2.0}) {
    const int turns = std::max(1, static_cast<int>(share * update / turn));
    training.steps(turns, learning);
    std::vector<StepTimes> measured;
    for (int round = 0; round < rounds; ++round)
      measured.push_back(training.round(turns, link, !clips));
    print_row(clips, times, measured);
  }
}

template <class Precision>
void measure(CudaDevice& device, const Size& size, const char* gradient) {
  Link link(device, size, size_of(dtype_of<typename Precision::reduce>));
  std::printf("\n%s gradients on the link\n", gradient);
  const LinkTimes times = measure_link(link);
  std::printf("%-9s %9s %9s %9s %9s %9s %9s   %s\n", "ms", "compute", "link", "up", "update",
              "loop", "step", "step/bound, with the loop");
  for (const bool clips : {false, true}) measure_steps<Precision>(device, size, clips, link, times);
}

}  // namespace
}  // namespace flatshard_bench

int main(int argc, char** argv) {
  using namespace flatshard_bench;
  if (cuda_device_count() == 0) {
    std::puts("skipped: this process can use no CUDA device");
    return 77;
  }
  const long long millions = argc > 1 ? std::atoll(argv[1]) : 512;
  const int units = argc > 2 ? std::max(1, std::atoi(argv[2])) : 32;
  const Size size{units, round_up(millions * 1000000 / units, 1024),
                  argc > 3 ? std::atoll(argv[3]) : Options().update_part};
  CudaDevice device;
  std::printf("%s; %d units of %lld parameters; AdamW, fp32 masters; %d threads\n",
              std::string(device.name()).c_str(), units, static_cast<long long>(size.unit),
              device.options().host_threads);
  measure<precision::Bf16Mixed>(device, size, "fp32");
  measure<precision::DeepSpeedBf16>(device, size, "bf16");
  return 0;
}
