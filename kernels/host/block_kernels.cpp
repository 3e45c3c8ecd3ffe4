// Compiled once per instruction set, with FLATSHARD_INSTRUCTION_SET naming its namespace.
// Everything but the table has internal linkage or is always inlined: no symbol can be mixed up by
// a linker.
#include "block_kernels.hpp"

#include "block_convert.hpp"
#include "block_sums.hpp"

namespace flatshard::host::FLATSHARD_INSTRUCTION_SET {

const BlockKernels block_kernels = {
    {to_float<double>, to_float<float>, to_float<Bf16>, to_float<Half>, to_float<Float8E4M3>,
     to_float<Float8E5M2>},
    {from_float<double>, from_float<float>, from_float<Bf16>, from_float<Half>,
     from_float<Float8E4M3>, from_float<Float8E5M2>},
    {to_double<double>, to_double<float>, to_double<Bf16>, to_double<Half>, to_double<Float8E4M3>,
     to_double<Float8E5M2>},
    {from_double<double>, from_double<float>, from_double<Bf16>, from_double<Half>,
     from_double<Float8E4M3>, from_double<Float8E5M2>},
    {stream_to_float<double>, stream_to_float<float>, stream_to_float<Bf16>, stream_to_float<Half>,
     stream_to_float<Float8E4M3>, stream_to_float<Float8E5M2>},
    {stream_from_float<double>, stream_from_float<float>, stream_from_float<Bf16>,
     stream_from_float<Half>, stream_from_float<Float8E4M3>, stream_from_float<Float8E5M2>},
    stream_copy,
    {square_sum<double>, square_sum<float>, square_sum<Bf16>, square_sum<Half>,
     square_sum<Float8E4M3>, square_sum<Float8E5M2>},
    {absolute_maximum<double>, absolute_maximum<float>, absolute_maximum<Bf16>,
     absolute_maximum<Half>, absolute_maximum<Float8E4M3>, absolute_maximum<Float8E5M2>},
    accumulate<float>,
    accumulate<double>,
    add<float>,
    add<double>,
    add_four<float>,
    add_four<double>,
};

}  // namespace flatshard::host::FLATSHARD_INSTRUCTION_SET
