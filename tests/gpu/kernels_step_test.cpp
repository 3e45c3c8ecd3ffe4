// Optimizer steps: the device against the host, bit for bit, for every row.
#include <flatshard/core/error.hpp>
#include <flatshard/ops/adam.hpp>
#include <flatshard/ops/amsgrad.hpp>
#include <flatshard/ops/cuda_steps.hpp>
#include <flatshard/ops/nadam.hpp>
#include <flatshard/ops/optimizer.hpp>
#include <flatshard/ops/rmsprop.hpp>

#include "kernels_gpu.hpp"
#include "kernels_step.hpp"

using namespace flatshard_test;

namespace {

template <class Functor>
void check_all(const Functor& functor) {
  gpu();  // registers the library's steps
  for (const StepRow& row : rows_of(StepRows{})) {
    CAPTURE(to_string(row));
    const Steps steps{Optimizer(functor).host_step(row), Optimizer(functor).cuda_step(row)};
    if (!short_run())
      for (std::int64_t time : {1, 7})
        for (Elements count : lengths) check_step(functor, steps, row, {count}, {0.37, 1}, time);
    check_step(functor, steps, row, {1025}, {0.37, 0}, 3);
    if (!short_run()) check_step(functor, steps, row, {long_length}, {1.0, 1}, 1000);
    check_step(functor, steps, row, {0, 33, 1, 70001, 8}, {0.37, 1}, 2);
    const std::size_t many = short_run() ? 4 : 40;
    check_step(functor, steps, row, std::vector<Elements>(many, 129), {0.37, 1}, 2);
  }
}

}  // namespace

TEST_CASE("step: AdamW") {
  check_all(AdamW{3e-4, 0.9, 0.95, 1e-8, 0.1});
  // Coefficients that are denormal floats.
  check_all(AdamW{1e-38, 0.9, 0.95, 1e-40, 0.1});
}
TEST_CASE("step: SGD") {
  check_all(SGD{0.1, 0.9, 0.0, 1e-2, true, false});
  check_all(SGD{0.1, 0.9, 0.5, 1e-40, false, true});
}
TEST_CASE("step: Lion") { check_all(Lion{1e-4, 0.9, 0.99, 0.1}); }
TEST_CASE("step: Adagrad") {
  check_all(Adagrad{1e-2, 1e-3, 0.1, 1e-10});
  check_all(Adagrad{1e-2, 0, 0, 1e-10});
}
TEST_CASE("step: AdamW that maximizes") { check_all(AdamW{3e-4, 0.9, 0.95, 1e-8, 0.1, true}); }
TEST_CASE("step: Adam") { check_all(Adam{3e-4, 0.9, 0.95, 1e-8, 0.1, false}); }
TEST_CASE("step: AMSGrad") {
  check_all(AMSGrad{3e-4, 0.9, 0.95, 1e-8, 0.1, false, false});
  check_all(AMSGrad{1e-38, 0.9, 0.95, 1e-40, 0.1, true, true});
}
TEST_CASE("step: NAdam") {
  check_all(NAdam{3e-4, 0.9, 0.95, 1e-8, 0.1, 4e-3, false, true});
  check_all(NAdam{1e-38, 0.9999, 0.95, 1e-40, 0.1, 2.5, true, false});
}
TEST_CASE("step: RMSProp") {
  check_all(RMSProp{1e-3, 0.9, 1e-8, 0.1});
  check_all(RMSPropMomentum{1e-3, 0.9, 1e-40, 1e-40, 0.5, true});
  check_all(CenteredRMSProp{1e-3, 0.9, 1e-8});
  check_all(CenteredRMSPropMomentum{1e-3, 0.9, 1e-8, 0.1, 0.5});
}

TEST_CASE("step: rows that are not built are refused by name") {
  const StepRow unknown{DType::Float64, DType::Float16, DType::Float32,
                        DType::Float64, false,          false};
  gpu();
  CHECK_THROWS_WITH_AS(Optimizer(AdamW{}).cuda_step(unknown),
                       doctest::Contains("adamw: no CUDA step is registered for master float64"),
                       UsageError);
}
