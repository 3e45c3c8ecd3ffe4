// Parameters outside steps: initial values, assignment, what a rank holds, summoning, buffers, and
// views that refuse what is not there.
#include <doctest/doctest.h>
#include <flatshard/core/error.hpp>
#include <flatshard/tensor/convert.hpp>

#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "random.hpp"
#include "training.hpp"

using namespace sharder_test;

namespace {

/// More ranks than elements, 0-dim, without elements (also all a module has), frozen, of four
/// dtypes.
struct OddModel {
  OddModel()
      : a(model.module("a")), b(model.module("b")), c(model.module("c")), d(model.module("d")) {
    parameters.push_back(a.add("weight", {7}));
    parameters.push_back(a.add("none", {0, 8}));
    parameters.push_back(a.add("scalar", {}));
    parameters.push_back(b.add("empty", {3, 0}));
    parameters.push_back(b.add("empty_double", {0}, {.dtype = DType::Float64}));
    parameters.push_back(c.add("one", {1}));
    parameters.push_back(c.add("frozen", {3}, {.requires_grad = false}));
    parameters.push_back(c.add("half", {5}, {.dtype = DType::Float16}));
    parameters.push_back(
        c.add("frozen_double", {2, 2}, {.requires_grad = false, .dtype = DType::Float64}));
    parameters.push_back(d.add("last", {0, 0, 0}));
    parameters.push_back(d.add("more", {61}, {.dtype = DType::BFloat16}));
    modules = {a, b, c, d};
    flags = a.add_buffer("flags", {4}, DType::Bool);
    table = c.add_buffer("table", {2, 3}, DType::Float32);
  }
  const ParameterSpec& spec(Parameter parameter) const {
    return model.parameters()[static_cast<std::size_t>(parameter.index)];
  }
  Module module_of(Parameter parameter) const {
    return modules[static_cast<std::size_t>(spec(parameter).module)];
  }
  Model model;
  Module a, b, c, d;
  std::vector<Module> modules;
  std::vector<Parameter> parameters;
  RegisteredBuffer flags, table;
};

void on_ranks(int world, const std::function<void(Communicator&)>& act) {
  ThreadWorld(world, {.patience = std::chrono::seconds(60)}).run(act);
}

/// Runs `act` for every strategy and several world sizes on an odd model.
void everywhere(PrecisionName precision,
                const std::function<void(Trainer&, const OddModel&, Communicator&)>& act) {
  for (const StrategyName strategy : all_strategies)
    for (const int world : {1, 2, 3, 8})
      for (const Elements persistence : {0, 4})
        on_ranks(world, [&](Communicator& communicator) {
          const OddModel odd;
          const auto trainer = make_trainer(strategy, precision, communicator, odd.model, AdamW{},
                                            {.persistence_threshold = persistence});
          act(*trainer, odd, communicator);
        });
}

/// Value of an element, representable in every dtype.
double value_of(Parameter parameter, Elements element) {
  return static_cast<double>(parameter.index * 8 + element % 8) * 0.25;
}

void assign_all(Trainer& trainer, const OddModel& odd, double offset = 0) {
  for (const Parameter parameter : odd.parameters) {
    std::vector<float> values;
    for (Elements i = 0; i < odd.spec(parameter).numel(); ++i)
      values.push_back(static_cast<float>(value_of(parameter, i) + offset));
    trainer.engine().assign(parameter.index, values.data(), DType::Float32);
  }
}

void check_values(const Values& values, Parameter parameter, double offset) {
  for (Elements i = 0; i < values.count; ++i)
    CHECK(values.get(i) == value_of(parameter, i) + offset);
}

/// What forward and summon_full see.
void check_all(Trainer& trainer, const OddModel& odd, double offset = 0) {
  for (const Parameter parameter : odd.parameters) {
    CAPTURE(odd.spec(parameter).name);
    const auto check = [&](const Views& views) {
      CHECK(views.weights(parameter).count == odd.spec(parameter).numel());
      check_values(views.weights(parameter), parameter, offset);
    };
    trainer.evaluate(odd.module_of(parameter), check);
    trainer.summon_full(odd.module_of(parameter), check);
  }
}

using Fp32 = Sharder<strategy::FullShard, precision::Full<float>, offload::None>;

/// The host's, that tells when a block is given back.
class WatchedMemory final : public MemoryResource {
 public:
  explicit WatchedMemory(std::function<void()> watch) : watch_(std::move(watch)) {}
  void* allocate(Bytes bytes) override { return host_.allocate(bytes); }
  void deallocate(void* pointer, Bytes bytes) noexcept override {
    watch_();
    host_.deallocate(pointer, bytes);
  }
  Bytes allocated() const override { return host_.allocated(); }
  Bytes high_water() const override { return host_.high_water(); }
  std::int64_t allocations() const override { return host_.allocations(); }

