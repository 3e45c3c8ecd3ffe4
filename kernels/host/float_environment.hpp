// Floating-point control of the calling thread, set to its default and restored: a user's
// flush-to-zero or rounding mode must not change the library's bits, nor the library's the user's.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace flatshard::host {

/// Default rounding, no flushing of denormals, no traps, while it lives. Exceptions' sticky flags
/// are restored with the rest.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

#if defined(__SSE2__)
  DefaultFloatEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(default_control); }
  ~DefaultFloatEnvironment() { _mm_setcsr(saved_); }

 private:
  static constexpr unsigned default_control = 0x1f80;  // every exception masked
  unsigned saved_;
#else
  DefaultFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;
#endif
};

}  // namespace flatshard::host
