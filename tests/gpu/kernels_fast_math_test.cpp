// The same bits in a user's program that is built with nvcc --use_fast_math: steps of functors that
// it registers itself, and conversions.
#include "fast_math.hpp"
#include "kernels_gpu.hpp"
#include "kernels_step.hpp"

using namespace flatshard_test;

namespace {

template <class Functor>
void check_rows(const Functor& plain) {
  const UnderFastMath<Functor> functor{plain};
  for (const StepRow& row : rows_of(FastMathRows{})) {
    CAPTURE(to_string(row));
    const Steps steps{Optimizer(plain).host_step(row), Optimizer(functor).cuda_step(row)};
    for (std::int64_t time : {1, 7})
      for (Elements count : {17, 1025, 40001})
        check_step(plain, steps, row, {count}, {0.37, 1}, time);
    check_step(plain, steps, row, {1025}, {1e-40, 1}, 3);
    check_step(plain, steps, row, {33, 0, 2049}, {0.37, 1}, 2);
  }
}

}  // namespace

TEST_CASE("fast math: steps of the user's own functors") {
  check_rows(AdamW{3e-4, 0.9, 0.95, 1e-8, 0.1});
  check_rows(AdamW{1e-38, 0.9, 0.95, 1e-40, 0.1});
  check_rows(SGD{0.1, 0.9, 0.0, 1e-2, true, false});
  check_rows(SGD{1e-39, 1e-39, 0.5, 1e-40, false, true});
  check_rows(Lion{1e-4, 0.9, 0.99, 0.1});
  check_rows(Lion{1e-39, 0.9, 0.99, 1e-3});
  check_rows(Adagrad{1e-2, 1e-3, 0.1, 1e-10});
  check_rows(AMSGrad{1e-38, 0.9, 0.95, 1e-40, 0.1, true, true});
  check_rows(NAdam{1e-38, 0.9, 0.95, 1e-40, 0.1, 4e-3, false, true});
  check_rows(CenteredRMSPropMomentum{1e-39, 0.9, 1e-40, 1e-40, 0.5, true});
}

TEST_CASE("fast math: conversions") {
  auto random = generator();
  for (DType from : floating)
    for (DType to : floating) {
      CAPTURE(name_of(from));
      CAPTURE(name_of(to));
      const Elements count = 100003;
      const auto elements = random_elements(random, from, count);
      std::vector<std::byte> expected(static_cast<std::size_t>(count * size_of(to)));
      run_on_host([&](const KernelTable& kernels, StreamRef stream) {
        kernels.cast(elements.data(), from, expected.data(), to, count, stream);
      });
      OnGpu source(from, elements), destination(to, count);
      convert_under_fast_math(source.data(), from, destination.data(), to, count,
                              cuda_stream(*gpu().stream));
      gpu().stream->synchronize();
      CHECK(equals(destination, expected, to));
    }
}
