// Who talks to whom and how many bytes: every strategy is what it says, and the Plan foresaw it.
#include <doctest/doctest.h>
#include <flatshard/comm/recording.hpp>

#include <map>
#include <mutex>
#include <sstream>

#include "training.hpp"

using namespace sharder_test;

namespace {

/// What one rank sent in one steady step.
using Records = std::vector<CollectiveRecord>;

/// Records of every rank in step `step` of a training.
std::vector<Records> record(Training training, int step) {
  std::vector<Records> records(static_cast<std::size_t>(training.world));
  std::vector<CollectiveLog*> logs(records.size());
  training.steps = step + 1;
  training.hooks.decorate = [&](Communicator& inner) -> std::unique_ptr<Communicator> {
    auto recording = std::make_unique<RecordingCommunicator>(inner);
    logs[static_cast<std::size_t>(inner.rank())] = &recording->log();
    return recording;
  };
  training.hooks.before_step = [&](Trainer&, Communicator& communicator, int at) {
    if (at == step) logs[static_cast<std::size_t>(communicator.rank())]->clear();
  };
  training.hooks.after_step = [&](Trainer&, Communicator& communicator, int at) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    if (at == step) records[rank] = logs[rank]->records();
  };
  train(training);
  return records;
}

Plan plan_of(Training training) {
  Plan plan;
  training.steps = 0;
  training.hooks.before_training = [&](Trainer& trainer, Communicator& communicator) {
    if (communicator.rank() == 0) plan = trainer.plan();
  };
  train(training);
  return plan;
}

std::vector<Rank> contiguous(Rank rank, int group) {
  std::vector<Rank> ranks;
  for (int i = 0; i < group; ++i) ranks.push_back(rank / group * group + i);
  return ranks;
}

std::vector<Rank> strided(Rank rank, int group, int world) {
  std::vector<Rank> ranks;
  for (Rank other = rank % group; other < world; other += group) ranks.push_back(other);
  return ranks;
}

/// Calls and bytes per (operation, members).
struct Sum {
  int calls = 0;
  Bytes bytes = 0;
  friend bool operator==(const Sum&, const Sum&) = default;
};
using Sums = std::map<std::pair<std::string, std::vector<Rank>>, Sum>;

std::string text_of(const Sums& sums) {
  std::ostringstream out;
  for (const auto& [key, sum] : sums) {
    out << key.first << " among";
    for (const Rank rank : key.second) out << ' ' << rank;
    out << ": " << sum.calls << " calls, " << sum.bytes << " bytes\n";
  }
  return out.str();
}

/// The norm's exchange is counted under "norm" of its own.
Sums sums_of(const Records& records) {
  Sums sums;
  for (const CollectiveRecord& record : records) {
    if (record.members.size() < 2) continue;
    std::string kind(name_of(record.operation));
    if (record.label == "norm") kind += " norm";
    Sum& sum = sums[{kind, record.members}];
    ++sum.calls;
    sum.bytes += record.bytes;
  }
  return sums;
}

/// What the Plan's traffic() says, by the same key.
Sums foreseen(const Plan& plan, int micro_steps, Rank rank) {
  Sums sums;
  for (const Traffic& traffic : traffic(plan, micro_steps)) {
    std::vector<Rank> members = contiguous(rank, plan.shard_group);
    if (traffic.over == "replicas") members = strided(rank, plan.shard_group, plan.world);
    if (traffic.over == "secondary group") members = contiguous(rank, plan.secondary_group);
    std::string kind = traffic.collective;
    if (traffic.what == "norm") kind += " norm";
    Sum& sum = sums[{kind, members}];
    sum.calls += traffic.calls;
    sum.bytes += traffic.bytes;
  }
  return sums;
}

void check_plan(const Training& training) {
  CAPTURE(to_string(training));
  const std::vector<Records> records = record(training, 2);
  const Plan plan = plan_of(training);
  for (Rank rank = 0; rank < training.world; ++rank) {
    const Sums found = sums_of(records[static_cast<std::size_t>(rank)]);
    const Sums expected = foreseen(plan, training.micro_steps, rank);
    CHECK_MESSAGE(found == expected, "rank ", rank, " sent\n", text_of(found),
                  "but the Plan says\n", text_of(expected));
  }
}

