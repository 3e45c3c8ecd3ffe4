// Sums over rows, with what is summed formed on the way: per block 32 vectors of columns and a
// chunk of rows, then the chunks in ascending order.
#include "device_code.cuh"
#include "gelu.cuh"
#include "kernels.hpp"

namespace train_gpt::gpu {
namespace {

constexpr int warps = 8;
constexpr std::int64_t rows_per_chunk = 128, most_chunks = 512;

std::int64_t chunk_rows(std::int64_t rows) {
  return std::max(rows_per_chunk, (rows + most_chunks - 1) / most_chunks);
}
std::int64_t chunk_count(std::int64_t rows) {
  return (rows + chunk_rows(rows) - 1) / chunk_rows(rows);
}

template <class T>
struct PlainTerm {
  static constexpr int outputs = 1;
  const T* x;
  template <int n>
  __device__ void operator()(float (&term)[1][n], std::int64_t, std::int64_t at) const {
    load_floats(term[0], x + at);
  }
};

template <class T>
struct GeluTerm {
  static constexpr int outputs = 1;
  T* dx;
  const T *dout, *x;
  template <int n>
  __device__ void operator()(float (&term)[1][n], std::int64_t, std::int64_t at) const {
    float slope[n], value[n];
    load_floats(slope, dout + at);
    load_floats(value, x + at);
#pragma unroll
    for (int i = 0; i < n; ++i)
      term[0][i] = to_float(from_float<T>(slope[i] * gelu_slope<T>(value[i])));
    store_floats(dx + at, term[0]);
  }
};

template <class T>
struct LayernormTerm {
  static constexpr int outputs = 2;
  const T *dout, *x;
  const float *mean, *rstd;
  template <int n>
  __device__ void operator()(float (&term)[2][n], std::int64_t row, std::int64_t at) const {
    float value[n];
    load_floats(term[1], dout + at);
    load_floats(value, x + at);
    const float middle = mean[row], scale = rstd[row];
#pragma unroll
    for (int i = 0; i < n; ++i) term[0][i] = term[1][i] * ((value[i] - middle) * scale);
  }
};

/// partial (outputs, chunks, columns). Grid: (column groups, chunks); block: (32, warps).
template <int n, class Term>
__global__ void partial_sums_kernel(float* partial, Term term, std::int64_t rows,
                                    std::int64_t columns, std::int64_t per_chunk) {
  __shared__ float shared[warps][32 * n + 1];
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x) * n;
  const std::int64_t begin = blockIdx.y * per_chunk;
  const std::int64_t end = begin + per_chunk < rows ? begin + per_chunk : rows;
  float sum[Term::outputs][n] = {};
  if (column < columns)
#pragma unroll 4
    for (std::int64_t row = begin + threadIdx.y; row < end; row += warps) {
      float next[Term::outputs][n];
      term(next, row, row * columns + column);
#pragma unroll
      for (int o = 0; o < Term::outputs; ++o)
#pragma unroll
        for (int i = 0; i < n; ++i) sum[o][i] += next[o][i];
    }
#pragma unroll
  for (int o = 0; o < Term::outputs; ++o) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < n; ++i) shared[threadIdx.y][threadIdx.x + 32 * i] = sum[o][i];
    __syncthreads();
    if (static_cast<int>(threadIdx.y) < n) {
      const int i = static_cast<int>(threadIdx.y);
      float total = 0.0f;
      for (int w = 0; w < warps; ++w) total += shared[w][threadIdx.x + 32 * i];
      if (column < columns)
        partial[(static_cast<std::int64_t>(o) * gridDim.y + blockIdx.y) * columns + column + i] =
            total;
    }
  }
}

/// out[o] (columns) = sum over chunks. Grid: (groups of 32 columns, outputs); block: (32, warps).
template <class T>
__global__ void chunk_sums_kernel(T* out_0, T* out_1, const float* partial, std::int64_t chunks,
                                  std::int64_t columns) {
  __shared__ float shared[warps][33];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const float* const from = partial + blockIdx.y * chunks * columns;
  float sum = 0.0f;
  if (column < columns)
    for (std::int64_t chunk = threadIdx.y; chunk < chunks; chunk += warps)
      sum += from[chunk * columns + column];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = 0.0f;
  for (int w = 0; w < warps; ++w) total += shared[w][threadIdx.x];
  (blockIdx.y == 0 ? out_0 : out_1)[column] = from_float<T>(total);
}

template <class T, class Term>
void sum_columns(T* out_0, T* out_1, Term term, std::int64_t rows, std::int64_t columns,
                 float* scratch, bool vectors, StreamHandle stream) {
  constexpr int n = vector_width<T>;
  static_assert(n <= warps);
  const std::int64_t chunks = chunk_count(rows);
  const dim3 block(32, warps);
  const auto y = static_cast<unsigned>(chunks);
  if (vectors)
    launch("column sum", partial_sums_kernel<n, Term>, dim3(blocks_of(columns, 32 * n), y), block,
           0, stream, scratch, term, rows, columns, chunk_rows(rows));
  else
    launch("column sum", partial_sums_kernel<1, Term>, dim3(blocks_of(columns, 32), y), block, 0,
           stream, scratch, term, rows, columns, chunk_rows(rows));
  launch("column sum", chunk_sums_kernel<T>,
         dim3(blocks_of(columns, 32), static_cast<unsigned>(Term::outputs)), block, 0, stream,
         out_0, out_1, scratch, chunks, columns);
}

}  // namespace

std::size_t column_scratch(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(2 * chunk_count(rows) * columns);
}

template <class T>
void column_sum(T* out, const T* x, std::int64_t rows, std::int64_t columns, float* scratch,
                StreamHandle stream) {
  sum_columns(native(out), native(out), PlainTerm<DeviceType<T>>{native(x)}, rows, columns, scratch,
              are_vectors<T>(columns, x), stream);
}

template <class T>
void gelu_backward(T* dx, T* dbias, const T* dout, const T* x, std::int64_t rows,
                   std::int64_t columns, float* scratch, StreamHandle stream) {
  sum_columns(native(dbias), native(dbias),
              GeluTerm<DeviceType<T>>{native(dx), native(dout), native(x)}, rows, columns, scratch,
              are_vectors<T>(columns, dx, dout, x), stream);
}

template <class T>
void layernorm_weight_gradients(T* dweight, T* dbias, const T* dout, const T* x, const float* mean,
                                const float* rstd, std::int64_t rows, std::int64_t width,
                                float* scratch, StreamHandle stream) {
  sum_columns(native(dweight), native(dbias),
              LayernormTerm<DeviceType<T>>{native(dout), native(x), mean, rstd}, rows, width,
              scratch, are_vectors<T>(width, dout, x), stream);
}

#define TRAIN_GPT_INSTANTIATE(T)                                                                   \
  template void column_sum(T*, const T*, std::int64_t, std::int64_t, float*, StreamHandle);        \
  template void gelu_backward(T*, T*, const T*, const T*, std::int64_t, std::int64_t, float*,      \
                              StreamHandle);                                                       \
  template void layernorm_weight_gradients(T*, T*, const T*, const T*, const float*, const float*, \
                                           std::int64_t, std::int64_t, float*, StreamHandle);
TRAIN_GPT_INSTANTIATE(float)
TRAIN_GPT_INSTANTIATE(flatshard::Bf16)
TRAIN_GPT_INSTANTIATE(flatshard::Half)

}  // namespace train_gpt::gpu
