// Between the second and the last step nothing is allocated or freed on the device or pinned, and
// the host waits for nothing but the report of the step before the last: every call that would is
// counted on its way to the CUDA runtime.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <flatshard/comm/solo.hpp>
#include <flatshard/core/cuda_device.hpp>

#include <atomic>

#include "training.hpp"

using namespace sharder_test;

namespace {

std::atomic<int> allocations{0}, waits{0}, event_waits{0};

/// The runtime's own function of that name.
template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// The program's own functions go before those of the shared library.
#define COUNTED(counter, name, parameters, arguments)                    \
  extern "C" cudaError_t CUDARTAPI name parameters {                     \
    counter.fetch_add(1);                                                \
    static const auto function = next<cudaError_t(*) parameters>(#name); \
    return function arguments;                                           \
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

TEST_CASE("engine on a GPU: steady steps allocate nothing and wait for one report") {
  for (const StrategyName strategy : all_strategies)
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed}) {
      CAPTURE(std::string(name_of(strategy)));
      CudaDevice device;
      Solo alone(device);
      const TestModel test;
      Options options;
      options.max_grad_norm = 1;
      options.groups.resize(2);
      const auto trainer = make_trainer(strategy, precision, alone, test.model, AdamW{}, options);
      Engine& engine = trainer->engine();
      trainer->initialize(init::normal{0.5, 1});
      constexpr int steps = 10;
      const auto step = [&] {
        for (const Module& module : test.calls) trainer->forward(module, [](const Views&) {});
        for (auto module = test.calls.rbegin(); module != test.calls.rend(); ++module)
          trainer->backward(*module, [&](const Views& views) {
            for (const Parameter parameter : test.parameters_of(*module)) {
              if (parameter == test.frozen) continue;
              const Values weights = views.weights(parameter);
              const Values gradients = views.gradients(parameter);
              device.kernels().add(weights.data, weights.dtype, gradients.data, gradients.dtype,
                                   weights.count, engine.compute_stream());
            }
          });
        trainer->step();
      };
      step();
      step();
      const int allocated = allocations.load(), waited = waits.load();
      const int reports = event_waits.load();
      REQUIRE(allocated > 0);  // the counters see what the library calls
      for (int i = 2; i < steps; ++i) step();
      CHECK(allocations.load() == allocated);
      CHECK(waits.load() == waited);
      CHECK(event_waits.load() == reports + steps - 2);
      engine.synchronize();
      CHECK(waits.load() > waited);
    }
}
