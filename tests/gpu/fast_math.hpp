// What a user's program that is built with nvcc --use_fast_math instantiates of the library:
// fast_math.cu is compiled so.
#pragma once

#include <flatshard/ops/amsgrad.hpp>
#include <flatshard/ops/nadam.hpp>
#include <flatshard/ops/optimizer.hpp>
#include <flatshard/ops/rmsprop.hpp>

namespace flatshard_test {

using namespace flatshard;

/// The same functor as a type of the user's own: the library's steps are not its steps.
template <class Functor>
struct UnderFastMath : Functor {};

using FastMathRows = StepRowList<StepTypes<float, float, float>,        //
                                 StepTypes<double, double, double>,     //
                                 StepTypes<Bf16, Bf16, Bf16>,           //
                                 StepTypes<Half, Half, Half>,           //
                                 StepTypes<float, float, float, Bf16>,  //
                                 StepTypes<Bf16, float, Bf16, NoCopy, true>>;

/// destination[i] = convert(source[i]) between floating dtypes, on a cudaStream_t.
void convert_under_fast_math(const void* source, DType from, void* destination, DType to,
                             Elements count, void* stream);

}  // namespace flatshard_test
