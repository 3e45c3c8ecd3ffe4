// Counts the calls of a program that allocate, free or wait, on their way to the CUDA runtime: the
// program's own functions go before those of the shared library. Include it in one source.
#pragma once

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <atomic>

namespace flatshard_test {

inline std::atomic<int> allocations{0}, waits{0}, event_waits{0};

/// The runtime's own function of that name.
template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace flatshard_test

#define COUNTED(counter, name, parameters, arguments)                                    \
  extern "C" cudaError_t CUDARTAPI name parameters {                                     \
    flatshard_test::counter.fetch_add(1);                                                \
    static const auto function = flatshard_test::next<cudaError_t(*) parameters>(#name); \
    return function arguments;                                                           \
  }

COUNTED(allocations, cudaMalloc, (void** pointer, size_t bytes), (pointer, bytes))
COUNTED(allocations, cudaFree, (void* pointer), (pointer))
COUNTED(allocations, cudaMallocAsync, (void** pointer, size_t bytes, cudaStream_t stream),
        (pointer, bytes, stream))
COUNTED(allocations, cudaHostRegister, (void* pointer, size_t bytes, unsigned flags),
        (pointer, bytes, flags))
COUNTED(allocations, cudaHostUnregister, (void* pointer), (pointer))
COUNTED(waits, cudaDeviceSynchronize, (), ())
COUNTED(waits, cudaStreamSynchronize, (cudaStream_t stream), (stream))
COUNTED(waits, cudaMemcpy, (void* to, const void* from, size_t bytes, cudaMemcpyKind kind),
        (to, from, bytes, kind))
COUNTED(event_waits, cudaEventSynchronize, (cudaEvent_t event), (event))

#undef COUNTED
