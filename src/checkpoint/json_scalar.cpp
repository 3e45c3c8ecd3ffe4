#include "json_scalar.hpp"

#include <charconv>

namespace flatshard::detail {
namespace {

constexpr std::int64_t most_exact = std::int64_t{1} << 53;  // a double holds all integers up to it

}  // namespace

const char* JsonScalar::name() const {
  if (kind == Kind::Null) return "null";
  if (kind == Kind::Boolean) return boolean ? "true" : "false";
  return kind == Kind::String ? "a string" : "a number";
}

std::optional<std::int64_t> JsonScalar::integer(std::int64_t least, std::int64_t most) const {
  constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (kind != Kind::Negative && (kind != Kind::Unsigned || whole > largest)) return std::nullopt;
  const std::int64_t value = kind == Kind::Negative ? negative : static_cast<std::int64_t>(whole);
  return value >= least && value <= most ? std::optional(value) : std::nullopt;
}

std::optional<double> JsonScalar::number() const {
  if (kind == Kind::Real) return real;
  const auto value = integer(-most_exact, most_exact);
  return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
}

std::optional<std::uint32_t> JsonScalar::hexadecimal() const {
  const bool is_plain = text.size() == 8 && text.find_first_not_of("0123456789abcdef") == text.npos;
  if (kind != Kind::String || !is_plain) return std::nullopt;
  std::uint32_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

}  // namespace flatshard::detail