 private:
  HostMemory host_;
  std::function<void()> watch_;
};

}  // namespace

TEST_CASE("initial values are those of the canonical index, at every world size and strategy") {
  for (const PrecisionName precision : {PrecisionName::Fp64, PrecisionName::Fp32,
                                        PrecisionName::Bf16Mixed, PrecisionName::Bf16Stochastic})
    everywhere(precision, [&](Trainer& trainer, const OddModel& odd, Communicator&) {
      const init::uniform uniform{-1, 1, 42};
      trainer.initialize(uniform);
      for (const Parameter parameter : odd.parameters)
        trainer.summon_full(odd.module_of(parameter), [&](const Views& views) {
          const Values values = views.weights(parameter);
          std::byte storage[8];
          const Values expected{storage, values.dtype, 1};
          for (Elements i = 0; i < values.count; ++i) {
            expected.set(0, uniform.value(trainer.plan().canonical.start(parameter.index) + i));
            CHECK(values.get(i) == expected.get(0));
          }
        });
    });
}

TEST_CASE("assigned values are what forward and summon_full see, from every dtype") {
  everywhere(PrecisionName::Bf16Mixed, [](Trainer& trainer, const OddModel& odd, Communicator&) {
    trainer.initialize(init::normal{1, 1});
    assign_all(trainer, odd);
    check_all(trainer, odd);
    assign_all(trainer, odd, 1);  // again, after they have been gathered
    check_all(trainer, odd, 1);
  });
  on_ranks(3, [](Communicator& communicator) {
    const OddModel odd;
    Fp32 sharder(communicator, odd.model, AdamW{});
    const auto check = [&](auto sample) {
      using Element = decltype(sample);
      std::vector<Element> values;
      for (int i = 0; i < 7; ++i) values.push_back(convert<Element>(0.5F + static_cast<float>(i)));
      sharder.assign(odd.parameters[0], std::span<const Element>(values));
      sharder.summon_full(odd.a, [&](auto full) {
        for (Elements i = 0; i < 7; ++i)
          CHECK(full[odd.parameters[0]][i] == convert<float>(values[static_cast<std::size_t>(i)]));
      });
    };
    check(double{}), check(float{}), check(Bf16{}), check(Half{}), check(Float8E5M2{});
    const std::vector<std::int32_t> integers(7);
    CHECK(contains(message_of([&] {
                     sharder.assign(odd.parameters[0], std::span<const std::int32_t>(integers));
                   }),
                   "int32"));
    const std::vector<float> short_one(6);
    CHECK(contains(
        message_of([&] { sharder.assign(odd.parameters[0], std::span<const float>(short_one)); }),
        "'a.weight' has 7 elements, not 6"));
  });
}

TEST_CASE("values of one rank reach all ranks; the others need none") {
  for (const int world : {1, 3, 4})
    on_ranks(world, [&](Communicator& communicator) {
      const OddModel odd;
      Fp32 sharder(communicator, odd.model, AdamW{});
      const Rank root = world - 1;
      for (const Parameter parameter : odd.parameters) {
        std::vector<double> values;
        for (Elements i = 0; i < odd.spec(parameter).numel() && communicator.rank() == root; ++i)
          values.push_back(value_of(parameter, i));
        sharder.assign_from(root, parameter, std::span<const double>(values));
      }
      CHECK(sharder.engine().device().memory().allocated() == sharder.plan().arena_bytes);
      for (const Parameter parameter : {odd.parameters[0], odd.parameters[2], odd.parameters[5]})
        sharder.forward(odd.module_of(parameter), [&](auto weights) {
          for (Elements i = 0; i < weights[parameter].numel(); ++i)
            CHECK(static_cast<double>(weights[parameter][i]) == value_of(parameter, i));
        });
    });
  int heard = 0;
  std::mutex mutex;
  CHECK_THROWS_AS(on_ranks(2,
                           [&](Communicator& communicator) {
                             const OddModel odd;
                             try {  // the slower rank may hear of it while it is constructing
                               Fp32 sharder(communicator, odd.model, AdamW{});
                               sharder.assign_from(1, odd.parameters[0], std::span<const float>());
                             } catch (const Error& error) {
                               const std::lock_guard lock(mutex);
                               heard += contains(error.what(), "'a.weight' has 7 elements, not 0");
                               throw;
                             }
                           }),
                  CommunicationError);
  CHECK(heard == 2);
}

