// The only five operations by which the library rounds. Each rounds once, to nearest even, on host
// and device, whatever flags the including file is compiled with; compare, select, negate, abs, min
// and max are exact and need no names.
//
// Rule for their users: no product is an operand of + or -; write it as fma. Then no setting of
// floating-point contraction can change a bit. (The addend of an fma may be a product.)
#pragma once

#include <flatshard/config.hpp>

#if defined(__FLT_EVAL_METHOD__) && (__FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2)
#error "flatshard cannot keep its bits with excess precision: compile with -mfpmath=sse"
#endif

namespace flatshard::exact {

#if defined(__CUDA_ARCH__)

// PTX that names its rounding: -fmad, -ftz, -prec-div and -prec-sqrt do not reach it.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float mul(float a, float b) {
  float result;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float add(float a, float b) {
  float result;
  asm("add.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float fma(float a, float b, float c) {
  float result;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(result) : "f"(a), "f"(b), "f"(c));
  return result;
}
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float div(float a, float b) {
  float result;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float sqrt(float a) {
  float result;
  asm("sqrt.rn.f32 %0, %1;" : "=f"(result) : "f"(a));
  return result;
}
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double mul(double a, double b) {
  double result;
  asm("mul.rn.f64 %0, %1, %2;" : "=d"(result) : "d"(a), "d"(b));
  return result;
}
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double add(double a, double b) {
  double result;
  asm("add.rn.f64 %0, %1, %2;" : "=d"(result) : "d"(a), "d"(b));
  return result;
}
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double fma(double a, double b, double c) {
  double result;
  asm("fma.rn.f64 %0, %1, %2, %3;" : "=d"(result) : "d"(a), "d"(b), "d"(c));
  return result;
}
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double div(double a, double b) {
  double result;
  asm("div.rn.f64 %0, %1, %2;" : "=d"(result) : "d"(a), "d"(b));
  return result;
}
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double sqrt(double a) {
  double result;
  asm("sqrt.rn.f64 %0, %1;" : "=d"(result) : "d"(a));
  return result;
}

#else

// Where the target has no fused multiply-add instruction, fma is the C library's: exact, and slow.
// sqrt is one instruction only under -fno-math-errno.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float mul(float a, float b) { return a * b; }
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float add(float a, float b) { return a + b; }
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float div(float a, float b) { return a / b; }
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float sqrt(float a) { return __builtin_sqrtf(a); }
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double mul(double a, double b) { return a * b; }
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double add(double a, double b) { return a + b; }
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double fma(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double div(double a, double b) { return a / b; }
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double sqrt(double a) { return __builtin_sqrt(a); }

#endif

}  // namespace flatshard::exact
