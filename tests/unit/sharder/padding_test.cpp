// Padding is zero at all times, what is transient may hold anything between steps, and gradients
// that backward overwrites are not zeroed.
#include <doctest/doctest.h>

#include <cstring>

#include "spy_device.hpp"
#include "training.hpp"

using namespace sharder_test;

namespace {

/// Whether flat position `element` is past or between parameters.
bool is_padding(const Flat& flat, Elements element) {
  for (int slot = 0; slot < flat.layout.parameters(); ++slot) {
    const Range range = flat.layout.range(slot);
    if (element >= range.begin && element < range.end) return false;
  }
  return true;
}

/// Bytes of padding that are not zero in `count` elements from flat position `first` on.
int dirty_bytes(const Flat& flat, const std::byte* data, Elements first, Elements count,
                Bytes size) {
  int dirty = 0;
  for (Elements i = 0; i < count; ++i)
    for (Bytes byte = 0; byte < size && is_padding(flat, first + i); ++byte)
      dirty += data[i * size + byte] != std::byte{0};
  return dirty;
}

/// Over all blocks of flats in the arena.
int dirty_padding(const Plan& plan, const std::byte* arena, Rank rank) {
  int dirty = 0;
  for (const Block& block : plan.blocks) {
    DType dtype{};
    Elements parts = plan.shard_group;
    const bool of_flat = block.owner >= 0 && block.owner < static_cast<int>(plan.flats.size());
    if (!of_flat) continue;
    const Flat& flat = plan.flats[static_cast<std::size_t>(block.owner)];
    const bool boundary = plan.moment == ReduceMoment::Boundary;
    switch (block.role) {
      case Role::Master:
        dtype = flat.master;
        break;
      case Role::Compute:
        dtype = flat.compute;
        break;
      case Role::Whole:
        dtype = flat.compute, parts = 1;
        break;
      case Role::Secondary:
        dtype = flat.compute, parts = plan.secondary_group;
        break;
      case Role::State:
        dtype = flat.state;
        break;
      case Role::Gradient:
      case Role::Partial:
        dtype = flat.accumulate, parts = boundary ? 1 : parts;
        break;
      default:
        continue;
    }
    const Elements count = flat.partition.padded() / parts;
    REQUIRE(block.bytes == count * size_of(dtype));
    dirty += dirty_bytes(flat, arena + block.offset, rank % parts * count, count, size_of(dtype));
  }
  return dirty;
}

/// Padding around one parameter in a whole flat that a user's function sees.
int dirty_around(const Plan& plan, Parameter parameter, const Values& values) {
  const auto at = static_cast<std::size_t>(parameter.index);
  const Flat& flat = plan.flats[static_cast<std::size_t>(plan.flat_of_parameter[at])];
  const Bytes size = size_of(flat.compute);
  const std::byte* begin = values.data - flat.layout.start(plan.slot_of_parameter[at]) * size;
  return dirty_bytes(flat, begin, 0, flat.partition.padded(), size);
}

struct Spies {
  std::vector<SpyDevice*> devices;
  explicit Spies(Training& training) : devices(static_cast<std::size_t>(training.world)) {
    training.hooks.device = [this](const HostOptions& options, Rank rank) {
      auto device = std::make_unique<SpyDevice>(options);
      devices[static_cast<std::size_t>(rank)] = device.get();
      return device;
    };
  }
  SpyDevice& of(const Trainer& trainer) const {
    return *devices[static_cast<std::size_t>(trainer.rank())];
  }
};

/// Fills with NaN all blocks whose contents mean nothing between steps.
void poison(Trainer& trainer, std::byte* arena) {
  const Plan& plan = trainer.plan();
  for (const Block& block : plan.blocks) {
    bool transient = block.role == Role::GatherRing || block.role == Role::GradientRing ||
                     block.role == Role::GradientUnit || block.role == Role::Scratch ||
                     block.role == Role::Secondary || block.role == Role::Gradient ||
                     block.role == Role::Partial;
    if (block.role == Role::Whole)
      transient =
          plan.flats[static_cast<std::size_t>(block.owner)].whole == ParametersWhole::UntilBackward;
    if (transient) std::memset(arena + block.offset, 0xff, static_cast<std::size_t>(block.bytes));
  }
}

std::vector<ReduceMoment> moments_of(StrategyName strategy) {
  if (is_hybrid(strategy))
    return {ReduceMoment::Micro, ReduceMoment::Boundary, ReduceMoment::ReplicaBoundary};
  return {ReduceMoment::Micro, ReduceMoment::Boundary};
}

}  // namespace

TEST_CASE("padding stays zero in every block, in every strategy, precision and reduce moment") {
  for (const PrecisionName precision : all_precisions)
    for (const StrategyName strategy : all_strategies)
      for (const ReduceMoment moment : moments_of(strategy)) {
        Training training;
        training.strategy = strategy;
        training.precision = precision;
        training.world = 4;
        training.micro_steps = 3;
        training.options.accumulation = Accumulation::Tree;
        training.options.reduce_moment = moment;
        training.options.max_grad_norm = 1;
        training.options.persistence_threshold = 5;
        const Spies spies(training);
        std::atomic<int> dirty{0};
        training.hooks.after_step = [&](Trainer& trainer, Communicator& communicator, int) {
          trainer.engine().synchronize();
          communicator.synchronize();  // collectives may read this rank's memory until then
          dirty +=
              dirty_padding(trainer.plan(), spies.of(trainer).memory().arena(), trainer.rank());
        };
        train(training);
        CAPTURE(to_string(training));
        CHECK(dirty == 0);
      }
}