Training training_of(StrategyName strategy, int world, int group, ReduceMoment moment,
                     int micro_steps) {
  Training training;
  training.strategy = strategy;
  training.world = world;
  training.micro_steps = micro_steps;
  training.options.shard_group = group;
  training.options.reduce_moment = moment;
  return training;
}

/// Elements of the flats of one kind, padded over a group.
Elements padded(const Plan& plan, bool trainable_only, DType compute) {
  Elements sum = 0;
  for (const Flat& flat : plan.flats)
    if (flat.compute == compute && (flat.requires_grad || !trainable_only))
      sum += flat.partition.padded();
  return sum;
}

/// Bytes of all parameters in the compute dtype (fp32, and one in fp64), padded.
Bytes parameter_bytes(const Plan& plan, bool trainable_only) {
  return padded(plan, trainable_only, DType::Float32) * 4 +
         padded(plan, trainable_only, DType::Float64) * 8;
}

/// Without the norm: bytes by operation and size of the group.
std::map<std::pair<std::string, std::size_t>, Bytes> volume(const Records& records) {
  std::map<std::pair<std::string, std::size_t>, Bytes> bytes;
  for (const CollectiveRecord& record : records)
    if (record.label != "norm" && record.members.size() > 1)
      bytes[{std::string(name_of(record.operation)), record.members.size()}] += record.bytes;
  return bytes;
}

using Volume = std::map<std::pair<std::string, std::size_t>, Bytes>;

}  // namespace

TEST_CASE("every strategy sends what the Plan foresees, to whom it foresees, on every rank") {
  for (const StrategyName strategy : all_strategies)
    for (const int group : has_groups(strategy) ? std::vector{1, 2, 4} : std::vector{0})
      for (const ReduceMoment moment :
           {ReduceMoment::Micro, ReduceMoment::Boundary, ReduceMoment::ReplicaBoundary}) {
        if (moment == ReduceMoment::ReplicaBoundary && !is_hybrid(strategy)) continue;
        for (const int micro_steps : {1, 3})
          check_plan(training_of(strategy, 4, group, moment, micro_steps));
      }
}

TEST_CASE("traffic follows the Plan in every precision, with persistence and other wraps") {
  for (const PrecisionName precision : all_precisions) {
    Training training = training_of(StrategyName::HybridShard, 4, 2, ReduceMoment::Micro, 2);
    training.precision = precision;
    check_plan(training);
    training.options.reduce_moment = ReduceMoment::ReplicaBoundary;
    check_plan(training);
  }
  for (const Elements threshold : {5, 80, 1000}) {
    Training training = training_of(StrategyName::FullShard, 4, 0, ReduceMoment::Micro, 2);
    training.options.persistence_threshold = threshold;
    check_plan(training);
  }
  for (const WrapPolicy& wrap :
       {wrap::all_in_one(), wrap::up_to(150), wrap::by_prefix({"h.0", "h.2"})}) {
    Training training = training_of(StrategyName::FullShard, 4, 0, ReduceMoment::Micro, 2);
    training.options.wrap = wrap;
    check_plan(training);
  }
}

TEST_CASE("prefetch changes no byte that is sent once the order of calls is known") {
  for (const int ahead : {0, 1, 2})
    for (const BackwardPrefetch backward :
         {BackwardPrefetch::Pre, BackwardPrefetch::Post, BackwardPrefetch::None}) {
      Training training = training_of(StrategyName::FullShard, 2, 0, ReduceMoment::Micro, 2);
      training.options.prefetch_forward = ahead;
      training.options.prefetch_backward = backward;
      check_plan(training);
    }
}

