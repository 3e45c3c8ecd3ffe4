#include <flatshard/ops/adam.hpp>
#include <flatshard/ops/adamw.hpp>
#include <flatshard/ops/lion.hpp>
#include <flatshard/ops/step_rows.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "random.hpp"

namespace flatshard {
namespace {

struct ThisTest;

constexpr std::int64_t update = 7;  // a time

/// Elements of one range and the arguments that point to them.
template <class Types>
struct Range {
  std::vector<typename Types::Master> master;
  std::vector<typename Types::Gradient> gradient;
  std::vector<typename Types::State> states[2];
  std::vector<std::conditional_t<Types::writes_copy, typename Types::Copy, char>> copy;
  StepScalars scalars{0.3, 1};
  std::int64_t time = update;

  Range(std::uint64_t stream, std::size_t count) {
    auto random = flatshard_test::generator(stream);
    const auto number = [&] {
      return static_cast<double>(static_cast<std::int64_t>(random())) * 0x1p-63;
    };
    for (std::size_t i = 0; i < count; ++i) {
      master.push_back(convert<typename Types::Master>(number()));
      gradient.push_back(convert<typename Types::Gradient>(number()));
      states[0].push_back(convert<typename Types::State>(number()));
      states[1].push_back(convert<typename Types::State>(std::fabs(number())));
    }
    copy.resize(count);
  }

