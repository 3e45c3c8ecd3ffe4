#include "model.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "naive_gpt.hpp"
#include "plain_parameters.hpp"
#include "random.hpp"

namespace {

using namespace train_gpt;
using flatshard::InstructionSet;
using flatshard::is_available;
using namespace train_gpt_test;

constexpr double nan_double = std::numeric_limits<double>::quiet_NaN();
constexpr float nan_float = std::numeric_limits<float>::quiet_NaN();
const ModelShape tiny{.layers = 2, .width = 12, .heads = 3, .context = 5, .vocabulary = 11};
const ModelShape untied{
    .layers = 1, .width = 8, .heads = 2, .context = 4, .vocabulary = 9, .untied_head = true};

template <class Compute>
bool same_bits(const Compute* a, const Compute* b, std::size_t count) {
  return std::memcmp(a, b, sizeof(Compute) * count) == 0;
}

void check_gradients(const ModelShape& shape, std::mt19937_64& random) {
  const std::int64_t sequences = 2;
  PlainParameters<double> parameters{shape, nan_double};
  fill_weights(parameters, random, [](double x) { return x; });
  const Batch batch = random_batch(shape, sequences, random);
  Model<double> model{shape, sequences};
  const auto run = [&] {
    return run_micro_step(parameters, model, batch.tokens.data(), batch.targets.data());
  };
  run();
  const std::vector<double> gradients(parameters.gradients(),
                                      parameters.gradients() + parameters.count());
  // Extrapolated to a vanishing step: a plain difference errs by step^2 times a third derivative
  // that has no bound over random weights.
  const auto difference = [&](double& weight, double step) {
    const double kept = weight;
    weight = kept + step;
    const double above = run();
    weight = kept - step;
    const double below = run();
    weight = kept;
    return (above - below) / (2 * step);
  };
  for (std::size_t tensor = 0; tensor < parameters.tensors(); ++tensor) {
    std::uniform_int_distribution<std::size_t> any{parameters.begin(tensor),
                                                   parameters.begin(tensor + 1) - 1};
    for (int sample = 0; sample < 12; ++sample) {
      const std::size_t i = any(random);
      double& weight = parameters.weights()[i];
      const double step = 2e-5;
      const double slope = (4 * difference(weight, step / 2) - difference(weight, step)) / 3;
      INFO(parameters.name(tensor), " element ", i - parameters.begin(tensor));
      CHECK(std::abs(slope - gradients[i]) < 1e-8);
    }
  }
}

}  // namespace

TEST_CASE("the forward pass computes the transformer's loss") {
  auto random = flatshard_test::generator(1);
  for (const ModelShape& shape : {tiny, untied}) {
    PlainParameters<double> parameters{shape, nan_double};
    fill_weights(parameters, random, [](double x) { return x; });
    const Batch batch = random_batch(shape, 3, random);
    Model<double> model{shape, 3};
    const double loss =
        run_micro_step(parameters, model, batch.tokens.data(), batch.targets.data());
    CHECK(loss == doctest::Approx(NaiveGpt{shape, parameters}.loss(batch)).epsilon(1e-12));
  }
}

TEST_CASE("gradients of every parameter agree with finite differences") {
  auto random = flatshard_test::generator(2);
  check_gradients(tiny, random);
  check_gradients(untied, random);
}

TEST_CASE("the loss scale multiplies every gradient") {
  auto random = flatshard_test::generator(3);
  PlainParameters<float> parameters{tiny, nan_float};
  fill_weights(parameters, random, [](double x) { return static_cast<float>(x); });
  const Batch batch = random_batch(tiny, 2, random);
  Model<float> model{tiny, 2};
  run_micro_step(parameters, model, batch.tokens.data(), batch.targets.data());
  std::vector<float> expected(parameters.gradients(), parameters.gradients() + parameters.count());
  for (float& x : expected) x *= 1024.0f;
  parameters.scale = 1024.0f;
  run_micro_step(parameters, model, batch.tokens.data(), batch.targets.data());
  CHECK(same_bits(parameters.gradients(), expected.data(), expected.size()));
}