TEST_CASE("per step and rank: what makes each strategy itself") {
  const int world = 4, group = 2, steps = 3;  // micro-steps
  const auto volume_of = [&](StrategyName strategy, ReduceMoment moment) {
    return volume(record(training_of(strategy, world, group, moment, steps), 2).front());
  };
  const auto plan_for = [&](StrategyName strategy, ReduceMoment moment) {
    return plan_of(training_of(strategy, world, group, moment, steps));
  };
  const auto micro = ReduceMoment::Micro, boundary = ReduceMoment::Boundary;

  // NoShard: 2 (W-1)/W of the gradients, parameters never travel.
  Bytes gradients = parameter_bytes(plan_for(StrategyName::NoShard, boundary), true);
  CHECK(volume_of(StrategyName::NoShard, boundary) ==
        Volume{{{"all_reduce", 4}, 2 * 3 * gradients / 4}});
  CHECK(volume_of(StrategyName::NoShard, micro) ==
        Volume{{{"all_reduce", 4}, steps * 2 * 3 * gradients / 4}});

  // ShardOptimizer: one reduce-scatter of the gradients, one all-gather of the parameters.
  Plan plan = plan_for(StrategyName::ShardOptimizer, boundary);
  gradients = parameter_bytes(plan, true);
  CHECK(volume_of(StrategyName::ShardOptimizer, boundary) ==
        Volume{{{"reduce_scatter", 4}, 3 * gradients / 4}, {{"all_gather", 4}, 3 * gradients / 4}});

  // ShardGradOp: a reduce-scatter per micro-step, one gather per step (frozen ones too).
  Bytes parameters = parameter_bytes(plan, false);
  CHECK(volume_of(StrategyName::ShardGradOp, micro) ==
        Volume{{{"reduce_scatter", 4}, steps * 3 * gradients / 4},
               {{"all_gather", 4}, 3 * parameters / 4}});

  // FullShard: two gathers per micro-step of what is not used across other units' calls.
  Bytes once = 0;
  for (const Flat& flat : plan_for(StrategyName::FullShard, micro).flats)
    if (flat.whole == ParametersWhole::UntilBackward)
      once += flat.partition.padded() * size_of(flat.compute);
  REQUIRE(once > 0);
  REQUIRE(once < parameters);
  const Bytes gathers = 2 * steps * (parameters - once) + once;
  CHECK(volume_of(StrategyName::FullShard, micro) ==
        Volume{{{"reduce_scatter", 4}, steps * 3 * gradients / 4},
               {{"all_gather", 4}, 3 * gathers / 4}});
  CHECK(volume_of(StrategyName::FullShard, boundary) ==
        Volume{{{"reduce_scatter", 4}, 3 * gradients / 4}, {{"all_gather", 4}, 3 * gathers / 4}});

  // HybridShard: gathers and reduce-scatters stay in the group, slices cross the replicas.
  plan = plan_for(StrategyName::HybridShard, micro);
  gradients = parameter_bytes(plan, true);
  parameters = parameter_bytes(plan, false);
  once = 0;
  for (const Flat& flat : plan.flats)
    if (flat.whole == ParametersWhole::UntilBackward)
      once += flat.partition.padded() * size_of(flat.compute);
  const Bytes in_group = (2 * steps * (parameters - once) + once) / 2;
  const auto hybrid = [&](Bytes gather, int reduced, int over_replicas) {
    return std::array{gather, reduced * gradients / 2, over_replicas * 2 * (gradients / 2) / 2};
  };
  const auto check_hybrid = [&](StrategyName strategy, ReduceMoment moment,
                                const std::array<Bytes, 3>& bytes) {
    CHECK(volume_of(strategy, moment) == Volume{{{"all_gather", 2}, bytes[0]},
                                                {{"reduce_scatter", 2}, bytes[1]},
                                                {{"all_reduce", 2}, bytes[2]}});
  };
  check_hybrid(StrategyName::HybridShard, micro, hybrid(in_group, steps, steps));
  check_hybrid(StrategyName::HybridShard, boundary, hybrid(in_group, 1, 1));
  check_hybrid(StrategyName::HybridShard, ReduceMoment::ReplicaBoundary,
               hybrid(in_group, steps, 1));
  check_hybrid(StrategyName::HybridShardGradOp, ReduceMoment::ReplicaBoundary,
               hybrid(parameters / 2, steps, 1));
}

