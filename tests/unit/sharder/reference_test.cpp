// The same training by plain loops on one rank: once with the design's arithmetic written out, bit
// for bit, once as the textbook has it, in double.
#include <doctest/doctest.h>
#include <flatshard/tensor/convert.hpp>

#include <bit>
#include <cmath>
#include <cstring>

#include "training.hpp"

using namespace sharder_test;

namespace {

double rounded(double value, DType dtype) {
  std::byte storage[8];
  const Values element{storage, dtype, 1};
  element.set(0, value);
  return element.get(0);
}

/// Storage dtypes of one parameter.
struct Roles {
  DType master, compute, reduce, accumulate, state;
  bool stochastic;
};

Roles roles_of(PrecisionName precision, bool is_double) {
  constexpr DType d = DType::Float64, f = DType::Float32, b = DType::BFloat16, h = DType::Float16;
  if (is_double) return {d, d, d, d, d, false};
  switch (precision) {
    case PrecisionName::Fp64:
      return {d, d, d, d, d, false};
    case PrecisionName::Fp32:
      return {f, f, f, f, f, false};
    case PrecisionName::Bf16:
      return {b, b, b, b, b, false};
    case PrecisionName::Fp16:
      return {h, h, h, h, h, false};
    case PrecisionName::Bf16Wide:
      return {b, b, b, f, f, false};
    case PrecisionName::Bf16Mixed:
      return {f, b, f, f, f, false};
    case PrecisionName::DeepSpeedBf16:
      return {f, b, b, f, f, false};
    case PrecisionName::Bf16Stochastic:
      return {b, b, f, f, f, true};
    case PrecisionName::Bf16StochasticState:
      return {b, b, f, f, b, true};
    default:
      return {f, h, h, f, f, false};
  }
}

double sum(double left, double right, bool wide) {
  return wide ? left + right
              : static_cast<double>(static_cast<float>(left) + static_cast<float>(right));
}

/// T(1) = leaf; T(n) = T(first k) + T(rest), k the largest power of two below n.
double tree(const double* leaves, std::size_t count, bool wide) {
  if (count == 1) return leaves[0];
  std::size_t half = 1;
  while (half * 2 < count) half *= 2;
  return sum(tree(leaves, half, wide), tree(leaves + half, count - half, wide), wide);
}

double perfect_tree(const std::vector<double>& squares, std::size_t begin, std::size_t size) {
  if (size == 1) return begin < squares.size() ? squares[begin] : 0;
  return perfect_tree(squares, begin, size / 2) + perfect_tree(squares, begin + size / 2, size / 2);
}

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// For indices below 2^32.
std::uint32_t word(std::uint64_t seed, std::uint64_t step, std::uint64_t role,
                   std::uint32_t index) {
  const std::uint64_t key = mix(mix(mix(seed) ^ step) ^ (role << 32));
  std::uint32_t x = index ^ static_cast<std::uint32_t>(key);
  x ^= x >> 17, x *= 0xed5ad4bbU, x ^= x >> 11;
  x += static_cast<std::uint32_t>(key >> 32);
  x *= 0xac4c1b51U, x ^= x >> 15, x *= 0x31848babU;
  return x ^ (x >> 14);
}

double stochastic(double value, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  const std::uint32_t kept = (bits + (random >> 16)) >> 16;
  return static_cast<double>(std::bit_cast<float>(kept << 16));
}

/// 1 - base^t: base^(t - 1) by squaring, the last product fused.
double correction(double base, int t) {
  REQUIRE((t >= 1 && t <= 3));
  const double power = t == 1 ? 1.0 : t == 2 ? base : base * base;
  return std::fma(-power, base, 1.0);
}

template <class Real>
void adamw(const AdamW& with, double coefficient, int t, double& parameter, double gradient,
           double& m_stored, double& v_stored) {
  const auto real = [](double x) { return static_cast<Real>(x); };
  const Real c1 = real(1.0 - with.beta1), c2 = real(1.0 - with.beta2);
  const Real step = real(with.lr / correction(with.beta1, t));
  const Real rbc2 = real(1.0 / std::sqrt(correction(with.beta2, t)));
  const Real g = real(gradient) * real(coefficient);
  const Real g2 = g * g;
  const Real m = std::fma(real(with.beta1), real(m_stored), c1 * g);
  const Real v = std::fma(real(with.beta2), real(v_stored), c2 * g2);
  const Real d = std::fma(std::sqrt(v), rbc2, real(with.eps));
  Real p = real(parameter);
  p = std::fma(-real(with.lr * with.weight_decay), p, p);
  p = std::fma(-step, m / d, p);
  parameter = static_cast<double>(p);
  m_stored = static_cast<double>(m);
  v_stored = static_cast<double>(v);
}

/// The training by itself. `Exact` is the design's arithmetic; otherwise everything is double and
/// written as in a textbook.
class Reference {
 public:
  Reference(PrecisionName precision, bool exact, double scale = 1)
      : precision_(precision), exact_(exact), scale_(scale) {
    std::size_t start = 0;
    for (std::size_t p = 0; p < specs().size(); ++p) {
      const auto count = static_cast<std::size_t>(specs()[p].numel());
      starts_.push_back(start);
      masters.emplace_back(count);
      first.emplace_back(count);
      second.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i)
        masters[p][i] = rounded(init::normal{0.5, 1}.value(static_cast<Elements>(start + i)),
                                trains(p) ? roles(p).master : roles(p).compute);
      start = (start + count + 31) / 32 * 32;
    }
  }

