// Initial values and the decision about a step: the device against the host, bit for bit.
#include "kernels_gpu.hpp"

using namespace flatshard_test;

namespace {

void check_fill(const Initializer& initializer, DType dtype, Elements canonical, Elements count) {
  CAPTURE(initializer.index());
  CAPTURE(name_of(dtype));
  CAPTURE(canonical);
  CAPTURE(count);
  std::vector<std::byte> expected(static_cast<std::size_t>(count * size_of(dtype)));
  fill(initializer, dtype, expected.data(), canonical, count);
  OnGpu memory(dtype, count, 1);
  run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
    kernels.fill(initializer, dtype, memory.data(), canonical, count, stream);
  });
  CHECK(equals(memory, expected, dtype));
}

/// What a step is decided from, in the memory of one side.
struct Decision {
  StepControl control;
  double measure;
  double largest;
  double divisor;
  std::vector<std::int64_t> times;
  std::vector<std::int64_t> takes_part;
  StepReport report;
};

template <class Random>
Decision random_decision(Random& random, const LossScaler& scaler, int flats) {
  const double measures[] = {0, 1e-300, 0.25, 1, 3e4, 1e300, INFINITY, NAN};
  const double divisors[] = {1, 3, 8, 0, -1, NAN};
  Decision decision{make_step_control(scaler),
                    measures[random() % 8],
                    measures[random() % 8],
                    divisors[random() % 6 * (random() % 2)],
                    {},
                    {},
                    {}};
  for (int k = 0; k < flats; ++k) {
    decision.times.push_back(static_cast<std::int64_t>(random() % 100));
    decision.takes_part.push_back(static_cast<std::int64_t>(random() % 2));
  }
  return decision;
}

bool is_same(const StepControl& a, const StepControl& b) {
  const auto word = [](double x) { return x != x ? 1U : bit_cast<std::uint64_t>(x); };
  return a.scalars.apply == b.scalars.apply &&
         word(a.scalars.coefficient) == word(b.scalars.coefficient) && a.scaler == b.scaler &&
         a.loss_scale == b.loss_scale && a.steps == b.steps && a.report.step == b.report.step &&
         a.report.skipped == b.report.skipped && a.report.error == b.report.error &&
         word(a.report.grad_norm) == word(b.report.grad_norm) &&
         word(a.report.clip_coefficient) == word(b.report.clip_coefficient) &&
         word(a.report.scale_used) == word(b.report.scale_used) &&
         word(a.report.scale_next) == word(b.report.scale_next);
}

template <class Value>
std::vector<std::byte> bytes_of_one(const Value& value) {
  return bytes_of(std::vector<Value>{value});
}
template <class Value>
Value value_of(OnGpu& memory) {
  Value value;
  std::memcpy(&value, memory.elements().data(), sizeof value);
  return value;
}

struct Pointers {
  bool largest, device_divisor, takes_part;
};

void check_conclude(const LossScaler& scaler, const StepSettings& settings, int flats,
                    const Pointers& given, std::mt19937_64& random) {
  CAPTURE(flats);
  Decision host_side = random_decision(random, scaler, flats);
  OnGpu control(DType::UInt8, sizeof(StepControl)), report(DType::UInt8, sizeof(StepReport));
  OnGpu times(DType::Int64, bytes_of(host_side.times));
  OnGpu takes_part(DType::Int64, bytes_of(host_side.takes_part));
  OnGpu numbers(DType::Float64, bytes_of(std::vector<double>{host_side.measure, host_side.largest,
                                                             host_side.divisor}));
  run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
    kernels.start_control(*control.as<StepControl>(), scaler, stream);
  });
  for (int step = 0; step < 3; ++step) {
    const auto* number = numbers.as<const double>();
    const ConcludeArguments on_gpu{control.as<StepControl>(),
                                   settings,
                                   number,
                                   given.largest ? number + 1 : nullptr,
                                   2.0,
                                   given.device_divisor ? number + 2 : nullptr,
                                   times.as<std::int64_t>(),
                                   given.takes_part ? takes_part.as<std::int64_t>() : nullptr,
                                   flats,
                                   report.as<StepReport>()};
    ConcludeArguments on_host = on_gpu;
    on_host.control = &host_side.control;
    on_host.measure = &host_side.measure;
    on_host.largest = given.largest ? &host_side.largest : nullptr;
    on_host.device_divisor = given.device_divisor ? &host_side.divisor : nullptr;
    on_host.times = host_side.times.data();
    on_host.takes_part = given.takes_part ? host_side.takes_part.data() : nullptr;
    on_host.report = &host_side.report;
    conclude(on_host);
    run_on_gpu(
        [&](const KernelTable& kernels, StreamRef stream) { kernels.conclude(on_gpu, stream); });
    StepControl left = value_of<StepControl>(control);
    CHECK(is_same(left, host_side.control));
    left.report = value_of<StepReport>(report);
    CHECK(is_same(left, host_side.control));
    CHECK(equals(times, bytes_of(host_side.times), DType::Int64));
  }
  CHECK(control.guards_hold());
  CHECK(report.guards_hold());
}

}  // namespace

TEST_CASE("fill: every initializer and dtype, across canonical index 2^32") {
  const Initializer initializers[] = {init::normal{0.02, seed()}, init::uniform{-0.1, 0.3, seed()},
                                      init::constant{-1.0 / 3}, init::zeros{}};
  for (const Initializer& initializer : initializers)
    for (DType dtype : floating) {
      for (Elements count : {0, 1, 7, 1025}) check_fill(initializer, dtype, 32, count);
      check_fill(initializer, dtype, (Elements{1} << 32) - 40000, 100003);
    }
}

TEST_CASE("conclude: every rule, norm and answer to what is not finite") {
  auto random = generator();
  const LossScaler scalers[] = {LossScaler::constant(1), LossScaler::torch(65536, 2, 0.5, 2),
                                LossScaler::deepspeed(4, 2, 2, 1)};
  for (const LossScaler& scaler : scalers)
    for (NormKind norm : {NormKind::Two, NormKind::Infinity})
      for (OnNonFinite answer : {OnNonFinite::Error, OnNonFinite::Skip, OnNonFinite::Apply})
        for (int flats : {0, 1, 37, 600}) {
          const bool scales = scaler.settings.rule != ScaleRule::Constant;
          const StepSettings settings{random() % 2 == 0 ? 0.0 : 0.5, norm, answer, scales};
          const Pointers given{random() % 2 == 0, random() % 2 == 0, random() % 2 == 0};
          for (int trial = 0; trial < 4; ++trial)
            check_conclude(scaler, settings, flats, given, random);
        }
}

TEST_CASE("conclude: without a measure the gradients count as zero") {
  StepControl expected = make_step_control(LossScaler::constant(1));
  OnGpu control(DType::UInt8, bytes_of_one(expected));
  ConcludeArguments arguments{};
  arguments.settings.max_grad_norm = 1;
  arguments.divisor = 4;
  arguments.control = &expected;
  conclude(arguments);
  arguments.control = control.as<StepControl>();
  run_on_gpu(
      [&](const KernelTable& kernels, StreamRef stream) { kernels.conclude(arguments, stream); });
  CHECK(is_same(value_of<StepControl>(control), expected));
}
