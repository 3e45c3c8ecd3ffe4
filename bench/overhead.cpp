// What sharding costs where there is nothing to shard: the GPT of train_gpt with AdamW on plain
// arrays beside the Sharder at one rank, from the same parameters on the same data, in turn. Fails
// when the losses part or when a steady sharded step allocates.
#include <flatshard/flatshard.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "allocation_count.hpp"
#include "data.hpp"
#include "plain_trainer.hpp"
#include "trainer.hpp"

namespace {

using namespace train_gpt;
using Clock = std::chrono::steady_clock;

constexpr int rounds = 5;            // the median of which is quoted
constexpr int steps_of_a_round = 8;  // about 2 s on one core of a 2023 server

/// Forward and backward, the same code for both trainers.
class Work {
 public:
  explicit Work(const Options& options)
      : options_(options),
        corpus_(Corpus::from_project(options.model.context)),
        model_(options.model, options.batch),
        tokens_(static_cast<std::size_t>(options.batch * options.model.context)),
        targets_(tokens_.size()) {}

  /// Mean loss of step `step`; leaves the gradients to the trainer.
  template <class AnyTrainer>
  double run(AnyTrainer& trainer, std::int64_t step) {
    const std::int64_t context = options_.model.context;
    for (std::int64_t i = 0; i < options_.batch; ++i)
      corpus_.sequence(options_.seed, step, i, context, tokens_.data() + i * context,
                       targets_.data() + i * context);
    return run_micro_step(trainer, model_, tokens_.data(), targets_.data());
  }

 private:
  const Options& options_;
  Corpus corpus_;
  Model<float> model_;
  std::vector<std::int32_t> tokens_, targets_;
};

/// Steps of one trainer in one round.
struct Lap {
  double seconds = 0;
  double loss = 0;  // of the last step
  std::int64_t allocations = 0;
};

template <class Step>
Lap run_lap(const Step& step, int round) {
  Lap lap;
  const std::int64_t before = flatshard_test::allocations();
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < steps_of_a_round; ++i) lap.loss = step(round * steps_of_a_round + i);
  lap.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  lap.allocations = flatshard_test::allocations() - before;
  return lap;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int judge(const std::vector<Lap>& plain, const std::vector<Lap>& sharded) {
  std::vector<double> plain_ms, sharded_ms, ratios;
  std::int64_t allocations = 0;
  double apart = 0;
  for (std::size_t round = 1; round < plain.size(); ++round) {  // the first warms up
    plain_ms.push_back(plain[round].seconds * 1e3 / steps_of_a_round);
    sharded_ms.push_back(sharded[round].seconds * 1e3 / steps_of_a_round);
    ratios.push_back(sharded[round].seconds / plain[round].seconds);
    allocations += sharded[round].allocations;
    apart = std::max(apart, std::fabs(sharded[round].loss - plain[round].loss));
  }
  std::printf(
      "plain arrays %.2f ms a step, sharded %.2f ms, ratio %.4f (medians of %d rounds of %d)\n",
      median(plain_ms), median(sharded_ms), median(ratios), rounds, steps_of_a_round);
  std::printf("losses at most %.1e apart, %lld allocations in %d steady sharded steps\n", apart,
              static_cast<long long>(allocations), rounds * steps_of_a_round);
  return apart < 1e-3 && allocations == 0 ? 0 : 1;
}

}  // namespace

int main() {
  const Options options;
  const auto setup = make_setup(options);
  flatshard::HostDevice device;
  flatshard::Solo communicator(device.kernels());
  const auto sharded = trainer_type<flatshard::precision::Full<float>>(options.strategy)
                           .make(communicator, *setup, device, nullptr);
  sharded->initialize();
  PlainTrainer plain(
      options.model,
      {.lr = options.lr, .weight_decay = options.weight_decay, .max_grad_norm = options.clip},
      options.seed);
  plain.start_from(*sharded);
  sharded->discard_step();
  Work work(options);
  std::vector<Lap> plain_laps, sharded_laps;
  for (int round = 0; round <= rounds; ++round) {
    plain_laps.push_back(run_lap(
        [&](std::int64_t step) {
          const double loss = work.run(plain, step);
          plain.step();
          return loss;
        },
        round));
    sharded_laps.push_back(run_lap(
        [&](std::int64_t step) {
          sharded->micro_step(true);
          const double loss = work.run(*sharded, step);
          sharded->step();
          return loss;
        },
        round));
  }
  return judge(plain_laps, sharded_laps);
}
