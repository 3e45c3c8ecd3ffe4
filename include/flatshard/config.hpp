// Version, attributes and the compiler gate. Includes nothing of ours.
#pragma once

#define FLATSHARD_VERSION_MAJOR 0
#define FLATSHARD_VERSION_MINOR 1
#define FLATSHARD_VERSION_PATCH 0

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "flatshard needs C++20: compile with -std=c++20 or newer"
#endif

// Value-changing parts of -ffast-math would break the promise of equal bits (DESIGN.md, One hash).
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) || \
    defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || defined(__NO_SIGNED_ZEROS__)
#ifndef __CUDACC__
#error \
    "flatshard cannot keep its bits under -ffast-math: remove it (or add -fno-fast-math for this file)"
#endif
#endif

// Callable from host and device code; plain inline code for a host compiler.
#if defined(__CUDACC__)
#define FLATSHARD_HOST_DEVICE __host__ __device__
#else
#define FLATSHARD_HOST_DEVICE
#endif

// Inlined whatever the optimisation level: kernels built for one instruction set must not share an
// out-of-line copy with kernels built for another.
#define FLATSHARD_INLINE inline __attribute__((always_inline))

// On functions whose unsigned arithmetic wraps on purpose, which clang's -fsanitize=integer would
// report.
#if defined(__clang__)
#define FLATSHARD_WRAPS __attribute__((no_sanitize("unsigned-integer-overflow")))
#else
#define FLATSHARD_WRAPS
#endif
