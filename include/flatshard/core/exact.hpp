// The only operations by which the library rounds: add, mul, fma, div, sqrt, and double to float.
// Each rounds once, to nearest even, on host and device, whatever flags the including file is
// compiled with. Select, and compares and negations of doubles, are exact and need no names; of
// floats they do, because nvcc --use_fast_math flushes denormals even there.
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

FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float negate(float a) {
  float result;
  asm("neg.f32 %0, %1;" : "=f"(result) : "f"(a));
  return result;
}
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE bool is_less(float a, float b) {
  int result;
  asm("{ .reg .pred p; setp.lt.f32 p, %1, %2; selp.s32 %0, 1, 0, p; }"
      : "=r"(result)
      : "f"(a), "f"(b));
  return result != 0;
}
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float to_float(double a) {
  float result;
  asm("cvt.rn.f32.f64 %0, %1;" : "=f"(result) : "d"(a));
  return result;
}
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double to_double(float a) {
  double result;
  asm("cvt.f64.f32 %0, %1;" : "=d"(result) : "f"(a));
  return result;
}

#else

// Where the target has no fused multiply-add instruction, fma is the C library's: exact, and slow.
// sqrt is one instruction only under -fno-math-errno.
/// a * b.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float mul(float a, float b) { return a * b; }
/// a + b.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float add(float a, float b) { return a + b; }
/// a * b + c, rounded once.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
/// a / b.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float div(float a, float b) { return a / b; }
/// The square root of a.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float sqrt(float a) { return __builtin_sqrtf(a); }
/// a * b.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double mul(double a, double b) { return a * b; }
/// a + b.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double add(double a, double b) { return a + b; }
/// a * b + c, rounded once.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double fma(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
/// a / b.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double div(double a, double b) { return a / b; }
/// The square root of a.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double sqrt(double a) { return __builtin_sqrt(a); }
/// -a: exact, zeros and NaN too.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float negate(float a) { return -a; }
/// a < b; false if either is NaN.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE bool is_less(float a, float b) { return a < b; }
/// a rounded once to nearest even.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE float to_float(double a) { return static_cast<float>(a); }
/// a, exactly.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double to_double(float a) { return a; }

#endif

/// -a: exact, zeros and NaN too.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE double negate(double a) { return -a; }
/// a < b; false if either is NaN.
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE bool is_less(double a, double b) { return a < b; }

/// `a` rounded once to float, or as it is.
template <class Real>
FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Real round_to(double a) {
  if constexpr (sizeof(Real) == sizeof(float))
    return to_float(a);
  else
    return a;
}

}  // namespace flatshard::exact