  /// Runs elements [first, first + count) as one range; the range begins at `canonical`.
  template <class Functor>
  void run(const Functor& functor, Elements canonical, std::size_t first, std::size_t count) {
    StepArguments arguments{};
    arguments.master = master.data() + first;
    arguments.gradient = gradient.data() + first;
    arguments.states[0] = states[0].data() + first;
    if constexpr (state_count<Functor> == 2) arguments.states[1] = states[1].data() + first;
    if constexpr (Types::writes_copy) arguments.copy = copy.data() + first;
    arguments.count = static_cast<Elements>(count);
    arguments.canonical = canonical + static_cast<Elements>(first);
    arguments.scalars = &scalars;
    arguments.time = &time;
    arguments.seed = 99;
    arguments.row = Types::row();
    std::memcpy(arguments.functor.data(), &functor, sizeof(functor));
    step_range<ThisTest, Functor, Types>(arguments);
  }
  friend bool operator==(const Range& a, const Range& b) {
    return a.master == b.master && a.states[0] == b.states[0] && a.states[1] == b.states[1] &&
           a.copy == b.copy;
  }
};

/// What must be stored for `value`, element by element from the definitions.
template <class Stored, class Types, class Real>
Stored stored(Real value, std::uint32_t role, Elements canonical) {
  if constexpr (Types::stochastic && std::is_same_v<Stored, Bf16>)
    return stochastic_bf16(value,
                           random_word(99, update, role, static_cast<std::uint64_t>(canonical)));
  else
    return convert<Stored>(value);
}

template <class Types, class Functor>
void step_by_definition(const Functor& functor, Elements canonical, Range<Types>& range) {
  using Real = typename Types::Real;
  const auto coefficients = functor.template coefficients<Real>(update);
  for (std::size_t i = 0; i < range.master.size(); ++i) {
    const Elements index = canonical + static_cast<Elements>(i);
    auto parameter = convert<Real>(range.master[i]);
    Real states[] = {convert<Real>(range.states[0][i]), convert<Real>(range.states[1][i])};
    const Real gradient = convert<Real>(range.gradient[i]) * static_cast<Real>(0.3);
    Functor::update(coefficients, parameter, gradient, states);
    range.master[i] = stored<typename Types::Master, Types>(parameter, 0, index);
    for (std::uint32_t k = 0; k < state_count<Functor>; ++k)
      range.states[k][i] = stored<typename Types::State, Types>(states[k], 1 + k, index);
    if constexpr (Types::writes_copy) range.copy[i] = convert<typename Types::Copy>(parameter);
  }
}

template <class Types, class Functor>
void check_definition(const Functor& functor) {
  for (const Elements canonical : {Elements{0}, (Elements{1} << 32) - 60, Elements{1} << 40}) {
    for (const std::size_t count : {0U, 1U, 7U, 131U}) {
      Range<Types> range(count, count);
      Range<Types> expected(count, count);
      range.run(functor, canonical, 0, count);
      step_by_definition(functor, canonical, expected);
      CAPTURE(canonical);
      CAPTURE(count);
      REQUIRE(range == expected);
    }
  }
}

template <class... Types>
void check_rows(StepRowList<Types...>) {
  (check_definition<Types>(AdamW{.lr = 0.1}), ...);
  (check_definition<Types>(Lion{.lr = 0.1}), ...);
}

TEST_CASE("every row does what its functor, conversions and random words say") {
  check_rows(HostStepRows{});
}

using Stochastic = StepTypes<Bf16, float, Bf16, NoCopy, true>;

TEST_CASE_TEMPLATE("a range may be cut anywhere", Types, Stochastic,
                   StepTypes<float, float, float, Half>) {
  constexpr Elements canonical = (Elements{1} << 32) - 50;
  Range<Types> whole(1, 100);
  whole.run(AdamW{.lr = 0.1}, canonical, 0, 100);
  for (std::size_t first = 0; first <= 100; ++first) {
    Range<Types> parts(1, 100);
    parts.run(AdamW{.lr = 0.1}, canonical, first, 100 - first);
    parts.run(AdamW{.lr = 0.1}, canonical, 0, first);
    REQUIRE(parts == whole);
  }
}

TEST_CASE("a skipped step changes nothing") {
  Range<StepTypes<float, float, float, Bf16>> range(2, 33);
  const auto before = range;
  range.scalars = {NAN, 0};
  range.run(AdamW{}, 0, 0, 33);
  CHECK(range == before);
}

TEST_CASE("stochastic rounding changes with the time of the update") {
  Range<Stochastic> first(3, 100);
  Range<Stochastic> second(3, 100);
  second.time = first.time + 1;
  first.run(Lion{.lr = 1e-3}, 0, 0, 100);
  second.run(Lion{.lr = 1e-3}, 0, 0, 100);
  CHECK(first.master != second.master);
}

TEST_CASE("small updates survive stochastic rounding on average") {
  constexpr std::size_t count = 1 << 14;
  using Types = StepTypes<Bf16, float, float, NoCopy, true>;
  Range<Types> range(4, count);
  range.master.assign(count, convert<Bf16>(1.0F));
  range.gradient.assign(count, -1.0F);
  range.states[0].assign(count, 0.0F);
  const double lr = 0x1p-12;  // 1/32 of the spacing above 1
  range.run(Lion{.lr = lr}, 0, 0, count);
  double sum = 0;
  for (const Bf16 p : range.master) sum += to_double(p) - 1;
  CHECK(sum / count == doctest::Approx(lr).epsilon(0.3));  // six standard deviations: 0.26
}

/// Mean of the second moments, 1 at first, after some updates of Adam without gradients.
template <class Types>
double mean_second_moment(int updates) {
  constexpr std::size_t count = 4096;
  Range<Types> range(5, count);
  range.master.assign(count, convert<Bf16>(0.0F));
  range.gradient.assign(count, convert<typename Types::Gradient>(0.0F));
  range.states[0].assign(count, convert<Bf16>(0.0F));
  range.states[1].assign(count, convert<Bf16>(1.0F));
  for (range.time = 1; range.time <= updates; ++range.time) range.run(Adam{}, 0, 0, count);
  double sum = 0;
  for (const Bf16 v : range.states[1]) sum += to_double(v);
  return sum / count;
}

TEST_CASE("a bf16 second moment decays under stochastic rounding; to nearest it never would") {
  constexpr int updates = 600;
  CHECK(mean_second_moment<StepTypes<Bf16, float, Bf16>>(updates) == 1);
  // Unbiased. A rounding between 0.5 and 1 has at most half a spacing of 2^-8 as standard
  // deviation, so that the mean has at most 2^-9 sqrt(600 / 4096) = 7.5e-4: six of it.
  const double mean = mean_second_moment<Stochastic>(updates);
  CHECK(std::fabs(mean - std::pow(0.999, updates)) <= 4.5e-3);
}

TEST_CASE("rows name their types") {
  const StepRow row = StepTypes<Bf16, float, Bf16, NoCopy, true>::row();
  CHECK(row ==
        StepRow{DType::BFloat16, DType::Float32, DType::BFloat16, DType::BFloat16, false, true});
  const StepRow with_copy = StepTypes<float, float, float, Half>::row();
  CHECK(with_copy ==
        StepRow{DType::Float32, DType::Float32, DType::Float32, DType::Float16, true, false});
  const HostStep step = find_host_step<ThisTest, AdamW>(row);
  const HostStep step_with_copy = find_host_step<ThisTest, AdamW>(with_copy);
  CHECK(bool(step != nullptr));
  CHECK(bool(step != step_with_copy));
  StepRow unknown = row;
  unknown.master = DType::Float8E4M3;
  CHECK(bool(find_host_step<ThisTest, AdamW>(unknown) == nullptr));
}

}  // namespace
}  // namespace flatshard
