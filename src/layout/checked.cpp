#include <flatshard/layout/checked.hpp>

#include <fmt/format.h>

namespace flatshard::detail {
namespace {

[[noreturn]] void refuse(const char* what, Elements a, char operation, Elements b) {
  throw UsageError(fmt::format("{}: {} {} {} is above 2^63 - 1 elements", what, a, operation, b),
                   {__FILE__, __LINE__});
}

}  // namespace

Elements checked_add(Elements a, Elements b, const char* what) {
  Elements sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) refuse(what, a, '+', b);
  return sum;
}

Elements checked_multiply(Elements a, Elements b, const char* what) {
  Elements product = 0;
  if (__builtin_mul_overflow(a, b, &product)) refuse(what, a, '*', b);
  return product;
}

Elements checked_round_up(Elements a, Elements b, const char* what) {
  return checked_multiply(ceil_div(a, b), b, what);
}

std::vector<Elements> aligned_starts(std::span<const Elements> numels, Elements alignment,
                                     const char* what) {
  FLATSHARD_EXPECTS(alignment >= 1,
                    fmt::format("{}: alignment is {}, must be at least 1", what, alignment));
  std::vector<Elements> starts;
  Elements end = 0;
  for (const Elements numel : numels) {
    FLATSHARD_EXPECTS(numel >= 0,
                      fmt::format("{}: parameter {} has {} elements", what, starts.size(), numel));
    starts.push_back(checked_round_up(end, alignment, what));
    end = checked_add(starts.back(), numel, what);
  }
  starts.push_back(end);
  return starts;
}

}  // namespace flatshard::detail