TEST_CASE("an assignment that is refused gives no memory back that a broadcast still writes") {
  std::atomic<bool> begun{false}, sent{false};
  on_ranks(2, [&](Communicator& communicator) {
    const OddModel odd;
    HostDevice device({.form = StreamForm::Threaded});
    WatchedMemory memory([&] {
      if (begun.load()) CHECK(sent.load());
    });
    Options options;
    options.device = &device;
    if (communicator.rank() == 0) options.memory = &memory;
    Fp32 sharder(communicator, odd.model, AdamW{}, options);
    const auto held = sharder.gather(odd.modules[0]);
    const std::vector<float> values(7);
    if (communicator.rank() == 0) {
      begun.store(true);
    } else {  // the sender is late
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      sent.store(true);
    }
    CHECK(contains(message_of([&] {
                     sharder.assign_from(1, odd.parameters[0], std::span<const float>(values));
                   }),
                   "is held"));
  });
}

TEST_CASE("a master keeps the bits that the compute dtype drops") {
  on_ranks(2, [](Communicator& communicator) {
    const OddModel odd;
    const auto trainer = make_trainer(StrategyName::FullShard, PrecisionName::Bf16Mixed,
                                      communicator, odd.model, AdamW{}, {});
    const std::vector<float> values(7, 1.0F + 0x1p-20F);
    trainer->engine().assign(odd.parameters[0].index, values.data(), DType::Float32);
    trainer->summon_full(odd.a, [&](const Views& views) {
      CHECK(views.weights(odd.parameters[0]).get(3) == 1 + 0x1p-20);
    });
    trainer->evaluate(
        odd.a, [&](const Views& views) { CHECK(views.weights(odd.parameters[0]).get(3) == 1); });
  });
}

TEST_CASE("each element has one owner in a group, and local() shows it") {
  for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed})
    for (const StrategyName strategy : all_strategies)
      for (const int world : {1, 3, 8}) {
        std::map<std::pair<int, Elements>, int> owners;
        std::mutex mutex;
        int replicas = 0;
        on_ranks(world, [&](Communicator& communicator) {
          const OddModel odd;
          const auto trainer =
              make_trainer(strategy, precision, communicator, odd.model, AdamW{}, {});
          assign_all(*trainer, odd);
          const std::lock_guard lock(mutex);
          replicas = trainer->plan().replicas;
          for (const Parameter parameter : odd.parameters) {
            const LocalShard local = trainer->engine().local(parameter.index);
            const bool trains = odd.spec(parameter).options.requires_grad;
            if (local.count > 0) CHECK((local.gradient != nullptr) == trains);
            if (local.count > 0) CHECK(local.states.size() == (trains ? 2 : 0));
            const Values master{local.master, trainer->engine().master_dtype(parameter.index),
                                local.count};
            for (Elements i = 0; i < local.count; ++i) {
              ++owners[{parameter.index, local.offset + i}];
              CHECK(master.get(i) == value_of(parameter, local.offset + i));
            }
          }
        });
        const OddModel odd;
        std::size_t elements = 0;
        for (const Parameter parameter : odd.parameters)
          elements += static_cast<std::size_t>(odd.spec(parameter).numel());
        CHECK(owners.size() == elements);
        for (const auto& [element, count] : owners) CHECK(count == replicas);
      }
}

TEST_CASE("summon_full with write_back sets parameters, without it does not") {
  for (const PrecisionName precision :
       {PrecisionName::Fp32, PrecisionName::Bf16Mixed, PrecisionName::Bf16Stochastic})
    everywhere(precision, [](Trainer& trainer, const OddModel& odd, Communicator&) {
      assign_all(trainer, odd);
      for (const bool write_back : {false, true}) {
        for (const Module& module : odd.modules)
          trainer.summon_full(
              module,
              [&](const Views& views) {
                for (const Parameter parameter : odd.parameters)
                  if (odd.module_of(parameter).index() == module.index()) {
                    const Values values = views.weights(parameter);
                    for (Elements i = 0; i < values.count; ++i) values.set(i, values.get(i) + 2);
                  }
              },
              write_back);
        check_all(trainer, odd, write_back ? 2 : 0);
      }
    });
}

