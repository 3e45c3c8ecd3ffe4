// The numbers of flatshard plan are those of the Plan of a run, and the Plan's bytes are what a run
// allocates.
#include <flatshard/flatshard.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "commands.hpp"
#include "error.hpp"
#include "estimate.hpp"
#include "plan_model.hpp"
#include "random.hpp"
#include "value.hpp"
#ifdef FLATSHARD_TOOL_TRAIN_GPT
#include "trainer.hpp"
#endif

namespace flatshard_tool {
namespace {

using flatshard::Bytes;

const char* const strategies[] = {
    "no_shard",     "shard_optimizer",      "shard_grad_op",       "full_shard",
    "hybrid_shard", "hybrid_shard_grad_op", "full_shard_secondary"};
const char* const precisions[] = {
    "fp32",           "fp64",           "bf16",       "fp16",
    "bf16_mixed",     "deepspeed_bf16", "fp16_mixed", "fp16_mixed_fp32_reduce",
    "bf16_stochastic"};

Bytes number(const Value& json, const char* section, const char* key) {
  return *find(*find(*json.map(), section)->map(), key)->integer();
}

const char* const host_offloads[] = {"cpu_all", "cpu_optimizer", "cpu_params"};

/// The most that one rank had, of device memory and of the host's; -1 where its Plan is another.
struct Allocated {
  Bytes device = -1, host = -1;
  friend bool operator==(const Allocated&, const Allocated&) = default;
};

Allocated allocated_by(flatshard::Communicator& communicator, const PlannedRun& run,
                       const flatshard::Optimizer& optimizer, const flatshard::Plan& plan) {
  flatshard::HostDevice device;
  flatshard::Options options = run.options;
  options.device = &device;
  const flatshard::Engine engine(communicator, run.model, optimizer, run.request, options);
  if (!(engine.plan() == plan)) return {};
  return {device.memory().high_water(), device.host_memory().high_water()};
}

/// What a run takes of the host's memory beside what its Plan places there: reports and the like.
Bytes beside_the_plan(PlanQuestion question) {
  question.offload = "none";
  question.world = 1;
  Bytes host = -1;
  flatshard::ThreadWorld(1).run([&](flatshard::Communicator& alone) {
    host = allocated_by(alone, planned_run(question), flatshard::AdamW{}, plan_of(question)).host;
  });
  return host;
}

/// `flatshard plan`, and what ranks then take, must be the same on every rank.
void check_printed_bytes(PlanQuestion question) {
  CAPTURE(question.strategy);
  CAPTURE(question.precision);
  CAPTURE(question.offload);
  CAPTURE(question.world);
  question.json = true;
  const Value json = parse_json(run_plan(question).text, "plan");
  const Allocated printed{number(json, "bytes", "device"), number(json, "bytes", "host")};
  const PlannedRun run = planned_run(question);
  const flatshard::Plan plan = plan_of(question);
  CHECK(printed.device == plan.arena_bytes);
  CHECK((printed.host > 0) == (question.offload != "none"));
  std::vector<Allocated> allocated(static_cast<std::size_t>(question.world));
  flatshard::ThreadWorld(question.world).run([&](flatshard::Communicator& communicator) {
    allocated[static_cast<std::size_t>(communicator.rank())] =
        allocated_by(communicator, run, flatshard::AdamW{}, plan);
  });
  const Bytes beside = beside_the_plan(question);
  for (const Allocated& bytes : allocated)
    CHECK(bytes == Allocated{printed.device, printed.host + beside});
}

TEST_CASE(
    "the printed bytes are what a run allocates, in every strategy, precision and world size") {
  for (const char* strategy : strategies)
    for (const char* precision : precisions)
      for (const int world : {1, 2, 4, 8}) {
        PlanQuestion question;
        question.gpt = "2,16,30,8";
        question.strategy = strategy;
        question.precision = precision;
        question.world = world;
        check_printed_bytes(question);
      }
}

TEST_CASE("they are so wherever parameters and optimizer rest on the host") {
  for (const char* offload : host_offloads)
    for (const char* strategy : strategies)
      for (const char* precision : precisions)
        for (const int world : {1, 2, 4, 8}) {
          PlanQuestion question;
          question.gpt = "1,8,10,4";
          question.strategy = strategy;
          question.precision = precision;
          question.world = world;
          question.offload = offload;
          check_printed_bytes(question);
        }
}

TEST_CASE("options and optimizers change the bytes as they change a run's") {
  std::mt19937_64 generator = flatshard_test::generator(5);
  const auto pick = [&](std::initializer_list<const char*> names) {
    return *(names.begin() + generator() % names.size());
  };
  for (int i = 0; i < 40; ++i) {
    PlanQuestion question;
    question.gpt = "3,8,20,4";
    question.strategy = strategies[generator() % std::size(strategies)];
    question.precision = precisions[generator() % std::size(precisions)];
    question.world = 4;
    question.accumulation = pick({"running", "tree"});
    question.reduce = pick({"", "micro", "boundary"});
    question.wrap = pick({"module", "all", "size:2000"});
    question.prefetch_backward = pick({"pre", "post", "none"});
    question.options.prefetch_forward = static_cast<int>(generator() % 3);
    question.options.max_micro_steps = 1 + static_cast<int>(generator() % 5);
    question.options.persistence_threshold = generator() % 2 == 0 ? 0 : 100;
    const flatshard::Optimizer optimizers[] = {flatshard::Lion{}, flatshard::AdamW{},
                                               flatshard::AMSGrad{}, flatshard::RMSProp{}};
    const flatshard::Optimizer& optimizer = optimizers[generator() % std::size(optimizers)];
    question.optimizer = optimizer.name();
    const PlannedRun run = planned_run(question);
    const flatshard::Plan plan = plan_of(question);
    flatshard::ThreadWorld ranks(4);
    ranks.run([&](flatshard::Communicator& communicator) {
      const Bytes bytes = allocated_by(communicator, run, optimizer, plan).device;
      if (communicator.rank() == 0) CHECK(bytes == plan.arena_bytes);
    });
  }
}

#ifdef FLATSHARD_TOOL_TRAIN_GPT
TEST_CASE("--gpt is the model of train_gpt") {
  train_gpt::Options options;
  options.model = {.layers = 3, .width = 24, .heads = 2, .context = 11, .vocabulary = 37};
  CHECK(gpt_model(parse_gpt("3,24,37,11")) == train_gpt::make_setup(options)->model);
}
#endif

TEST_CASE("collectives and bytes are printed as the Plan has them") {
  PlanQuestion question;
  question.gpt = "2,16,30,8";
  question.strategy = "hybrid_shard";
  question.world = 8;
  question.options.shard_group = 2;
  question.options.max_micro_steps = 3;
  question.json = true;
  const Value json = parse_json(run_plan(question).text, "plan");
  const flatshard::Plan plan = plan_of(question);
  const List& printed = *find(*json.map(), "traffic")->list();
  const std::vector<flatshard::Traffic> traffic = flatshard::traffic(plan, 3);
  REQUIRE(printed.size() == traffic.size());
  for (std::size_t i = 0; i < traffic.size(); ++i) {
    const Map& entry = *printed[i].map();
    CHECK(*find(entry, "bytes") == Value(traffic[i].bytes));
    CHECK(*find(entry, "calls") == Value(traffic[i].calls));
    CHECK(*find(entry, "over") == Value(traffic[i].over));
  }
  CHECK(number(json, "device_roles", "master") == plan.bytes(flatshard::Role::Master));
  question.json = false;
  const std::string table = run_plan(question).text;
  CHECK(table.find("8 ranks in 4 groups of 2") != std::string::npos);
  CHECK(table.find(std::to_string(plan.arena_bytes)) != std::string::npos);
}

TEST_CASE("memory of the host is listed apart") {
  PlanQuestion question;
  question.gpt = "2,16,30,8";
  question.world = 4;
  for (const char* offload : host_offloads) {
    question.offload = offload;
    question.options.pinned_budget = 5000;
    question.json = true;
    const flatshard::Plan plan = plan_of(question);
    CHECK(plan.pinned_bytes <= 5000);
    const Value json = parse_json(run_plan(question).text, "plan");
    CHECK(number(json, "bytes", "device") == plan.arena_bytes);
    CHECK(number(json, "bytes", "host") == plan.pinned_bytes + plan.pageable_bytes);
    CHECK(number(json, "host_roles", "optimizer state") +
              number(json, "device_roles", "optimizer state") ==
          plan.bytes(flatshard::Role::State));
    question.json = false;
    const std::string table = run_plan(question).text;
    CHECK(table.find("pinned host memory") != std::string::npos);
    CHECK((table.find("pageable host memory") != std::string::npos) == (plan.pageable_bytes > 0));
  }
  question.offload = "cpu_optimizer";
  question.precision = "bf16_mixed";
  for (const flatshard::Elements part : {0, 64}) {
    question.options.update_part = part;
    CHECK(plan_of(question).upload_slots == (part == 0 ? 0 : 4));
    for (const bool in_backward : {false, true}) {
      question.options.step_in_backward = in_backward;
      CHECK(plan_of(question).relay_slots == (part > 0 && in_backward ? 4 : 0));
    }
  }
  question.options.step_in_backward = false;
  question.precision = "fp32";
  question.offload = "none";
  CHECK(run_plan(question).text.find("host memory and NVMe: 0") != std::string::npos);
}

TEST_CASE("NVMe is listed apart") {
  PlanQuestion question;
  question.gpt = "2,16,30,8";
  question.world = 4;
  for (const char* offload : {"nvme_all", "nvme_optimizer", "nvme_params"}) {
    question.offload = offload;
    question.json = true;
    const flatshard::Plan plan = plan_of(question);
    const Value json = parse_json(run_plan(question).text, "plan");
    CHECK(plan.bytes(flatshard::Memory::Nvme) > 0);
    CHECK(number(json, "bytes", "nvme") == plan.bytes(flatshard::Memory::Nvme));
    CHECK(number(json, "nvme_roles", "optimizer state") +
              number(json, "device_roles", "optimizer state") ==
          plan.bytes(flatshard::Role::State));
    question.json = false;
    CHECK(run_plan(question).text.find("bytes per rank, NVMe") != std::string::npos);
  }
}

TEST_CASE("the estimate is its formula") {
  PlanQuestion question;
  question.gpt = "2,16,30,8";
  question.strategy = "full_shard";
  question.precision = "bf16_mixed";
  question.world = 4;
  question.options.max_micro_steps = 2;
  question.rates = {1e9, {}, 1e-3, 2e9, 3e12, 100};
  const flatshard::Plan plan = plan_of(question);
  double sent = 0, calls = 0;
  for (const flatshard::Traffic& entry : flatshard::traffic(plan, 2)) {
    sent += static_cast<double>(entry.bytes);
    calls += entry.calls;
  }
  Bytes slices = 0;  // fp32 gradient, master and two states; bf16 copy
  for (const flatshard::Flat& flat : plan.flats) slices += flat.partition.slice();
  const double parameters = 30 * 16 + 8 * 16 + 2 * 16 + 2 * (12 * 16 * 16 + 13 * 16);
  const Estimate found = estimate(plan, 2, question.rates);
  CHECK(*found.communication / (sent / 1e9 + calls * 1e-3) == doctest::Approx(1));
  CHECK(*found.compute / (6 * parameters * 100 * 2 / 3e12) == doctest::Approx(1));
  CHECK(*found.update / (static_cast<double>(slices) * (8 + 8 + 16 + 2) / 2e9) ==
        doctest::Approx(1));
  CHECK(*found.step_least / (std::max(*found.communication, *found.compute) + *found.update) ==
        doctest::Approx(1));
  CHECK(*found.step_most / (*found.communication + *found.compute + *found.update) ==
        doctest::Approx(1));
  CHECK_FALSE(estimate(plan, 2, {}).communication.has_value());
}

TEST_CASE("between replicas the other link counts") {
  PlanQuestion question;
  question.gpt = "2,16,30,8";
  question.strategy = "hybrid_shard";
  question.world = 4;
  question.options.shard_group = 2;
  const flatshard::Plan plan = plan_of(question);
  Rates rates;
  rates.link = 1e30;
  rates.replicas = 1e6;
  double between = 0;
  for (const flatshard::Traffic& entry : flatshard::traffic(plan, 1))
    if (entry.over == "replicas") between += static_cast<double>(entry.bytes);
  CHECK(between > 0);
  CHECK(*estimate(plan, 1, rates).communication / (between / 1e6) == doctest::Approx(1));
}

/// A JSON file of its own.
class ShapesFile {
 public:
  explicit ShapesFile(const std::string& text) { std::ofstream(path) << text; }
  ~ShapesFile() { std::filesystem::remove(path); }
  const std::string path =
      (std::filesystem::temp_directory_path() /
       ("flatshard-shapes-" + std::to_string(std::random_device{}()) + ".json"))
          .string();
};

TEST_CASE("shapes: a list, a map, entries; modules follow the names") {
  const ShapesFile list("[[3, 4], [4], []]");
  CHECK(model_of_shapes(list.path).parameters().size() == 3);
  CHECK(model_of_shapes(list.path).modules().size() == 1);
  const ShapesFile map(
      R"({"wte.weight": [7, 2], "h.0.w": [2, 2], "h.0.b": [2], "h.10.w": [2, 2], "ln.w": [2]})");
  const flatshard::Model model = model_of_shapes(map.path);
  REQUIRE(model.modules().size() == 3);
  CHECK(model.modules()[0].name.empty());
  CHECK(model.modules()[0].options.uses == 2);
  CHECK(model.modules()[1].name == "h.0");
  CHECK(model.modules()[2].name == "h.10");
  CHECK(model.find("h.0.b").index == 2);
  const ShapesFile entries(R"([{"name": "a", "shape": [2], "trainable": false}, {"shape": [3]}])");
  CHECK_FALSE(model_of_shapes(entries.path).parameters()[0].options.requires_grad);
  CHECK(model_of_shapes(entries.path).parameters()[1].numel() == 3);
  CHECK(module_of_name("model.layers.3.mlp.weight") == "model.layers.3");
  CHECK(module_of_name("3.weight").empty());
  CHECK(module_of_name("layer3.weight").empty());
}

TEST_CASE("what cannot be planned is named") {
  for (const char* text : {"1", "[[-1]]", "[[1.5]]", "[\"a\"]", R"([{"name": "a"}])",
                           R"([{"shape": [1], "size": 2}])"})
    CHECK_THROWS_AS(model_of_shapes(ShapesFile(text).path), RequestError);
  for (const char* text : {"", "1", "1,2", "1,2,3,4,5", "0,1,1", "1,2,x", "1,2,3,", "-1,2,3",
                           "100001,1,1", "1,2,99999999999"})
    CHECK_THROWS_AS(parse_gpt(text), RequestError);
  const auto refused = [](auto change) {
    PlanQuestion question;
    question.gpt = "1,8,8";
    change(question);
    CHECK_THROWS_AS(run_plan(question), RequestError);
  };
  refused([](PlanQuestion& q) { q.strategy = "zero"; });
  refused([](PlanQuestion& q) { q.precision = "int8"; });
  refused([](PlanQuestion& q) { q.optimizer = "lamb"; });
  refused([](PlanQuestion& q) { q.offload = "nvme"; });
  refused([](PlanQuestion& q) {
    q.precision = "fp16_mixed";
    q.options.step_in_backward = true;
  });
  refused([](PlanQuestion& q) { q.wrap = "size:0"; });
  refused([](PlanQuestion& q) { q.options.shard_group = 2; });
  refused([](PlanQuestion& q) { q.shapes = "x.json"; });
  refused([](PlanQuestion& q) { q.gpt.clear(); });
  refused([](PlanQuestion& q) { q.rates.compute = 1; });
  refused([](PlanQuestion& q) { q.rates.latency = 1; });
  PlanQuestion question;
  question.gpt = "1,8,8";
  question.strategy = "hybrid_shard";
  question.world = 8;
  question.options.shard_group = 3;
  CHECK_THROWS_AS(run_plan(question), flatshard::UsageError);
}

}  // namespace
}  // namespace flatshard_tool
