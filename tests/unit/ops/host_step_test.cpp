#include <flatshard/ops/adam.hpp>
#include <flatshard/ops/amsgrad.hpp>
#include <flatshard/ops/host_steps.hpp>
#include <flatshard/ops/nadam.hpp>
#include <flatshard/ops/rmsprop.hpp>

#include "host_kernels.hpp"

using namespace flatshard_test;

namespace {

struct PlainCode;  // steps instantiated here, with the flags of the tests

template <class... Types>
std::vector<StepRow> rows_of(StepRowList<Types...>) {
  return {Types::row()...};
}

/// The memory of one step: what it reads and what it writes.
struct StepMemory {
  Guarded master, gradient, states[max_optimizer_states], copy;
  Elements count;

  StepMemory(std::mt19937_64& random, const StepRow& row, Elements elements)
      : master(row.master, elements, 1),
        gradient(row.gradient, elements, 3),
        states{{row.state, elements, 2}, {row.state, elements}, {row.state, elements, 1}},
        copy(row.copy, elements, 5),
        count(elements) {
    master.fill(random_elements(random, row.master, elements));
    gradient.fill(random_elements(random, row.gradient, elements));
    states[0].fill(random_finite(random, row.state, elements));
    states[1].fill(random_elements(random, row.state, elements));
    states[2].fill(random_elements(random, row.state, elements));
  }
  bool guards_hold() const {
    return master.guards_hold() && gradient.guards_hold() && states[0].guards_hold() &&
           states[1].guards_hold() && states[2].guards_hold() && copy.guards_hold();
  }
};

struct Device {
  StepScalars scalars{0.37, 1};
  std::int64_t time = 1;
};

template <class Functor>
StepArguments arguments_for(const Functor& functor, const StepRow& row, StepMemory& memory,
                            const Device& device, Elements canonical) {
  StepArguments arguments{};
  arguments.master = memory.master.data();
  arguments.gradient = memory.gradient.data();
  for (std::size_t k = 0; k < state_count<Functor>; ++k)
    arguments.states[k] = memory.states[k].data();
  arguments.copy = row.writes_copy ? memory.copy.data() : nullptr;
  arguments.count = memory.count;
  arguments.canonical = canonical;
  arguments.scalars = &device.scalars;
  arguments.time = &device.time;
  arguments.seed = seed();
  arguments.row = row;
  std::memcpy(arguments.functor.data(), &functor, sizeof functor);
  return arguments;
}

bool same_memory(const StepMemory& a, const StepMemory& b, const StepRow& row) {
  const auto same = [&](const Guarded& left, const Guarded& right, DType dtype) {
    return same_elements(left.data(), right.data(), dtype, a.count);
  };
  return same(a.master, b.master, row.master) && same(a.gradient, b.gradient, row.gradient) &&
         same(a.states[0], b.states[0], row.state) && same(a.states[1], b.states[1], row.state) &&
         same(a.states[2], b.states[2], row.state) && same(a.copy, b.copy, row.copy);
}

/// What is stored of `value` at element i, as convert and the random words define it.
void store_by_definition(const StepArguments& step, void* array, DType dtype, Elements i,
                         double value, std::uint32_t role) {
  auto* data = static_cast<std::byte*>(array);
  if (step.row.stochastic && dtype == DType::BFloat16) {
    const auto time = static_cast<std::uint64_t>(*step.time);
    const auto index = static_cast<std::uint64_t>(step.canonical + i);
    const Bf16 rounded =
        stochastic_bf16(static_cast<float>(value), random_word(step.seed, time, role, index));
    std::memcpy(data + 2 * i, &rounded, sizeof rounded);
  } else {
    set_value(data, dtype, i, value);
  }
}

/// The step in Real, one element after the other, dtypes looked up for each.
template <class Functor, class Real>
void step_by_definition(const StepArguments& step) {
  if (step.scalars->apply == 0) return;
  Functor functor;
  std::memcpy(&functor, step.functor.data(), sizeof functor);
  const auto coefficients = functor.template coefficients<Real>(*step.time);
  const auto value = [](const void* array, DType dtype, Elements i) {
    return static_cast<Real>(value_at(static_cast<const std::byte*>(array), dtype, i));
  };
  for (Elements i = 0; i < step.count; ++i) {
    Real parameter = value(step.master, step.row.master, i);
    Real states[max_optimizer_states] = {};
    for (std::uint32_t k = 0; k < state_count<Functor>; ++k)
      states[k] = value(step.states[k], step.row.state, i);
    const Real gradient = value(step.gradient, step.row.gradient, i);
    Functor::update(coefficients, parameter,
                    gradient * static_cast<Real>(step.scalars->coefficient), states);
    store_by_definition(step, step.master, step.row.master, i, parameter, random_role::master);
    for (std::uint32_t k = 0; k < state_count<Functor>; ++k)
      store_by_definition(step, step.states[k], step.row.state, i, states[k],
                          random_role::first_state + k);
    if (step.row.writes_copy)
      set_value(static_cast<std::byte*>(step.copy), step.row.copy, i, parameter);
  }
}

/// Rows with a 16-bit gradient: what the row with an fp32 gradient leaves of the widened one.
bool has_narrow_gradient(const StepRow& row) {
  return row.master == DType::Float32 && row.gradient != DType::Float32;
}

/// What the step must leave: by a loop for the row, compiled with the flags of the tests, or, where
/// the library has no such loop, by definition.
template <class Functor>
HostStep expected_step(const StepRow& row) {
  if constexpr (std::is_same_v<Functor, AdamW> || std::is_same_v<Functor, SGD> ||
                std::is_same_v<Functor, Lion> || std::is_same_v<Functor, Adagrad>)
    return detail::find_host_step<PlainCode, Functor>(row, StepRows{});
  else
    return row.master == DType::Float64 ? step_by_definition<Functor, double>
                                        : step_by_definition<Functor, float>;
}

template <class Functor>
void leave_expected(const Functor& functor, StepRow row, StepMemory& memory, const Device& at,
                    Elements canonical) {
  Guarded widened(DType::Float32, memory.count);
  StepArguments arguments = arguments_for(functor, row, memory, at, canonical);
  if (has_narrow_gradient(row)) {
    for (Elements i = 0; i < memory.count; ++i)
      set_value(widened.data(), DType::Float32, i,
                value_at(memory.gradient.data(), row.gradient, i));
    row.gradient = DType::Float32;
    arguments.row = row;
    arguments.gradient = widened.data();
  }
  expected_step<Functor>(row)(arguments);
}

template <class Functor>
void check_step(const Functor& functor, const StepRow& row, Elements count, const Device& at) {
  CAPTURE(to_string(row));
  CAPTURE(count);
  auto random = generator(static_cast<std::uint64_t>(count));
  const Elements canonical = (Elements{1} << 32) - static_cast<Elements>(random() % 2000);
  const StepMemory before(random, row, count);
  StepMemory expected = before;
  leave_expected(functor, row, expected, at, canonical);
  if (at.scalars.apply == 0) CHECK(same_memory(before, expected, row));
  for (const NamedDevice& named : devices()) {
    CAPTURE(named.name);
    StepMemory memory = before;
    const HostStep step = builtin_host_step<Functor>(row, named.device->instruction_set());
    run_on(*named.device, [&](const KernelTable& kernels, StreamRef stream) {
      kernels.step(step, arguments_for(functor, row, memory, at, canonical), stream);
    });
    CHECK(same_memory(memory, expected, row));
    CHECK(memory.guards_hold());
  }
}

template <class Functor>
void check_rows(const Functor& functor) {
  for (const StepRow& row : rows_of(HostStepRows{})) {
    for (std::int64_t time : {1, 7})
      for (Elements count : lengths) check_step(functor, row, count, {{0.37, 1}, time});
    check_step(functor, row, 1025, {{0.37, 0}, 3});
    check_step(functor, row, 70001, {{1.0, 1}, 1000});
  }
}

}  // namespace

