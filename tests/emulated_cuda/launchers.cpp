// In place of the kernels of kernels/cuda: the host's, as work of the stream.
#include "../../kernels/cuda/launchers.hpp"

#include <flatshard/core/error.hpp>
#include <flatshard/ops/host_device.hpp>

#include <cstring>

#include "launchers.hpp"

namespace flatshard::cuda {

using emulated::Array;
using emulated::expect;
using emulated::launch;
using emulated::on_host;
using emulated::table_at;
using emulated::touch;
using emulated::touch_elements;
using emulated::Work;

namespace {

constexpr Elements block_elements = 1000;  // of a copy, to test what counts blocks

void expect_convertible(DType from, DType to) {
  FLATSHARD_EXPECTS(from == to || (is_floating(from) && is_floating(to)),
                    "CUDA kernels: " + std::string(name_of(from)) + " cannot be converted to " +
                        std::string(name_of(to)) + ": only floating-point dtypes are");
}

void copy_now(const CopyPiece& piece, DType from, DType to) {
  touch_elements(piece.source, from, piece.count);
  touch_elements(piece.destination, to, piece.count);
  on_host([&](const KernelTable& kernels, StreamRef stream) {
    kernels.cast(piece.source, from, piece.destination, to, piece.count, stream);
  });
}

}  // namespace

void launch_copy(const CopyPiece& piece, DType from, DType to, cudaStream_t stream) {
  expect_convertible(from, to);
  if (piece.count > 0) launch(stream, Work([=] { copy_now(piece, from, to); }));
}

void launch_copy_pieces(const CopyPiece* table, int pieces, Elements blocks, DType from, DType to,
                        cudaStream_t stream) {
  if (blocks == 0) return;
  expect_convertible(from, to);
  launch(stream, Work([=] {
           Elements before = 0;
           for (const CopyPiece& piece : table_at(table, static_cast<std::size_t>(pieces))) {
             expect(piece.first_block == before, "a piece of a copy begins at a wrong block");
             before += blocks_of_copy(piece, from, to);
             copy_now(piece, from, to);
           }
           expect(before == blocks,
                  "the pieces of a copy have not as many blocks as were launched");
         }));
}

Elements blocks_of_copy(const CopyPiece& piece, DType, DType) {
  return ceil_div(piece.count, block_elements);
}

void launch_add(const void* addend, DType addend_dtype, void* accumulator, DType accumulator_dtype,
                Elements count, cudaStream_t stream) {
  launch(stream, Work([=] {
           touch_elements(addend, addend_dtype, count);
           touch_elements(accumulator, accumulator_dtype, count);
           on_host([&](const KernelTable& kernels, StreamRef inline_stream) {
             kernels.add(addend, addend_dtype, accumulator, accumulator_dtype, count,
                         inline_stream);
           });
         }));
}

void launch_reduce(std::span<const void* const> sources, const void* const* table,
                   DType contribution, void* destination, DType result, Elements count,
                   cudaStream_t stream) {
  const std::size_t size = sources.size();
  expect(table != nullptr || size <= inline_sources, "a reduction needs a table of its sources");
  const std::size_t kept = table == nullptr ? size : 0;
  Array<const void*> inline_table(sources.begin(), sources.begin() + static_cast<long>(kept));
  launch(stream, Work([=, inline_table = std::move(inline_table)] {
           const std::span<const void* const> all = table == nullptr
                                                        ? std::span<const void* const>(inline_table)
                                                        : table_at(table, size);
           for (const void* source : all) touch_elements(source, contribution, count);
           touch_elements(destination, result, count);
           on_host([&](const KernelTable& kernels, StreamRef inline_stream) {
             kernels.reduce(all, contribution, destination, result, count, inline_stream);
           });
         }));
}

void launch_fill(const Initializer& initializer, DType dtype, void* destination, Elements canonical,
                 Elements count, cudaStream_t stream) {
  launch(stream, Work([=] {
           touch_elements(destination, dtype, count);
           fill(initializer, dtype, destination, canonical, count);
         }));
}

void launch_conclude(const ConcludeArguments& arguments, cudaStream_t stream) {
  launch(stream, Work([=] {
           touch(arguments.control, sizeof(StepControl));
           touch(arguments.times, static_cast<std::size_t>(arguments.flats) * sizeof(std::int64_t));
           if (arguments.report != nullptr) touch(arguments.report, sizeof(StepReport));
           conclude(arguments);
         }));
}

void launch_upload(const void* source, void* destination, Bytes bytes, cudaStream_t stream) {
  if (bytes == 0) return;
  const auto* const begin = static_cast<const std::byte*>(source);
  launch(stream, Work([destination, taken = Array<std::byte>(begin, begin + bytes)] {
           touch(destination, taken.size());
           std::memcpy(destination, taken.data(), taken.size());
         }));
}

}  // namespace flatshard::cuda
