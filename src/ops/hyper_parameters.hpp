// Ranges of hyper-parameters, checked with a message that names optimizer, parameter and value.
#pragma once

#include <flatshard/core/error.hpp>

#include <fmt/format.h>

#include <cmath>
#include <string_view>

namespace flatshard::detail {

inline std::string range_message(std::string_view optimizer, std::string_view name, double value,
                                 std::string_view range) {
  return fmt::format("{}: {} is {}; it must be {}", optimizer, name, value, range);
}

inline void expect_not_negative(std::string_view optimizer, std::string_view name, double value) {
  FLATSHARD_EXPECTS(std::isfinite(value) && value >= 0,
                    range_message(optimizer, name, value, "finite and at least 0"));
}

inline void expect_share(std::string_view optimizer, std::string_view name, double value) {
  FLATSHARD_EXPECTS(value >= 0 && value < 1,
                    range_message(optimizer, name, value, "at least 0 and below 1"));
}

/// Above zero after rounding to float, too: what divides must not become zero.
inline void expect_positive_float(std::string_view optimizer, std::string_view name, double value) {
  FLATSHARD_EXPECTS(std::isfinite(value) && static_cast<float>(value) > 0,
                    range_message(optimizer, name, value, "finite and above 0, as a float too"));
}

}  // namespace flatshard::detail
