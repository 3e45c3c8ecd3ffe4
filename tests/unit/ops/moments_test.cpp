// Adam, AMSGrad, NAdam and RMSProp element by element: against wider arithmetic, against PyTorch
// and against what their options must mean.
#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "moments_reference.hpp"
#include "random.hpp"

namespace flatshard {
namespace {

using flatshard_test::Bounded;
using flatshard_test::BoundedElement;
using flatshard_test::part_of_bound;
using flatshard_test::Wide;

namespace torch_tables {
#include "../../reference/moment_tables.inc"
}  // namespace torch_tables

template <class Real>
struct Element {
  Real parameter;
  Real states[max_optimizer_states] = {};
};

template <class Functor, class Real>
void step(const Functor& functor, std::int64_t time, Real gradient, Element<Real>& element) {
  const auto coefficients = functor.template coefficients<Real>(time);
  Functor::update(coefficients, element.parameter, gradient, element.states);
}

/// Numbers of many sizes, some of them zero.
float any_number(std::mt19937_64& random) {
  if (random() % 16 == 0) return 0;
  const double mantissa = 1 + static_cast<double>(random() >> 12) * 0x1p-52;
  const double size = std::ldexp(mantissa, static_cast<int>(random() % 24) - 16);
  return static_cast<float>(random() % 2 == 0 ? size : -size);
}

/// True where the reference says something: its bound is below a thousandth of the value, or the
/// value is zero without error.
template <class Real>
bool is_telling(const Bounded& reference) {
  const Wide unit = Wide{std::numeric_limits<Real>::epsilon()} / 2;
  return reference.error * unit <= std::fabs(reference.value) / 1000;
}

/// How many of an element's values tell something and are within `bounds` bounds; fails where one
/// is not within.
template <class Functor, class Real>
int check_near(const Element<Real>& element, const BoundedElement& reference, double bounds = 1) {
  int telling = is_telling<Real>(reference.parameter) ? 1 : 0;
  REQUIRE(part_of_bound<Real>(element.parameter, reference.parameter) <= bounds);
  for (int k = 0; k < state_count<Functor>; ++k) {
    telling += is_telling<Real>(reference.states[k]) ? 1 : 0;
    CAPTURE(k);
    REQUIRE(part_of_bound<Real>(element.states[k], reference.states[k]) <= bounds);
  }
  return telling;
}

template <class Real, class Functor>
void check_against_wide(const Functor& functor) {
  CAPTURE(Functor::name);
  CAPTURE(functor.weight_decay);
  auto random = flatshard_test::generator();
  int telling = 0;
  for (int i = 0; i < 200; ++i) {
    const float start = any_number(random);
    const float scale = any_number(random);
    Element<Real> element{start, {}};
    BoundedElement reference{{start, 0}, {}};
    for (int time = 1; time <= 10; ++time) {
      const auto gradient = static_cast<Real>(any_number(random) * scale);
      step(functor, time, gradient, element);
      flatshard_test::bounded_step<Real>(functor, time, gradient, reference);
      CAPTURE(i);
      CAPTURE(time);
      telling += check_near<Functor>(element, reference);
    }
  }
  CHECK(telling > 200 * 10 * (1 + state_count<Functor>)*3 / 4);
}

TEST_CASE_TEMPLATE("moments against wider arithmetic", Real, float, double) {
  check_against_wide<Real>(AdamW{.lr = 0.1, .weight_decay = 0.5, .maximize = true});
  check_against_wide<Real>(Adam{});
  check_against_wide<Real>(Adam{.lr = 0.1, .beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.5});
  check_against_wide<Real>(Adam{.beta1 = 0, .beta2 = 0, .eps = 1e-3, .maximize = true});
  check_against_wide<Real>(AMSGrad{});
  check_against_wide<Real>(AMSGrad{.lr = 0.1, .beta2 = 0.5, .weight_decay = 0.5});
  check_against_wide<Real>(
      AMSGrad{.lr = 0.1, .weight_decay = 0.5, .decoupled_weight_decay = true, .maximize = true});
  check_against_wide<Real>(NAdam{});
  check_against_wide<Real>(NAdam{.lr = 0.1, .weight_decay = 0.5, .momentum_decay = 3.25});
  check_against_wide<Real>(
      NAdam{.lr = 0.1, .weight_decay = 0.5, .decoupled_weight_decay = true, .maximize = true});
  check_against_wide<Real>(RMSProp{});
  check_against_wide<Real>(RMSProp{.alpha = 0.5, .weight_decay = 0.5, .maximize = true});
  check_against_wide<Real>(RMSPropMomentum{.weight_decay = 0.1, .momentum = 0.9});
  check_against_wide<Real>(CenteredRMSProp{.alpha = 0.9, .eps = 1e-3});
  check_against_wide<Real>(CenteredRMSPropMomentum{.alpha = 0.9, .momentum = 0.5});
}

TEST_CASE("moments against PyTorch's single-tensor optimizers") {
  torch_tables::for_each_case([](const auto& functor, const auto& rows) {
    using Functor = std::remove_cvref_t<decltype(functor)>;
    CAPTURE(Functor::name);
    CAPTURE(functor.lr);
    constexpr std::size_t values = 1 + state_count<Functor>;
    int telling = 0;
    for (std::size_t i = 0; i < torch_tables::start.size(); ++i) {
      Element<float> element{torch_tables::start[i], {}};
      BoundedElement reference{{element.parameter, 0}, {}};
      for (int time = 1; time <= 10; ++time) {
        const float gradient = torch_tables::gradients[static_cast<std::size_t>(time - 1)][i];
        step(functor, time, gradient, element);
        flatshard_test::bounded_step<float>(functor, time, gradient, reference);
        if (time != 1 && time != 10) continue;
        const auto* row = &rows[time == 1 ? 0 : values];
        Element<float> of_torch{row[0][i], {}};
        for (std::size_t k = 0; k + 1 < values; ++k) of_torch.states[k] = row[1 + k][i];
        CAPTURE(i);
        CAPTURE(time);
        telling += check_near<Functor>(of_torch, reference, 2);  // it rounds a little more
        check_near<Functor>(element, reference);
      }
    }
    CHECK(telling > static_cast<int>(2 * torch_tables::start.size() * values) / 2);
  });
}

/// Bits after some updates with these gradients.
template <class Functor>
std::vector<float> trajectory(const Functor& functor, double sign) {
  auto random = flatshard_test::generator();
  std::vector<float> values;
  for (int i = 0; i < 50; ++i) {
    Element<float> element{any_number(random), {}};
    for (int time = 1; time <= 5; ++time)
      step(functor, time, static_cast<float>(sign * any_number(random)), element);
    values.push_back(element.parameter);
    values.insert(values.end(), element.states, element.states + max_optimizer_states);
  }
  return values;
}

template <class Functor>
void check_maximize(Functor functor) {
  CAPTURE(Functor::name);
  functor.maximize = true;
  const auto up = trajectory(functor, 1);
  functor.maximize = false;
  CHECK(up == trajectory(functor, -1));
  CHECK(up != trajectory(functor, 1));
}

TEST_CASE("to maximize is to minimize with the gradient negated, bit for bit") {
  check_maximize(AdamW{.weight_decay = 0.5});
  check_maximize(Adam{.weight_decay = 0.5});
  check_maximize(AMSGrad{.weight_decay = 0.5});
  check_maximize(NAdam{.weight_decay = 0.5});
  check_maximize(RMSProp{.weight_decay = 0.5});
  check_maximize(CenteredRMSPropMomentum{.weight_decay = 0.5, .momentum = 0.5});
}

TEST_CASE(
    "without weight decay Adam is AdamW, and AMSGrad with falling gradients divides by the first") {
  CHECK(trajectory(Adam{}, 1) == trajectory(AdamW{.weight_decay = 0}, 1));
  const AMSGrad amsgrad{.beta1 = 0, .beta2 = 0};
  Element<float> element{0, {}};
  step(amsgrad, 1, 8.0F, element);
  step(amsgrad, 2, 1.0F, element);
  CHECK(element.states[1] == 1);
  CHECK(element.states[2] == 64);
  CHECK(trajectory(AMSGrad{.weight_decay = 0.5}, 1) !=
        trajectory(AMSGrad{.weight_decay = 0.5, .decoupled_weight_decay = true}, 1));
}

TEST_CASE("RMSProp without its momentum is RMSProp; centred, it never takes a negative root") {
  const auto plain = trajectory(RMSProp{}, 1);
  const auto with = trajectory(RMSPropMomentum{.momentum = 0}, 1);
  for (std::size_t i = 0; i < plain.size(); i += 1 + max_optimizer_states) {
    CHECK(plain[i] == with[i]);
    CHECK(plain[i + 1] == with[i + 1]);
  }
  const CenteredRMSProp centered{.lr = 1, .alpha = 0.5, .eps = 1};
  const float mean = 1 + 0x1p-10F;  // its square is above the mean square, as rounding may leave it
  Element<float> element{0, {1, mean}};
  step(centered, 3, mean, element);
  CHECK(element.states[1] == mean);
  CHECK(element.parameter == -mean);
}

TEST_CASE("a NaN of the gradient reaches parameter and states") {
  const auto check = [](const auto& functor) {
    using Functor = std::remove_cvref_t<decltype(functor)>;
    CAPTURE(Functor::name);
    Element<float> element{1, {}};
    step(functor, 1, 1.0F, element);
    step(functor, 2, static_cast<float>(NAN), element);
    CHECK(std::isnan(element.parameter));
    for (int k = 0; k < state_count<Functor>; ++k) CHECK(std::isnan(element.states[k]));
  };
  check(Adam{});
  check(AMSGrad{});
  check(NAdam{});
  check(RMSProp{});
  check(CenteredRMSPropMomentum{});
}

TEST_CASE("NAdam: the momentum is what pow and a product of all updates give, at any time") {
  const NAdam cases[] = {{},
                         {.beta1 = 0.5, .momentum_decay = 0},
                         {.beta1 = 0.99999, .momentum_decay = 40},
                         {.beta1 = 0.999, .momentum_decay = 0.38},
                         {.momentum_decay = 1e9},
                         {.beta1 = 0.9999999, .momentum_decay = 2.5}};
  for (const NAdam& nadam : cases)
    for (const int time : {1, 2, 3, 10, 61, 100, 2500, 10000}) {
      CAPTURE(nadam.momentum_decay);
      CAPTURE(time);
      const auto mu = detail::nadam_momentum(nadam.beta1, nadam.momentum_decay, time);
      const auto near = [&](double value, Wide expected) {
        // Each of `time` factors is off by some roundings; 1 minus a product near 1 loses digits.
        return std::fabs(Wide{value} - expected) <= 8 * (time + 8) * 0x1p-53L;
      };
      CHECK(near(mu.now, flatshard_test::nadam_mu(nadam, time)));
      CHECK(near(mu.next, flatshard_test::nadam_mu(nadam, time + 1)));
      CHECK(near(mu.one_minus_product, 1 - flatshard_test::nadam_mu_product(nadam, time)));
      CHECK(near(mu.one_minus_next_product, 1 - flatshard_test::nadam_mu_product(nadam, time + 1)));
    }
}

TEST_CASE("NAdam: a huge time costs no more than others and is the limit without correction") {
  const NAdam nadam{.lr = 0.5};
  const auto coefficients = nadam.coefficients<float>(std::int64_t{1} << 40);
  CHECK(coefficients.momentum_step == static_cast<float>(0.5 * 0.9));
  CHECK(coefficients.gradient_step == static_cast<float>(0.5 * (1 - 0.9)));
  CHECK(coefficients.rsqrt_correction == 1.0F);
}

}  // namespace
}  // namespace flatshard