TEST_CASE("FullShardSecondary: one gather over all a step, every other one inside the group") {
  const int world = 8, group = 4, micro_steps = 2;
  const Training training =
      training_of(StrategyName::FullShardSecondary, world, group, ReduceMoment::Micro, micro_steps);
  const std::vector<Records> records = record(training, 2);
  const Plan plan = plan_of(training);
  for (Rank rank = 0; rank < world; ++rank) {
    std::map<std::string, std::vector<std::vector<Rank>>> gathers;  // by flat, in order
    for (const CollectiveRecord& record : records[static_cast<std::size_t>(rank)])
      if (record.operation == Operation::AllGather && record.label != "norm")
        gathers[record.label].push_back(record.members);
    for (const Flat& flat : plan.flats) {
      if (flat.whole != ParametersWhole::PerUse) continue;
      CAPTURE(flat.label);
      std::vector<std::vector<Rank>> expected{contiguous(rank, world)};
      while (expected.size() < 2 * micro_steps) expected.push_back(contiguous(rank, group));
      CHECK(gathers[flat.label] == expected);
    }
  }
}

TEST_CASE("persistent parameters are gathered once a step, after the update") {
  Training training = training_of(StrategyName::FullShard, 4, 0, ReduceMoment::Micro, 1);
  training.options.persistence_threshold = 80;
  const Records records = record(training, 2).front();
  const Plan plan = plan_of(training);
  int persistent = 0;
  for (const Flat& flat : plan.flats) {
    if (!flat.persistent) continue;
    ++persistent;
    int gathers = 0;
    for (const CollectiveRecord& record : records)
      gathers += record.operation == Operation::AllGather && record.label == flat.label;
    CHECK(gathers == (flat.requires_grad ? 1 : 0));
  }
  CHECK(persistent > 0);
}

TEST_CASE("ranks issue the same collectives in the same order") {
  for (const StrategyName strategy : all_strategies) {
    Training training = training_of(strategy, 4, 2, ReduceMoment::Micro, 2);
    const std::vector<Records> records = record(training, 1);
    for (const Records& other : records) {
      REQUIRE(other.size() == records[0].size());
      for (std::size_t i = 0; i < other.size(); ++i) {
        CHECK(other[i].operation == records[0][i].operation);
        CHECK(other[i].label == records[0][i].label);
        CHECK(other[i].count == records[0][i].count);
        CHECK(other[i].bytes == records[0][i].bytes);
      }
    }
  }
}

TEST_CASE("what travels has the dtypes of the precision policy") {
  Training training = training_of(StrategyName::HybridShard, 4, 2, ReduceMoment::Micro, 1);
  const auto check = [&](PrecisionName precision, DType gather, DType sent, DType summed,
                         DType result) {
    training.precision = precision;
    const Plan plan = plan_of(training);
    const std::vector<Records> records = record(training, 1);
    for (const CollectiveRecord& record : records.front()) {
      if (record.label == "norm") continue;
      bool is_double = false;
      for (const Flat& flat : plan.flats)
        if (flat.label == record.label) is_double = flat.compute == DType::Float64;
      if (is_double) continue;
      CAPTURE(to_string(record));
      if (record.operation == Operation::AllGather) CHECK(record.contribution == gather);
      if (record.operation == Operation::ReduceScatter) {
        CHECK(record.contribution == sent);
        CHECK(record.result == summed);
      }
      if (record.operation == Operation::AllReduce) {
        CHECK(record.contribution == summed);
        CHECK(record.result == result);
      }
    }
  };
  constexpr DType f = DType::Float32, b = DType::BFloat16, h = DType::Float16;
  check(PrecisionName::Fp32, f, f, f, f);
  check(PrecisionName::Bf16Mixed, b, b, f, f);
  check(PrecisionName::DeepSpeedBf16, b, b, f, b);  // rounded once, after the whole sum
  check(PrecisionName::Fp16Torch, h, h, f, h);
  check(PrecisionName::Bf16, b, b, f, b);
  check(PrecisionName::Bf16Stochastic, b, b, f, f);
}
