#include "numbers.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "error.hpp"

namespace flatshard_tool {
namespace {

template <class Number>
bool reads_as(std::string_view text, Number& number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return !text.empty() && error == std::errc{} && stop == text.data() + text.size();
}

struct Unit {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array<Unit, 11> units{{{"KiB", std::int64_t{1} << 10},
                                      {"MiB", std::int64_t{1} << 20},
                                      {"GiB", std::int64_t{1} << 30},
                                      {"TiB", std::int64_t{1} << 40},
                                      {"kB", 1000},
                                      {"KB", 1000},
                                      {"MB", 1000000},
                                      {"GB", 1000000000},
                                      {"TB", 1000000000000},
                                      {"B", 1},
                                      {"", 1}}};

}  // namespace

std::int64_t whole_number(const std::string& option, const std::string& text, std::int64_t least,
                          std::int64_t most) {
  std::int64_t number = 0;
  if (!reads_as(text, number) || number < least || number > most)
    throw RequestError(
        fmt::format("{} takes a whole number from {} to {}, not '{}'", option, least, most, text));
  return number;
}

double real_number(const std::string& option, const std::string& text, double least, bool above) {
  double number = 0;
  const bool valid =
      reads_as(text, number) && std::isfinite(number) && (above ? number > least : number >= least);
  if (!valid)
    throw RequestError(fmt::format("{} takes a number {} {}, not '{}'", option,
                                   above ? "above" : "of at least", least, text));
  return number;
}

std::int64_t byte_count(const std::string& option, const std::string& text) {
  for (const Unit& unit : units) {
    if (!std::string_view(text).ends_with(unit.name)) continue;
    const std::string digits = text.substr(0, text.size() - unit.name.size());
    return unit.bytes * whole_number(option, digits, 1, INT64_MAX / unit.bytes);
  }
  throw RequestError(option + " takes a number of bytes, not '" + text + "'");
}

}  // namespace flatshard_tool