  void step(int t, int micro_batches, double max_norm) {
    std::vector<std::vector<double>> leaves;  // per parameter: element-major
    for (const auto& master : masters)
      leaves.emplace_back(master.size() * static_cast<std::size_t>(micro_batches));
    for (int batch = 0; batch < micro_batches; ++batch)
      add_leaves(t - 1, batch, micro_batches, leaves);
    std::vector<std::vector<double>> sums;
    for (std::size_t p = 0; p < masters.size(); ++p) {
      sums.emplace_back(masters[p].size());
      for (std::size_t i = 0; i < masters[p].size(); ++i)
        sums[p][i] = total(p, &leaves[p][i * static_cast<std::size_t>(micro_batches)],
                           static_cast<std::size_t>(micro_batches));
    }
    norm = std::sqrt(square_sum(sums)) / (micro_batches * scale_);
    const double clip = std::min(1.0, max_norm / (norm + 1e-6));
    const double coefficient = clip / (micro_batches * scale_);
    for (std::size_t p = 0; p < masters.size(); ++p)
      for (std::size_t i = 0; trains(p) && i < masters[p].size(); ++i)
        update(p, i, t, sums[p][i], coefficient);
  }

  /// Sums of micro-steps are added as they come, instead of by the tree.
  void run(int micro_steps, ReduceMoment moment) {
    micro_steps_ = micro_steps;
    moment_ = moment;
  }

  std::vector<std::vector<double>> masters, first, second;
  double norm = 0;

  Roles roles(std::size_t p) const {
    return roles_of(precision_, static_cast<int>(p) == test_.norm.index);
  }
  bool trains(std::size_t p) const { return static_cast<int>(p) != test_.frozen.index; }

 private:
  const std::vector<ParameterSpec>& specs() const { return test_.model.parameters(); }
  double stored(double value, DType dtype) const { return exact_ ? rounded(value, dtype) : value; }

  void add_leaves(int step, int batch, int batches,
                  std::vector<std::vector<double>>& leaves) const {
    const std::vector<Module>& calls = test_.calls;
    for (std::size_t call = calls.size(); call-- > 0;) {
      const std::vector<Parameter>& used = test_.parameters_of(calls[call]);
      double activation = 0;
      for (const Parameter parameter : used)
        for (const double master : masters[static_cast<std::size_t>(parameter.index)])
          activation = activation / 2 + weight(parameter, master);
      for (const Parameter parameter : used) {
        const auto p = static_cast<std::size_t>(parameter.index);
        for (std::size_t i = 0; trains(p) && i < masters[p].size(); ++i) {
          double& leaf =
              leaves[p][i * static_cast<std::size_t>(batches) + static_cast<std::size_t>(batch)];
          const double next = contribution(
              noise(step, batch, parameter.index, static_cast<Elements>(i), static_cast<int>(call)),
              weight(parameter, masters[p][i]), activation);
          leaf = stored(leaf + next * scale_, roles(p).compute);
        }
      }
    }
  }
  double weight(Parameter parameter, double master) const {
    return stored(master, roles(static_cast<std::size_t>(parameter.index)).compute);
  }

