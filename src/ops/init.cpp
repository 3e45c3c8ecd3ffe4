#include <flatshard/core/error.hpp>
#include <flatshard/ops/init.hpp>
#include <flatshard/tensor/convert.hpp>

#include <fmt/format.h>

#include <cmath>

namespace flatshard {
namespace {

template <class Init, class Element>
FLATSHARD_INLINE void fill_loop(const Init& initializer, Element* destination,
                                Elements canonical_begin, Elements count) {
  for (Elements i = 0; i < count; ++i)
    destination[i] = from_double<Element>(initializer.value(canonical_begin + i));
}

#if defined(__x86_64__)
// The same loop with the fma instruction, which the baseline would emulate by calls.
template <class Init, class Element>
__attribute__((target("fma"))) void fill_fused(const Init& initializer, Element* destination,
                                               Elements canonical_begin, Elements count) {
  fill_loop(initializer, destination, canonical_begin, count);
}
bool has_fma() { return __builtin_cpu_supports("fma"); }
#else
template <class Init, class Element>
void fill_fused(const Init& initializer, Element* destination, Elements canonical_begin,
                Elements count) {
  fill_loop(initializer, destination, canonical_begin, count);
}
bool has_fma() { return false; }
#endif

template <class Init, class Element>
void fill_as(const Init& initializer, void* destination, Elements canonical_begin, Elements count) {
  auto* elements = static_cast<Element*>(destination);
  if (has_fma())
    fill_fused(initializer, elements, canonical_begin, count);
  else
    fill_loop(initializer, elements, canonical_begin, count);
}

template <class Init>
auto fill_of(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return fill_as<Init, double>;
    case DType::Float32:
      return fill_as<Init, float>;
    case DType::BFloat16:
      return fill_as<Init, Bf16>;
    case DType::Float16:
      return fill_as<Init, Half>;
    case DType::Float8E4M3:
      return fill_as<Init, Float8E4M3>;
    case DType::Float8E5M2:
      return fill_as<Init, Float8E5M2>;
    default:
      throw UsageError(fmt::format("fill: {} is not a floating dtype", name_of(dtype)));
  }
}

void check(const init::normal& normal) {
  FLATSHARD_EXPECTS(
      std::isfinite(normal.stddev) && normal.stddev >= 0,
      fmt::format("init::normal: stddev is {}; it must be finite and at least 0", normal.stddev));
}
void check(const init::uniform& uniform) {
  FLATSHARD_EXPECTS(
      std::isfinite(uniform.hi - uniform.lo) && uniform.lo <= uniform.hi,
      fmt::format("init::uniform: from {} to {} is no finite interval", uniform.lo, uniform.hi));
}
void check(const init::constant&) {}
void check(const init::zeros&) {}

}  // namespace

void fill(const Initializer& initializer, DType dtype, void* destination, Elements canonical_begin,
          Elements count) {
  const auto fill_with = [&](const auto& init) {
    check(init);
    fill_of<std::decay_t<decltype(init)>>(dtype)(init, destination, canonical_begin, count);
  };
  std::visit(fill_with, initializer);
}

}  // namespace flatshard