TEST_CASE("summoned values may be changed between steps: training goes on from them") {
  std::optional<std::uint64_t> hash;
  for (const StrategyName strategy : all_strategies) {
    Training training;
    training.strategy = strategy;
    training.world = 4;
    training.hooks.before_step = [](Trainer& trainer, Communicator&, int step) {
      if (step != 1) return;
      const TestModel test;
      for (const Module& module : {test.embedding, test.blocks[2]})
        trainer.summon_full(
            module,
            [&](const Views& views) {
              for (const Parameter parameter : test.parameters_of(module)) {
                const Values values = views.weights(parameter);
                for (Elements i = 0; i < values.count; ++i) values.set(i, values.get(i) / 2);
              }
            },
            true);
    };
    const Trained trained = train(training);
    CHECK(trained.replicas_agree);
    if (!hash) hash = trained.hash();
    CHECK(trained.hash() == *hash);
  }
}

TEST_CASE("odd models train: every world size gives the same, and gradients have every shape") {
  std::map<PrecisionName, std::vector<double>> trained;
  for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed})
    everywhere(precision, [&](Trainer& trainer, const OddModel& odd, Communicator& communicator) {
      assign_all(trainer, odd);
      for (int step = 0; step < 3; ++step) {
        for (const Module& module : odd.modules) trainer.forward(module, [](const Views&) {});
        for (const Module& module : odd.modules)
          trainer.backward(module, [&](const Views& views) {
            for (const Parameter parameter : odd.parameters) {
              if (odd.module_of(parameter).index() != module.index()) continue;
              if (!odd.spec(parameter).options.requires_grad) continue;
              const Values gradient = views.gradients(parameter);
              CHECK(gradient.count == odd.spec(parameter).numel());
              for (Elements i = 0; i < gradient.count; ++i) {
                CHECK(gradient.get(i) == 0);  // arrives zeroed
                gradient.set(i, 0.5 + static_cast<double>(i));
              }
            }
          });
        CHECK(!trainer.step().wait().skipped);
      }
      std::vector<double> values;
      for (const Parameter parameter : odd.parameters)
        trainer.summon_full(odd.module_of(parameter), [&](const Views& views) {
          for (Elements i = 0; i < views.weights(parameter).count; ++i)
            values.push_back(views.weights(parameter).get(i));
        });
      static std::mutex mutex;
      const std::lock_guard lock(mutex);
      if (trained[precision].empty()) trained[precision] = values;
      CHECK(values == trained[precision]);
      (void)communicator;
    });
}

TEST_CASE("views have the declared shapes") {
  on_ranks(2, [](Communicator& communicator) {
    const OddModel odd;
    Fp32 sharder(communicator, odd.model, AdamW{});
    sharder.forward(odd.a, [&](auto weights) {
      CHECK(weights[odd.parameters[1]].shape().size() == 2);
      CHECK(weights[odd.parameters[1]].shape()[1] == 8);
      CHECK(weights[odd.parameters[1]].numel() == 0);
      CHECK(weights[odd.parameters[2]].shape().empty());
      CHECK(weights[odd.parameters[2]].numel() == 1);
    });
    sharder.forward(odd.b, [&](auto weights) {
      CHECK(weights[odd.parameters[3]].shape()[0] == 3);
      CHECK(weights[odd.parameters[3]].numel() == 0);
    });
  });
}

TEST_CASE("registered buffers start as zeros, belong to the user, and are typed") {
  on_ranks(2, [](Communicator& communicator) {
    const OddModel odd;
    Fp32 sharder(communicator, odd.model, AdamW{});
    const TensorRef<float> table = sharder.buffer<float>(odd.table);
    CHECK(table.shape()[1] == 3);
    for (Elements i = 0; i < 6; ++i) {
      CHECK(table[i] == 0);
      table[i] = static_cast<float>(communicator.rank() + i);
    }
    CHECK(sharder.buffer<bool>(odd.flags).numel() == 4);
    sharder.initialize(init::constant{1});
    sharder.step();
    sharder.synchronize();
    CHECK(sharder.buffer<float>(odd.table)[5] == static_cast<float>(communicator.rank() + 5));
    CHECK(contains(message_of([&] { (void)sharder.buffer<double>(odd.table); }),
                   "'c.table' is float32"));
  });
}