  double total(std::size_t p, const double* leaves, std::size_t count) const {
    if (!exact_) {
      double all = 0;
      for (std::size_t i = 0; i < count; ++i) all += leaves[i];
      return all;
    }
    if (micro_steps_ == 0) return reduced(p, leaves, count, roles(p).compute);
    const std::size_t steps = static_cast<std::size_t>(micro_steps_), world = count / steps;
    const bool wide = roles(p).accumulate == DType::Float64;
    if (moment_ == ReduceMoment::Micro) {  // leaf k * W + r
      double all = reduced(p, leaves, world, roles(p).compute);
      for (std::size_t k = 1; k < steps; ++k) {
        const double next = rounded(
            tree(leaves + k * world, world, roles(p).compute == DType::Float64), roles(p).reduce);
        all = rounded(sum(all, next, wide), roles(p).accumulate);
      }
      return all;
    }
    std::vector<double> ranks;  // leaf r * K + k
    for (std::size_t r = 0; r < world; ++r) {
      ranks.push_back(rounded(leaves[r * steps], roles(p).accumulate));
      for (std::size_t k = 1; k < steps; ++k)
        ranks.back() = rounded(sum(ranks.back(), leaves[r * steps + k], wide), roles(p).accumulate);
    }
    return reduced(p, ranks.data(), world, roles(p).accumulate);
  }

  double reduced(std::size_t p, const double* leaves, std::size_t count, DType contribution) const {
    const double all = tree(leaves, count, contribution == DType::Float64);
    return rounded(rounded(all, roles(p).reduce), roles(p).accumulate);
  }

  double square_sum(const std::vector<std::vector<double>>& sums) const {
    std::vector<double> squares;
    for (std::size_t p = 0; p < sums.size(); ++p) {
      squares.resize(starts_[p]);
      for (const double x : sums[p]) squares.push_back(trains(p) ? x * x : 0);
    }
    if (exact_) return perfect_tree(squares, 0, std::bit_ceil(squares.size()));
    double all = 0;
    for (const double square : squares) all += square;
    return all;
  }

  void update(std::size_t p, std::size_t i, int t, double gradient, double coefficient) {
    AdamW with{.lr = 1e-2};
    if (specs()[p].options.group == 1) with.lr *= 0.5, with.weight_decay = 0;
    double& m = first[p][i];
    double& v = second[p][i];
    if (!exact_) return textbook(with, masters[p][i], gradient * coefficient, m, v, t);
    if (roles(p).master == DType::Float64)
      adamw<double>(with, coefficient, t, masters[p][i], gradient, m, v);
    else
      adamw<float>(with, coefficient, t, masters[p][i], gradient, m, v);
    const auto index = static_cast<std::uint32_t>(starts_[p] + i);
    const auto keep = [&](double value, DType dtype, std::uint64_t role) {
      if (roles(p).stochastic && dtype == DType::BFloat16)
        return stochastic(value, word(17, static_cast<std::uint64_t>(t), role, index));
      return rounded(value, dtype);
    };
    masters[p][i] = keep(masters[p][i], roles(p).master, 0);
    m = keep(m, roles(p).state, 1);
    v = keep(v, roles(p).state, 2);
  }

  static void textbook(const AdamW& with, double& p, double g, double& m, double& v, int t) {
    m = with.beta1 * m + (1 - with.beta1) * g;
    v = with.beta2 * v + (1 - with.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(with.beta1, t));
    const double v_hat = v / (1 - std::pow(with.beta2, t));
    p = p - with.lr * with.weight_decay * p - with.lr * m_hat / (std::sqrt(v_hat) + with.eps);
  }

  const TestModel test_;
  PrecisionName precision_;
  bool exact_;
  double scale_;
  int micro_steps_ = 0;  // 0: tree accumulation
  ReduceMoment moment_ = ReduceMoment::Micro;
  std::vector<std::size_t> starts_;
};

std::vector<double> numbers(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<std::byte> copy = bytes;
  const Values values{copy.data(), dtype, static_cast<Elements>(copy.size()) / size_of(dtype)};
  std::vector<double> result;
  for (Elements i = 0; i < values.count; ++i) result.push_back(values.get(i));
  return result;
}

