// AdamW, SGD and Lion element by element: against wider references and against PyTorch.
#include <doctest/doctest.h>

#include <vector>

#include "optimizer_reference.hpp"
#include "random.hpp"

namespace flatshard {
namespace {

using flatshard_test::error_in_ulps;
using flatshard_test::ReferenceElement;

namespace torch_tables {
#include "../../reference/optimizer_tables.inc"
}

template <class Real>
struct Element {
  Real parameter;
  Real states[max_optimizer_states] = {};
};

template <class Functor, class Real>
void step(const Functor& functor, int time, Real gradient, Element<Real>& element) {
  const auto coefficients = functor.template coefficients<Real>(time);
  Functor::update(coefficients, element.parameter, gradient, element.states);
}

/// fp32: 4 ulp after the first step, 1e-6 later. fp64: 1 - beta2^t, formed in double, loses some
/// of its digits.
template <class Real>
double allowed_ulps(int time) {
  if (std::is_same_v<Real, double>) return time == 1 ? 4 : 1e-13 / 0x1p-52;
  return time == 1 ? 4 : 1e-6 / 0x1p-23;
}

template <class Functor, class Real>
void check_near(const Element<Real>& element, const ReferenceElement& reference, int time) {
  if (reference.uncertain) return;
  const auto& p = reference.parameter;
  REQUIRE(error_in_ulps(element.parameter, p.value, p.largest) <= allowed_ulps<Real>(time));
  for (std::size_t k = 0; k < state_count<Functor>; ++k) {
    const auto& state = reference.states[k];
    REQUIRE(error_in_ulps(element.states[k], state.value, state.largest) <=
            allowed_ulps<Real>(time));
  }
}

/// Numbers of many sizes, some of them zero.
template <class Random>
float any_number(Random& random) {
  if (random() % 16 == 0) return 0;
  const double mantissa = 1 + static_cast<double>(random() >> 12) * 0x1p-52;
  const double size = std::ldexp(mantissa, static_cast<int>(random() % 24) - 16);
  return static_cast<float>(random() % 2 == 0 ? size : -size);
}

template <class Real, class Functor>
void check_against_wide(const Functor& functor) {
  auto random = flatshard_test::generator();
  for (int i = 0; i < 500; ++i) {
    const float start = any_number(random);
    const float scale = any_number(random);
    Element<Real> element{start, {}};
    ReferenceElement reference(start);
    for (int time = 1; time <= 10; ++time) {
      const auto gradient = static_cast<Real>(any_number(random) * scale);
      step(functor, time, gradient, element);
      reference_step(functor, time, gradient, reference);
      CAPTURE(i);
      CAPTURE(time);
      check_near<Functor>(element, reference, time);
    }
  }
}

TEST_CASE_TEMPLATE("against wider references", Real, float, double) {
  check_against_wide<Real>(AdamW{});
  check_against_wide<Real>(AdamW{.lr = 0.1, .beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.5});
  check_against_wide<Real>(AdamW{.beta1 = 0, .beta2 = 0, .weight_decay = 0});
  check_against_wide<Real>(SGD{.lr = 0.1});
  check_against_wide<Real>(SGD{.lr = 0.1, .momentum = 0.9});
  check_against_wide<Real>(SGD{.lr = 0.1, .momentum = 0.9, .dampening = 0.5});
  check_against_wide<Real>(SGD{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .maximize = true});
  check_against_wide<Real>(SGD{.lr = 0.1, .momentum = 0.9, .nesterov = true});
  check_against_wide<Real>(SGD{.lr = 0.1, .dampening = 0.5});
  check_against_wide<Real>(Lion{});
  check_against_wide<Real>(Lion{.lr = 0.01, .beta1 = 0.5, .beta2 = 0.6, .weight_decay = 0.5});
  check_against_wide<Real>(Adagrad{});
  check_against_wide<Real>(Adagrad{.lr = 0.1, .lr_decay = 0.25, .eps = 1e-3});
}

template <class Functor>
void check_row(const Functor& functor, const std::vector<ReferenceElement>& references, int time,
               const std::vector<Element<float>>& elements, const torch_tables::Row* rows,
               std::size_t states) {
  for (std::size_t i = 0; i < elements.size(); ++i) {
    CAPTURE(Functor::name);
    CAPTURE(functor.lr);
    CAPTURE(time);
    CAPTURE(i);
    const auto& reference = references[i];
    const auto largest = reference.parameter.largest;
    REQUIRE(!reference.uncertain);
    CHECK(error_in_ulps(elements[i].parameter, rows[0][i], largest) <= allowed_ulps<float>(time));
    for (std::size_t k = 0; k < states; ++k)
      CHECK(error_in_ulps(elements[i].states[k], rows[1 + k][i], reference.states[k].largest) <=
            allowed_ulps<float>(time));
  }
}

TEST_CASE("against PyTorch's single-tensor optimizers") {
  torch_tables::for_each_case([](const auto& functor, const auto& rows) {
    std::vector<Element<float>> elements;
    std::vector<ReferenceElement> references;
    for (const float start : torch_tables::start) {
      elements.push_back({start, {}});
      references.emplace_back(start);
    }
    const std::size_t half = rows.size() / 2;
    for (int time = 1; time <= 10; ++time) {
      const auto& gradient = torch_tables::gradients[static_cast<std::size_t>(time - 1)];
      for (std::size_t i = 0; i < elements.size(); ++i) {
        step(functor, time, gradient[i], elements[i]);
        reference_step(functor, time, gradient[i], references[i]);
      }
      if (time == 1) check_row(functor, references, time, elements, &rows[0], half - 1);
      if (time == 10) check_row(functor, references, time, elements, &rows[half], half - 1);
    }
  });
}

TEST_CASE("SGD: the first update has no dampening and forgets what the buffer held") {
  const SGD sgd{.lr = 1, .momentum = 0.5, .dampening = 0.75};
  Element<float> element{0, {123}};
  step(sgd, 1, 8.0F, element);
  CHECK(element.states[0] == 8);
  CHECK(element.parameter == -8);
  step(sgd, 2, 8.0F, element);
  CHECK(element.states[0] == 6);  // 0.5 * 8 + 0.25 * 8
  CHECK(element.parameter == -14);
}

TEST_CASE("Lion: the sign of zero is zero, NaN stays NaN") {
  const Lion lion{.lr = 0.25};
  Element<float> element{1, {}};
  step(lion, 1, 0.0F, element);
  CHECK(element.parameter == 1);
  step(lion, 2, -5.0F, element);
  CHECK(element.parameter == 1.25F);
  step(lion, 3, NAN, element);
  CHECK(std::isnan(element.parameter));
}

TEST_CASE("Adagrad: weight decay joins the gradient, the learning rate falls with time") {
  const Adagrad adagrad{.lr = 1, .lr_decay = 0.5, .weight_decay = 0.25, .eps = 1};
  Element<double> element{4, {8}};
  step(adagrad, 3, 0.0, element);  // g = 1, sum = 9, lr = 1 / (1 + 2 * 0.5)
  CHECK(element.states[0] == 9);
  CHECK(element.parameter == 4 - 0.5 / 4);
}

TEST_CASE("AdamW: a huge time is the limit without bias correction") {
  const auto coefficients = AdamW{.lr = 0.5}.coefficients<float>(std::int64_t{1} << 40);
  CHECK(coefficients.step == 0.5F);
  CHECK(coefficients.rsqrt_correction == 1.0F);
}

}  // namespace
}  // namespace flatshard