TEST_CASE("a parameter of another dtype is had through get, and the error says so") {
  on_ranks(2, [](Communicator& communicator) {
    const OddModel odd;
    const Parameter half = odd.parameters[7], one = odd.parameters[5], frozen = odd.parameters[6];
    Fp32 sharder(communicator, odd.model, AdamW{});
    sharder.backward(odd.c, [&](auto weights, auto gradients) {
      CHECK(weights.template get<Half>(half).numel() == 5);
      CHECK(gradients.template get<Half>(half).numel() == 5);
      CHECK(contains(message_of([&] { (void)weights[half]; }), "'c.half' is float16, not float32"));
      CHECK(contains(message_of([&] { (void)weights[half]; }), "get<Element>"));
      CHECK(contains(message_of([&] { (void)gradients[half]; }), "float16"));
      CHECK(contains(message_of([&] { (void)weights.template get<double>(one); }), "'c.one'"));
      CHECK(contains(message_of([&] { (void)gradients[frozen]; }), "frozen"));
    });
    sharder.discard_step();
  });
}

TEST_CASE("parameters of other modules, of other models, and outside calls are refused by name") {
  on_ranks(2, [](Communicator& communicator) {
    const OddModel odd;
    Fp32 sharder(communicator, odd.model, AdamW{});
    sharder.forward(odd.a, [&](auto weights) {
      const std::string message = message_of([&] { (void)weights[odd.parameters[5]]; });
      CHECK(contains(message, "'c.one'"));
      CHECK(contains(message, "'a'"));
      CHECK(contains(message, "unit 'c'"));
      CHECK(contains(message_of([&] { (void)weights[Parameter{}]; }), "-1"));
      CHECK(contains(message_of([&] { (void)weights[Parameter{99}]; }), "99"));
    });
    sharder.summon_full(odd.a, [&](auto full) {
      CHECK(contains(message_of([&] { (void)full[odd.parameters[5]]; }), "'c.one'"));
      CHECK_THROWS_AS((void)full[Parameter{99}], UsageError);
    });
    const std::vector<float> values(7);
    CHECK_THROWS_AS(sharder.assign(Parameter{}, std::span<const float>(values)), UsageError);
    CHECK_THROWS_AS(sharder.initialize(Parameter{99}, init::zeros{}), UsageError);
    CHECK_THROWS_AS((void)sharder.local(Parameter{99}), UsageError);
    CHECK_THROWS_AS((void)sharder.buffer<float>(RegisteredBuffer{}), UsageError);
    Model other = odd.model;
    const Module foreign = other.module("foreign");
    CHECK_THROWS_AS(sharder.forward(foreign, [](auto) {}), UsageError);
    CHECK_THROWS_AS((void)sharder.gather(foreign), UsageError);
    CHECK_THROWS_AS(sharder.summon_full(foreign, [](auto) {}), UsageError);
  });
}

TEST_CASE("gathered handles move, release early, and hold what they show") {
  on_ranks(2, [](Communicator& communicator) {
    const OddModel odd;
    Fp32 sharder(communicator, odd.model, SGD{});
    sharder.initialize(init::constant{3});
    auto first = sharder.gather(odd.a);
    CHECK(first[odd.parameters[0]][6] == 3);
    auto second = std::move(first);
    CHECK(second[odd.parameters[0]][6] == 3);
    first = sharder.gather(odd.c);
    CHECK(first[odd.parameters[5]][0] == 3);
    second = std::move(first);
    second.release();
    second.release();
    CHECK(sharder.step().wait().step == 1);  // nothing is held
  });
}

TEST_CASE("a model without parameters, and one without modules") {
  for (const StrategyName strategy : all_strategies)
    on_ranks(2, [&](Communicator& communicator) {
      Model model;
      const auto none =
          make_trainer(strategy, PrecisionName::Fp32, communicator, model, AdamW{}, {});
      CHECK(none->step().wait().step == 1);
      const Module bare = model.module("bare");
      const auto trainer =
          make_trainer(strategy, PrecisionName::Fp32, communicator, model, AdamW{}, {});
      trainer->initialize(init::zeros{});
      trainer->forward(bare, [](const Views&) {});
      trainer->backward(bare, [](const Views&) {});
      trainer->summon_full(bare, [](const Views&) {});
      CHECK(trainer->step().wait().step == 1);
    });
}