Training training_of(PrecisionName precision, int world, int micro_steps) {
  Training training;
  training.strategy = StrategyName::HybridShard;
  training.precision = precision;
  training.world = world;
  training.micro_steps = micro_steps;
  training.options.max_grad_norm = 0.5;
  training.options.accumulation = Accumulation::Tree;
  training.options.seed = 17;
  return training;
}

void check_exact(const Training& training) {
  CAPTURE(to_string(training));
  const PrecisionName precision = training.precision;
  const int world = training.world, micro_steps = training.micro_steps;
  const Trained trained = train(training);
  Reference reference(precision, true, scales_loss(precision) ? 256 : 1);
  if (training.options.accumulation == Accumulation::Running)
    reference.run(micro_steps, *training.options.reduce_moment);
  for (int t = 1; t <= training.steps; ++t) {
    reference.step(t, world * micro_steps, 0.5);
    CHECK(trained.reports[static_cast<std::size_t>(t - 1)].grad_norm == reference.norm);
  }
  for (std::size_t p = 0; p < reference.masters.size(); ++p) {
    CAPTURE(p);
    const Roles roles = reference.roles(p);
    const DType master = reference.trains(p) ? roles.master : roles.compute;
    CHECK(numbers(trained.masters[p], master) == reference.masters[p]);
    if (!reference.trains(p)) continue;
    CHECK(numbers(trained.states[0][p], roles.state) == reference.first[p]);
    CHECK(numbers(trained.states[1][p], roles.state) == reference.second[p]);
  }
}

void check_exact(PrecisionName precision, int world, int micro_steps) {
  check_exact(training_of(precision, world, micro_steps));
}

}  // namespace

TEST_CASE("every precision equals plain loops with the design's arithmetic, bit for bit") {
  for (const PrecisionName precision : all_precisions)
    for (const int world : {1, 2, 3, 4}) check_exact(precision, world, 1);
}

TEST_CASE("tree accumulation equals the tree over all micro-batches, bit for bit") {
  for (const PrecisionName precision : {PrecisionName::Fp64, PrecisionName::Fp32,
                                        PrecisionName::Bf16Mixed, PrecisionName::Bf16Stochastic})
    for (const int world : {1, 2, 4}) check_exact(precision, world, 8 / world);
  for (const int micro_steps : {2, 3, 4, 5, 6, 7, 9})
    check_exact(PrecisionName::Fp32, 1, micro_steps);
}

TEST_CASE("running accumulation adds micro-steps as they come, bit for bit") {
  for (const PrecisionName precision : all_precisions)
    for (const StrategyName strategy : {StrategyName::NoShard, StrategyName::FullShard})
      for (const ReduceMoment moment : {ReduceMoment::Micro, ReduceMoment::Boundary}) {
        Training training = training_of(precision, 2, 3);
        training.strategy = strategy;
        training.options.accumulation = Accumulation::Running;
        training.options.reduce_moment = moment;
        check_exact(training);
      }
}

TEST_CASE("trained parameters are near a textbook's training in double") {
  for (const PrecisionName precision : {PrecisionName::Fp64, PrecisionName::Fp32}) {
    const double tolerance = precision == PrecisionName::Fp64 ? 1e-12 : 1e-5;
    const Training training = training_of(precision, 4, 2);
    const Trained trained = train(training);
    Reference reference(precision, false);
    for (int t = 1; t <= training.steps; ++t) {
      reference.step(t, 8, 0.5);
      CHECK(trained.reports[static_cast<std::size_t>(t - 1)].grad_norm ==
            doctest::Approx(reference.norm).epsilon(tolerance));
      CHECK(trained.reports[static_cast<std::size_t>(t - 1)].clip_coefficient ==
            doctest::Approx(0.5 / (reference.norm + 1e-6)).epsilon(tolerance));
    }
    for (std::size_t p = 0; p < reference.masters.size(); ++p) {
      const std::vector<double> found = numbers(trained.masters[p], reference.roles(p).master);
      REQUIRE(found.size() == reference.masters[p].size());
      for (std::size_t i = 0; i < found.size(); ++i)
        CHECK(std::fabs(found[i] - reference.masters[p][i]) < tolerance);
    }
  }
}
