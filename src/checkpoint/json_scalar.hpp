// A JSON value without parts, and what a reader that expects one thing makes of it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace flatshard::detail {

struct JsonScalar {
  enum class Kind : std::uint8_t { Null, Boolean, Unsigned, Negative, Real, String };

  Kind kind = Kind::Null;
  bool boolean = false;
  std::uint64_t whole = 0;    // Unsigned
  std::int64_t negative = 0;  // Negative
  double real = 0;            // Real
  std::string text = {};      // String

  /// "a string", "a number", ... for messages.
  const char* name() const;
  /// Integers in [least, most] that were written as integers.
  std::optional<std::int64_t> integer(
      std::int64_t least, std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
  /// Any number; an integer only where a double holds it exactly.
  std::optional<double> number() const;
  /// A string of eight hexadecimal digits.
  std::optional<std::uint32_t> hexadecimal() const;
};

}  // namespace flatshard::detail