TEST_CASE_TEMPLATE("bits depend neither on the instruction set nor on where things lie", Real,
                   float, double) {
  const ModelShape shape{.layers = 2, .width = 20, .heads = 2, .context = 19, .vocabulary = 37};
  const std::int64_t sequences = 3;
  const Real poison = std::numeric_limits<Real>::quiet_NaN();
  std::vector<Real> first;
  double first_loss = 0;
  for (const InstructionSet set :
       {InstructionSet::Baseline, InstructionSet::Avx2, InstructionSet::Avx512})
    for (const std::size_t shift : {0u, 1u, 5u}) {
      if (!is_available(set)) continue;
      auto random = flatshard_test::generator(4);
      PlainParameters<Real> parameters{shape, poison, shift};
      fill_weights(parameters, random, [](double x) { return static_cast<Real>(x); });
      const Batch batch = random_batch(shape, sequences, random);
      std::vector<std::int32_t> tokens(shift, 0), targets(shift, 0);
      tokens.insert(tokens.end(), batch.tokens.begin(), batch.tokens.end());
      targets.insert(targets.end(), batch.targets.begin(), batch.targets.end());
      Model<Real> model{shape, sequences, set};
      const double loss =
          run_micro_step(parameters, model, tokens.data() + shift, targets.data() + shift);
      if (first.empty()) {
        first.assign(parameters.gradients(), parameters.gradients() + parameters.count());
        first_loss = loss;
      }
      INFO("set ", kernels<Real>(set).name, " shift ", shift);
      CHECK(loss == first_loss);
      CHECK(same_bits(parameters.gradients(), first.data(), first.size()));
    }
}

TEST_CASE_TEMPLATE("16-bit weights: the fp32 model's gradients, rounded once", Compute,
                   flatshard::Bf16, flatshard::Half) {
  for (const ModelShape& shape : {tiny, untied}) {
    auto random = flatshard_test::generator(5);
    PlainParameters<Compute> narrow_ones{shape, Compute{0xffff}};
    fill_weights(narrow_ones, random,
                 [](double x) { return flatshard::convert<Compute>(static_cast<float>(x)); });
    PlainParameters<float> wide_ones{shape, nan_float};
    widen(wide_ones.weights(), narrow_ones.weights(), static_cast<std::int64_t>(wide_ones.count()));
    const Batch batch = random_batch(shape, 2, random);
    Model<Compute> narrow_model{shape, 2};
    Model<float> wide_model{shape, 2};
    const double loss =
        run_micro_step(narrow_ones, narrow_model, batch.tokens.data(), batch.targets.data());
    CHECK(loss == run_micro_step(wide_ones, wide_model, batch.tokens.data(), batch.targets.data()));
    std::vector<Compute> expected(wide_ones.count());
    narrow(expected.data(), wide_ones.gradients(), static_cast<std::int64_t>(expected.size()));
    CHECK(same_bits(narrow_ones.gradients(), expected.data(), expected.size()));
  }
}

TEST_CASE("parameters carry GPT-2's names and sizes") {
  const std::vector<ModuleSpec> modules = model_modules({.layers = 3});
  REQUIRE(modules.size() == 4);
  CHECK(modules[0].name.empty());
  CHECK(modules[0].parameters.size() == root_tensor_count - 1);
  CHECK(modules[3].name == "h.2");
  CHECK(modules[3].parameters.size() == block_tensor_count);
  CHECK(modules[3].parameters[static_cast<std::size_t>(BlockTensor::fc_proj_weight)].name ==
        "mlp.c_proj.weight");
  CHECK(modules[1].parameters[static_cast<std::size_t>(BlockTensor::proj_weight)].value ==
        doctest::Approx(0.02 / std::sqrt(6.0)));
  CHECK(parameter_count({}) == 834304);
  const std::vector<ModuleSpec> with_head = model_modules({.untied_head = true});
  REQUIRE(with_head[0].parameters.size() == root_tensor_count);
  CHECK(with_head[0].parameters[static_cast<std::size_t>(RootTensor::head)].name ==
        "lm_head.weight");
  CHECK(parameter_count({.untied_head = true}) == 834304 + 256 * 128);
}
