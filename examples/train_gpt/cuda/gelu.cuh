#pragma once
// GELU in its tanh form: x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3), as on the host.
#include "device_code.cuh"

namespace train_gpt::gpu {

template <class T>
__device__ inline float gelu_gate(float x) {
  const float twice_u = 1.59576912160573071f * (x + 0.044715f * (x * x * x));
  return quotient<T>(1.0f, 1.0f + exponential<T>(-twice_u));
}

template <class T>
__device__ inline float gelu(float x) {
  return x * gelu_gate<T>(x);
}

/// d gelu / dx.
template <class T>
__device__ inline float gelu_slope(float x) {
  const float gate = gelu_gate<T>(x);
  const float slope = 1.59576912160573071f * (1.0f + 0.134145f * (x * x));
  return gate + x * (gate * (1.0f - gate) * slope);
}

}  // namespace train_gpt::gpu
