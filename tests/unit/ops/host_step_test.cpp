#include <flatshard/ops/host_steps.hpp>

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
  Guarded master, gradient, state0, state1, copy;
  Elements count;

  StepMemory(std::mt19937_64& random, const StepRow& row, Elements elements)
      : master(row.master, elements, 1),
        gradient(row.gradient, elements, 3),
        state0(row.state, elements, 2),
        state1(row.state, elements),
        copy(row.copy, elements, 5),
        count(elements) {
    master.fill(random_elements(random, row.master, elements));
    gradient.fill(random_elements(random, row.gradient, elements));
    state0.fill(random_finite(random, row.state, elements));
    state1.fill(random_elements(random, row.state, elements));
  }
  bool guards_hold() const {
    return master.guards_hold() && gradient.guards_hold() && state0.guards_hold() &&
           state1.guards_hold() && copy.guards_hold();
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
  arguments.states[0] = memory.state0.data();
  if (state_count < Functor >> 1) arguments.states[1] = memory.state1.data();
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
         same(a.state0, b.state0, row.state) && same(a.state1, b.state1, row.state) &&
         same(a.copy, b.copy, row.copy);
}

template <class Functor>
void check_step(const Functor& functor, const StepRow& row, Elements count, const Device& at) {
  CAPTURE(to_string(row));
  CAPTURE(count);
  auto random = generator(static_cast<std::uint64_t>(count));
  const Elements canonical = (Elements{1} << 32) - static_cast<Elements>(random() % 2000);
  const StepMemory before(random, row, count);
  StepMemory expected = before;
  find_host_step<PlainCode, Functor>(row)(arguments_for(functor, row, expected, at, canonical));
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
  for (const StepRow& row : rows_of(StepRows{})) {
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
  }
}
