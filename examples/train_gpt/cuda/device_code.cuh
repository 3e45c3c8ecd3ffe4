#pragma once
// What every kernel here is written with: numbers as float, vectors of 16 bytes, sums over a warp.
#include <flatshard/tensor/dtype.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace train_gpt::gpu {

/// The device's own type for a storage type of the library.
template <class Storage>
struct DeviceTypeOf {
  using type = Storage;
};
template <>
struct DeviceTypeOf<flatshard::Bf16> {
  using type = __nv_bfloat16;
};
template <>
struct DeviceTypeOf<flatshard::Half> {
  using type = __half;
};
template <class Storage>
using DeviceType = typename DeviceTypeOf<Storage>::type;

template <class Storage>
DeviceType<Storage>* native(Storage* p) {
  return reinterpret_cast<DeviceType<Storage>*>(p);
}
template <class Storage>
const DeviceType<Storage>* native(const Storage* p) {
  return reinterpret_cast<const DeviceType<Storage>*>(p);
}

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_float(__half x) { return __half2float(x); }

template <class T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}

/// As many elements as one 16-byte access moves.
template <class T>
inline constexpr int vector_width = 16 / static_cast<int>(sizeof(T));

template <class T, int count>
struct alignas(sizeof(T) * count) Vector {
  T element[count];
};

template <int count, class T>
__device__ inline void load_floats(float (&out)[count], const T* from) {
  const auto v = *reinterpret_cast<const Vector<T, count>*>(from);
#pragma unroll
  for (int i = 0; i < count; ++i) out[i] = to_float(v.element[i]);
}

template <int count, class T>
__device__ inline void store_floats(T* to, const float (&in)[count]) {
  Vector<T, count> v;
#pragma unroll
  for (int i = 0; i < count; ++i) v.element[i] = from_float<T>(in[i]);
  *reinterpret_cast<Vector<T, count>*>(to) = v;
}

/// e^x and a / b: exact to an ulp or two for float; for 16-bit types by the processor's
/// approximations, which err by 2^-20 where the result is then rounded to 2^-11 or more.
template <class T>
__device__ inline float exponential(float x) {
  if constexpr (sizeof(T) == 2) return __expf(x);
  return expf(x);
}
template <class T>
__device__ inline float quotient(float a, float b) {
  if constexpr (sizeof(T) == 2) return __fdividef(a, b);
  return a / b;
}

constexpr unsigned whole_warp = 0xffffffffu;

/// The sum over a warp, the same bits in every lane.
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    x += __shfl_xor_sync(whole_warp, x, distance);
  return x;
}

/// A block's memory whose size the launch gives.
__device__ inline unsigned char* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char dynamic_shared_memory[];
  return dynamic_shared_memory;
}

inline void check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw std::runtime_error(std::string{call} + ": " + cudaGetErrorString(error));
}

inline constexpr std::size_t shared_without_asking = 48 * 1024;

/// Enqueues a kernel; `shared`: dynamic bytes per block.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            std::size_t shared, cudaStream_t stream, Arguments... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (shared > shared_without_asking)
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared)),
               name);
  kernel<<<grid, block, shared, stream>>>(static_cast<Parameters>(arguments)...);
  check_cuda(cudaGetLastError(), name);
}

/// True when rows of `width` elements at these addresses are whole, aligned 16-byte vectors.
template <class T, class... Pointers>
bool are_vectors(std::int64_t width, Pointers... pointers) {
  return width % vector_width<T> == 0 &&
         ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

inline unsigned blocks_of(std::int64_t count, std::int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

}  // namespace train_gpt::gpu