TEST_CASE("step: AdamW leaves the same bits for every instruction set, thread count and cut") {
  check_rows(AdamW{3e-4, 0.9, 0.95, 1e-8, 0.1});
}

TEST_CASE("step: SGD leaves the same bits for every instruction set, thread count and cut") {
  check_rows(SGD{0.1, 0.9, 0.0, 1e-2, true, false});
}

TEST_CASE("step: Lion leaves the same bits for every instruction set, thread count and cut") {
  check_rows(Lion{1e-4, 0.9, 0.99, 0.1});
}

TEST_CASE("step: Adagrad leaves the same bits for every instruction set, thread count and cut") {
  check_rows(Adagrad{1e-2, 1e-3, 0.1, 1e-10});
}

TEST_CASE("step: AdamW that maximizes leaves the same bits for every instruction set") {
  check_rows(AdamW{3e-4, 0.9, 0.95, 1e-8, 0.1, true});
}

TEST_CASE("step: Adam leaves the same bits for every instruction set, thread count and cut") {
  check_rows(Adam{3e-4, 0.9, 0.95, 1e-8, 0.1, false});
}

TEST_CASE("step: AMSGrad leaves the same bits for every instruction set, thread count and cut") {
  check_rows(AMSGrad{3e-4, 0.9, 0.95, 1e-8, 0.1, true, true});
}

TEST_CASE("step: NAdam leaves the same bits for every instruction set, thread count and cut") {
  check_rows(NAdam{3e-4, 0.9, 0.95, 1e-8, 0.1, 4e-3, false, true});
}

TEST_CASE("step: RMSProp leaves the same bits for every instruction set, thread count and cut") {
  check_rows(RMSProp{1e-3, 0.9, 1e-8, 0.1});
  check_rows(RMSPropMomentum{1e-3, 0.9, 1e-8, 0.1, 0.5, true});
  check_rows(CenteredRMSProp{1e-3, 0.9, 1e-8});
  check_rows(CenteredRMSPropMomentum{1e-3, 0.9, 1e-8, 0.1, 0.5});
}

TEST_CASE("step: what is built for this processor is one of the sets; unknown rows are nothing") {
  const StepRow known = rows_of(StepRows{}).front();
  const bool is_best =
      builtin_host_step<AdamW>(known) == builtin_host_step<AdamW>(known, best_instruction_set());
  CHECK(is_best);
  const StepRow unknown{DType::Float64, DType::Float16, DType::Float32,
                        DType::Float64, false,          false};
  for (InstructionSet set : available_sets()) {
    CHECK(static_cast<bool>(builtin_host_step<AdamW>(known, set)));
    CHECK_FALSE(static_cast<bool>(builtin_host_step<AdamW>(unknown, set)));
    CHECK_FALSE(static_cast<bool>(builtin_host_step<SGD>(unknown, set)));
    CHECK_FALSE(static_cast<bool>(builtin_host_step<Lion>(unknown, set)));
    CHECK_FALSE(static_cast<bool>(builtin_host_step<NAdam>(unknown, set)));
  }
}
