#include "cuda_kernels.hpp"

#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>
#include <cstring>

#include "../../src/core/cuda_stream.hpp"
#include "../../src/core/cuda_values.hpp"
#include "../../src/ops/cuda_kernels.hpp"
#include "builtin_steps.hpp"

namespace flatshard::cuda {
namespace {

using flatshard::detail::is_offloaded_pageable;

constexpr std::size_t max_element_size = 8;  // bytes

cudaStream_t native(StreamRef stream) { return flatshard::detail::as_cuda_stream(stream).native(); }

void expect_floating(const char* call, DType dtype) {
  FLATSHARD_EXPECTS(
      is_floating(dtype),
      fmt::format("CUDA kernels: {} needs a floating-point dtype, not {}", call, name_of(dtype)));
}

Bytes bytes_of(std::size_t count, std::size_t size) { return static_cast<Bytes>(count * size); }

std::byte* at(void* begin, Bytes offset) { return static_cast<std::byte*>(begin) + offset; }
const std::byte* at(const void* begin, Bytes offset) {
  return static_cast<const std::byte*>(begin) + offset;
}

}  // namespace

/// Runs launch(stream) with the device current; what the launches report becomes an exception.
template <class Launch>
void CudaKernels::issue(const char* call, StreamRef stream, const Launch& launch) const {
  const cudaStream_t on = native(stream);
  const flatshard::detail::CudaDeviceGuard guard(ordinal_);
  launch(on);
  flatshard::detail::check_cuda(cudaGetLastError(), call, __FILE__, __LINE__);
}

void CudaKernels::zero(void* destination, Bytes bytes, StreamRef stream) const {
  if (bytes == 0) return;
  if (is_offloaded_pageable(destination)) {
    stream->synchronize();
    std::memset(destination, 0, static_cast<std::size_t>(bytes));
    return;
  }
  issue("zero", stream, [&](cudaStream_t on) {
    FLATSHARD_CHECK_CUDA(cudaMemsetAsync(destination, 0, static_cast<std::size_t>(bytes), on));
  });
}

void CudaKernels::cast(const void* source, DType from, void* destination, DType to, Elements count,
                       StreamRef stream) const {
  if (is_offloaded_pageable(source) || is_offloaded_pageable(destination))
    return cast_pageable(source, from, destination, to, count, stream);
  issue("cast", stream, [&](cudaStream_t on) {
    launch_copy({source, destination, count, 0}, from, to, on);
  });
}

/// By way of the device, which does not see such memory; blocks the host. Outside of steps, or
/// where the budget of pinned memory has ended.
void CudaKernels::cast_pageable(const void* source, DType from, void* destination, DType to,
                                Elements count, StreamRef stream) const {
  constexpr Elements block = Elements{1} << 20;
  stream->synchronize();
  issue("cast", stream, [&](cudaStream_t on) {
    const auto most = static_cast<std::size_t>(std::min(count, block));
    void* staged = nullptr;
    FLATSHARD_CHECK_CUDA(cudaMallocAsync(&staged, most * 2 * max_element_size, on));
    void* cast = at(staged, static_cast<Bytes>(most * max_element_size));
    for (Elements done = 0; done < count; done += block) {
      const Elements part = std::min(block, count - done);
      FLATSHARD_CHECK_CUDA(cudaMemcpyAsync(staged, at(source, done * size_of(from)),
                                           static_cast<std::size_t>(part * size_of(from)),
                                           cudaMemcpyDefault, on));
      launch_copy({staged, cast, part, 0}, from, to, on);
      FLATSHARD_CHECK_CUDA(cudaMemcpyAsync(at(destination, done * size_of(to)), cast,
                                           static_cast<std::size_t>(part * size_of(to)),
                                           cudaMemcpyDefault, on));
    }
    FLATSHARD_CHECK_CUDA(cudaFreeAsync(staged, on));
  });
  stream->synchronize();
}

void CudaKernels::add(const void* addend, DType addend_dtype, void* accumulator,
                      DType accumulator_dtype, Elements count, StreamRef stream) const {
  expect_floating("add", addend_dtype);
  expect_floating("add", accumulator_dtype);
  issue("add", stream, [&](cudaStream_t on) {
    launch_add(addend, addend_dtype, accumulator, accumulator_dtype, count, on);
  });
}

void CudaKernels::reduce(std::span<const void* const> sources, DType contribution,
                         void* destination, DType result, Elements count, StreamRef stream) const {
  expect_floating("reduce", contribution);
  expect_floating("reduce", result);
  FLATSHARD_EXPECTS(!sources.empty(), "CUDA kernels: reduce needs at least one contribution");
  issue("reduce", stream, [&](cudaStream_t on) {
    if (sources.size() == 1)
      return launch_copy({sources[0], destination, count, 0}, contribution, result, on);
    const void** table = nullptr;
    if (sources.size() > inline_sources) {
      const auto bytes = static_cast<Bytes>(sources.size_bytes());
      table = reinterpret_cast<const void**>(scratch_.get(on, bytes));
      launch_upload(sources.data(), table, bytes, on);
    }
    launch_reduce(sources, table, contribution, destination, result, count, on);
  });
}

/// Lays out who works on what: blocks of nodes, and groups of 1024 blocks.
void CudaKernels::measure(NormForm form, const void* buffer, DType dtype,
                          std::span<const NormNode> nodes, double* values, StreamRef stream) const {
  if (nodes.empty()) return;
  const Elements block_elements = norm_block_elements(dtype);
  nodes_.clear();
  Elements blocks = 0, groups = 0;
  for (const NormNode& node : nodes) {
    nodes_.push_back({node.offset, node.count, blocks, groups});
    const Elements own = std::max<Elements>(1, ceil_div(node.count, block_elements));
    blocks += own;
    groups += own > 1 ? ceil_div(own, norm_group) : 0;
  }
  issue("norm", stream, [&](cudaStream_t on) {
    const bool uploads = nodes_.size() > inline_nodes;
    const Bytes table_bytes = uploads ? bytes_of(nodes_.size(), sizeof(NormEntry)) : 0;
    std::byte* memory = scratch_.get(on, table_bytes + 8 * (blocks + groups));
    const NormScratch scratch{uploads ? reinterpret_cast<const NormEntry*>(memory) : nullptr,
                              reinterpret_cast<double*>(memory + table_bytes),
                              reinterpret_cast<double*>(memory + table_bytes + 8 * blocks),
                              reinterpret_cast<unsigned*>(scratch_.get_zeros(
                                  on, bytes_of(nodes_.size(), sizeof(unsigned))))};
    if (uploads) launch_upload(nodes_.data(), memory, table_bytes, on);
    launch_norm(form, buffer, dtype, nodes_, blocks, groups, scratch, values, on);
  });
}

void CudaKernels::square_sums(const void* buffer, DType dtype, std::span<const NormNode> nodes,
                              double* values, StreamRef stream) const {
  expect_floating("square_sums", dtype);
  measure(NormForm::Squares, buffer, dtype, nodes, values, stream);
}

void CudaKernels::absolute_maxima(const void* buffer, DType dtype, std::span<const NormNode> nodes,
                                  double* values, StreamRef stream) const {
  expect_floating("absolute_maxima", dtype);
  measure(NormForm::Maxima, buffer, dtype, nodes, values, stream);
}

void CudaKernels::merge(NormForm form, std::span<const NormAdd> adds, double* values,
                        StreamRef stream) const {
  if (adds.empty()) return;
  levels_.sort(adds);
  issue("merge", stream, [&](cudaStream_t on) {
    const auto bytes = static_cast<Bytes>(levels_.table().size());
    std::byte* memory = scratch_.get(on, bytes);
    launch_upload(levels_.table().data(), memory, bytes, on);
    launch_merge(form, reinterpret_cast<const NormAdd*>(memory),
                 reinterpret_cast<const int*>(memory + levels_.add_bytes()), levels_.levels(),
                 levels_.value_count(), values, on);
  });
}

void CudaKernels::add_nodes(std::span<const NormAdd> adds, double* values, StreamRef stream) const {
  merge(NormForm::Squares, adds, values, stream);
}

void CudaKernels::max_nodes(std::span<const NormAdd> adds, double* values, StreamRef stream) const {
  merge(NormForm::Maxima, adds, values, stream);
}

void CudaKernels::fill(const Initializer& initializer, DType dtype, void* destination,
                       Elements canonical, Elements count, StreamRef stream) const {
  flatshard::fill(initializer, dtype, destination, canonical, 0);  // refuses here what it refuses
  issue("fill", stream, [&](cudaStream_t on) {
    launch_fill(initializer, dtype, destination, canonical, count, on);
  });
}

void CudaKernels::start_control(StepControl& control, const LossScaler& scaler,
                                StreamRef stream) const {
  const StepControl start = make_step_control(scaler);
  issue("start_control", stream,
        [&](cudaStream_t on) { launch_upload(&start, &control, sizeof start, on); });
}

void CudaKernels::conclude(const ConcludeArguments& arguments, StreamRef stream) const {
  issue("conclude", stream, [&](cudaStream_t on) { launch_conclude(arguments, on); });
}

/// Copies pieces_.
void CudaKernels::copy_pieces(DType from, DType to, cudaStream_t on) const {
  Elements blocks = 0;
  for (CopyPiece& piece : pieces_) {
    piece.first_block = blocks;
    blocks += blocks_of_copy(piece, from, to);
  }
  const Bytes bytes = bytes_of(pieces_.size(), sizeof(CopyPiece));
  std::byte* table = scratch_.get(on, bytes);
  launch_upload(pieces_.data(), table, bytes, on);
  launch_copy_pieces(reinterpret_cast<const CopyPiece*>(table), static_cast<int>(pieces_.size()),
                     blocks, from, to, on);
}

void CudaKernels::flatten(std::span<const FlattenPiece> pieces, DType from, void* flat, DType to,
                          StreamRef stream) const {
  pieces_.clear();
  for (const FlattenPiece& piece : pieces)
    if (piece.count > 0)
      pieces_.push_back({piece.tensor, at(flat, piece.flat_offset * size_of(to)), piece.count, 0});
  issue("flatten", stream, [&](cudaStream_t on) { copy_pieces(from, to, on); });
}

void CudaKernels::unflatten(std::span<const FlattenPiece> pieces, const void* flat, DType from,
                            DType to, StreamRef stream) const {
  pieces_.clear();
  for (const FlattenPiece& piece : pieces)
    if (piece.count > 0)
      pieces_.push_back(
          {at(flat, piece.flat_offset * size_of(from)), piece.tensor, piece.count, 0});
  issue("unflatten", stream, [&](cudaStream_t on) { copy_pieces(from, to, on); });
}

void CudaKernels::step(const StepFunctions& functions, const StepArguments& arguments,
                       StreamRef stream) const {
  step_ranges(functions, {&arguments, 1}, stream);
}

void CudaKernels::step_ranges(const StepFunctions& functions, std::span<const StepArguments> ranges,
                              StreamRef stream) const {
  FLATSHARD_EXPECTS(functions.cuda != nullptr, "CUDA kernels: a step without a CUDA function");
  issue("step", stream, [&](cudaStream_t on) {
    functions.cuda(ranges, scratch_.get(on, cuda_step_scratch(ranges)), on);
  });
}

}  // namespace flatshard::cuda

namespace flatshard {

std::shared_ptr<const KernelTable> make_cuda_kernels(int ordinal) {
  cuda::register_adamw();
  cuda::register_sgd();
  cuda::register_lion();
  cuda::register_adagrad();
  cuda::register_moments();
  cuda::register_rmsprop();
  return std::make_shared<const cuda::CudaKernels>(ordinal);
}

}  // namespace flatshard