TEST_CASE("the check of padding sees a dirty byte") {
  Training training;
  const Spies spies(training);
  training.steps = 0;
  training.hooks.before_training = [&](Trainer& trainer, Communicator&) {
    std::byte* arena = spies.of(trainer).memory().arena();
    CHECK(dirty_padding(trainer.plan(), arena, 0) == 0);
    const Flat& flat = trainer.plan().flats[0];
    const Block* block = trainer.plan().block(Role::State, 0, 1);
    REQUIRE(block != nullptr);
    REQUIRE(flat.partition.padded() > flat.layout.total());
    arena[block->offset + block->bytes - 1] = std::byte{1};
    CHECK(dirty_padding(trainer.plan(), arena, 0) == 1);
  };
  train(training);
}

TEST_CASE("whole parameters and gradients have zeros between and after parameters") {
  for (const bool overwrites : {false, true})
    for (const StrategyName strategy : all_strategies)
      for (const int micro_steps : {1, 2}) {
        Training training;
        training.strategy = strategy;
        training.world = 2;
        training.micro_steps = micro_steps;
        training.model.backward_overwrites = overwrites;
        const Spies spies(training);
        training.hooks.before_step = [&](Trainer& trainer, Communicator&, int) {
          trainer.engine().synchronize();
          poison(trainer, spies.of(trainer).memory().arena());
        };
        std::atomic<int> dirty{0};
        training.hooks.micro_step = [&](Trainer& trainer, const TestModel& test, std::int64_t step,
                                        Elements micro_batch) {
          std::array<double, 8> activations{};
          for (int call = 0; call < 6; ++call)
            run_forward(trainer, test, {step, micro_batch, &activations, call});
          for (int call = 6; call-- > 0;) {
            const Module& module = test.calls[static_cast<std::size_t>(call)];
            trainer.backward(module, [&](const Views& views) {
              for (const Parameter parameter : test.parameters_of(module)) {
                if (views.weights(parameter).count == 0) continue;
                dirty += dirty_around(trainer.plan(), parameter, views.weights(parameter));
                if (parameter == test.frozen) continue;
                const bool first = call != 0 && call != 2;  // second uses
                dirty += dirty_around(trainer.plan(), parameter, views.gradients(parameter));
                const bool writes_all = overwrites && (call == 1 || call == 4);
                if (first && !writes_all)
                  for (Elements i = 0; i < views.gradients(parameter).count; ++i)
                    dirty += views.gradients(parameter).get(i) != 0;
                add_gradient({step, micro_batch, &activations, call}, views.weights(parameter),
                             views.gradients(parameter), parameter.index, nullptr, writes_all);
              }
            });
          }
        };
        CAPTURE(to_string(training));
        for (const StepReport& report : train(training).reports) CHECK(!report.skipped);
        CHECK(dirty == 0);
      }
}

TEST_CASE("what means nothing between steps may hold NaN: same bits") {
  for (const bool overwrites : {false, true})
    for (const StrategyName strategy : all_strategies)
      for (const ReduceMoment moment : moments_of(strategy))
        for (const int micro_steps : {1, 3}) {
          Training training;
          training.strategy = strategy;
          training.precision =
              micro_steps == 1 ? PrecisionName::Fp32 : PrecisionName::DeepSpeedBf16;
          training.world = 4;
          training.micro_steps = micro_steps;
          training.options.accumulation = Accumulation::Tree;
          training.options.reduce_moment = moment;
          const Trained plain = train(training);
          training.model.backward_overwrites = overwrites;
          const Spies spies(training);
          training.hooks.before_step = [&](Trainer& trainer, Communicator& communicator, int) {
            trainer.engine().synchronize();
            communicator.synchronize();
            poison(trainer, spies.of(trainer).memory().arena());
            communicator.synchronize();
          };
          CAPTURE(to_string(training));
          CHECK(train(training).hash() == plain.hash());
        }
}

TEST_CASE("a backward that overwrites its gradients saves zeroing them") {
  std::array<Bytes, 2> zeroed{};
  std::array<std::uint64_t, 2> hashes{};
  for (const bool overwrites : {false, true}) {
    Training training;
    training.strategy = StrategyName::FullShard;
    training.world = 2;
    training.model.backward_overwrites = overwrites;
    const Spies spies(training);
    training.hooks.before_step = [&](Trainer& trainer, Communicator&, int) {
      spies.of(trainer).reset();
    };
    training.hooks.after_step = [&](Trainer& trainer, Communicator& communicator, int) {
      trainer.engine().synchronize();
      if (communicator.rank() == 0) zeroed[overwrites] = spies.of(trainer).zeroed();
    };
    hashes[overwrites] = train(training).hash();
  }
  CHECK(hashes[0] == hashes[1]);
  const TestModel test;
  Bytes written = 0;  // elements of the two modules that promise
  for (const Parameter parameter :
       {test.weights[0], test.biases[0], test.scalar, test.weights[2], test.biases[2]})
    written += test.model.parameters()[static_cast<std::size_t>(parameter.index)].numel() * 4;
  written += 9 * 8;  // norm, in fp64
  CHECK(zeroed[0] - zeroed[1] == written);
}
