// Hash of what optimizer steps and initial values leave in memory. The same source is compiled with
// flags that must not change a bit; every program must print the hash given as its argument.
#include <flatshard/ops/adagrad.hpp>
#include <flatshard/ops/adam.hpp>
#include <flatshard/ops/adamw.hpp>
#include <flatshard/ops/amsgrad.hpp>
#include <flatshard/ops/init.hpp>
#include <flatshard/ops/lion.hpp>
#include <flatshard/ops/nadam.hpp>
#include <flatshard/ops/rmsprop.hpp>
#include <flatshard/ops/sgd.hpp>
#include <flatshard/ops/step_kernel.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using namespace flatshard;

struct ThisProgram;
constexpr std::size_t count = 2048;

class Hash {
 public:
  void add(std::uint64_t word) { value_ = mix64(value_ ^ word) + 0x9e3779b97f4a7c15U; }
  /// NaN count as one.
  template <class Element>
  void add_elements(const std::vector<Element>& elements) {
    for (const Element element : elements) {
      const double x = to_double(element);
      add(x != x ? ~std::uint64_t{0} : bit_cast<std::uint64_t>(x));
    }
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0;
};

/// Mostly numbers of many sizes; every eighth is any bits: denormals, infinities, NaN.
template <class Element>
std::vector<Element> inputs(std::uint64_t stream) {
  std::vector<Element> elements;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t word = mix64(mix64(stream) + i);
    const std::uint64_t exponent = 0x3ff - (word >> 60) - (word >> 58) % 4;
    const std::uint64_t bits = (word & 0x800fffffffffffffU) | (exponent << 52);
    elements.push_back(from_double<Element>(bit_cast<double>(i % 8 == 7 ? word : bits)));
  }
  return elements;
}

template <class Types, class Functor>
void add_steps(const Functor& functor, Hash& hash) {
  auto master = inputs<typename Types::Master>(1);
  std::vector<typename Types::State> states[std::max(2, state_count<Functor>)];
  for (auto& state : states) state.assign(count, convert<typename Types::State>(0.0F));
  std::vector<std::conditional_t<Types::writes_copy, typename Types::Copy, float>> copy(count);
  for (std::int64_t time = 1; time <= 3; ++time) {
    const auto gradient = inputs<typename Types::Gradient>(static_cast<std::uint64_t>(10 + time));
    const StepScalars scalars{0.37, 1};
    StepArguments arguments{};
    arguments.master = master.data();
    arguments.gradient = gradient.data();
    for (std::size_t k = 0; k < state_count<Functor>; ++k) arguments.states[k] = states[k].data();
    if (Types::writes_copy) arguments.copy = copy.data();
    arguments.count = count;
    arguments.canonical = (Elements{1} << 32) - 1000;
    arguments.scalars = &scalars;
    arguments.time = &time;
    arguments.seed = 5;
    arguments.row = Types::row();
    std::memcpy(arguments.functor.data(), &functor, sizeof(functor));
    step_range<ThisProgram, Functor, Types>(arguments);
  }
  hash.add_elements(master);
  for (const auto& state : states) hash.add_elements(state);
  hash.add_elements(copy);
}

template <class Functor>
void add_rows(const Functor& functor, Hash& hash) {
  add_steps<StepTypes<double, double, double>>(functor, hash);
  add_steps<StepTypes<float, float, float>>(functor, hash);
  add_steps<StepTypes<float, float, float, Half>>(functor, hash);
  add_steps<StepTypes<Bf16, float, Bf16, NoCopy, true>>(functor, hash);
}

void add_initial_values(Hash& hash) {
  std::vector<double> values;
  for (Elements i = 0; i < Elements{count}; ++i) {
    values.push_back(init::normal{0.02, 7}.value(i));
    values.push_back(init::uniform{-0.1, 0.3, 7}.value(i));
  }
  hash.add_elements(values);
}

}  // namespace

int main(int argc, char** argv) {
  Hash hash;
  add_rows(AdamW{.lr = 0.01, .weight_decay = 0.1}, hash);
  add_rows(SGD{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}, hash);
  add_rows(Lion{.lr = 0.01, .weight_decay = 0.1}, hash);
  add_rows(Adagrad{.lr = 0.01, .lr_decay = 0.1, .weight_decay = 0.1}, hash);
  add_initial_values(hash);
  using Plain = StepTypes<float, float, float>;
  add_steps<Plain>(AdamW{.lr = 0.01, .weight_decay = 0.1, .maximize = true}, hash);
  add_steps<Plain>(Adam{.lr = 0.01, .weight_decay = 0.1}, hash);
  add_steps<Plain>(AMSGrad{.lr = 0.01, .weight_decay = 0.1, .decoupled_weight_decay = true}, hash);
  add_steps<Plain>(NAdam{.lr = 0.01, .weight_decay = 0.1}, hash);
  add_steps<Plain>(RMSProp{.weight_decay = 0.1}, hash);
  add_steps<Plain>(CenteredRMSPropMomentum{.alpha = 0.9, .momentum = 0.5}, hash);
  std::printf("%016llx\n", static_cast<unsigned long long>(hash.value()));
  const bool as_expected = argc > 1 && std::strtoull(argv[1], nullptr, 16) == hash.value();
  return as_expected ? 0 : 1;
}
