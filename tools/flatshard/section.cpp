#include "section.hpp"

#include <fmt/format.h>
#include <flatshard/layout/nearest_names.hpp>

#include <algorithm>
#include <cmath>

#include "error.hpp"

namespace flatshard_tool {
namespace {

constexpr std::string_view automatic = "auto";
const Map no_keys;

std::string upper_case(std::string_view text) {
  std::string upper(text);
  for (char& letter : upper)
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  return upper;
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    const std::string part = text.substr(start, comma - start);
    const std::size_t first = part.find_first_not_of(' ');
    if (first != std::string::npos)
      parts.push_back(part.substr(first, part.find_last_not_of(' ') - first + 1));
    start = comma + 1;
  }
  return parts;
}

std::string shown(const Value& value) { return brief(to_string(value)); }

/// Numbers beyond 64 bits become the nearest: their bounds refuse them.
std::optional<std::int64_t> as_whole(const Value& value) {
  if (const std::int64_t* integer = value.integer()) return *integer;
  const double* number = value.number();
  constexpr double limit = 9.2e18;
  if (number == nullptr || std::floor(*number) != *number) return {};
  return static_cast<std::int64_t>(std::clamp(*number, -limit, limit));
}

}  // namespace

Section::Section(const Value& value, std::string source, std::string path)
    : map_(value.is_null() ? &no_keys : value.map()),
      source_(std::move(source)),
      path_(std::move(path)) {
  if (map_ == nullptr)
    throw RequestError(fmt::format("{}: {} must be a map of keys and values, not {}", source_,
                                   path_.empty() ? "the file" : path_, shown(value)));
}

std::string Section::name_of(std::string_view key) const {
  return path_.empty() ? brief(key) : fmt::format("{}.{}", path_, brief(key));
}

void Section::fail(std::string_view key, const std::string& what) const {
  throw RequestError(fmt::format("{}: {} {}", source_, name_of(key), what));
}

bool Section::has(std::string_view key) const {
  const Value* value = find(*map_, key);
  return value != nullptr && !value->is_null();
}

bool Section::is_auto(std::string_view key) const {
  const Value* value = find(*map_, key);
  return value != nullptr && *value == Value(automatic);
}

const Value* Section::value(std::string_view key) {
  asked_.emplace(key);
  return has(key) ? find(*map_, key) : nullptr;
}

const Value* Section::look_up(std::string_view key) {
  const Value* found = value(key);
  return is_auto(key) ? nullptr : found;
}

bool Section::skip(std::string_view key) { return value(key) != nullptr; }

std::optional<bool> Section::boolean(std::string_view key) {
  const Value* found = look_up(key);
  if (found == nullptr) return {};
  if (const bool* flag = found->boolean()) return *flag;
  const std::string* text = found->text();  // Accelerate passes all values on as words
  if (text != nullptr && upper_case(*text) == "TRUE") return true;
  if (text != nullptr && upper_case(*text) == "FALSE") return false;
  fail(key, "must be true or false, not " + shown(*found));
}

std::optional<std::int64_t> Section::whole(std::string_view key, std::int64_t least,
                                           std::int64_t most) {
  const Value* found = look_up(key);
  if (found == nullptr) return {};
  const std::optional<std::int64_t> number = as_whole(*found);
  if (!number) fail(key, "must be a whole number, not " + shown(*found));
  if (*number < least) fail(key, fmt::format("must be at least {}, not {}", least, shown(*found)));
  if (*number > most) fail(key, fmt::format("must be at most {}, not {}", most, shown(*found)));
  return number;
}

std::optional<double> Section::number(std::string_view key, double least) {
  const Value* found = look_up(key);
  if (found == nullptr) return {};
  const double* real = found->number();
  const std::int64_t* integer = found->integer();
  if (real == nullptr && integer == nullptr) fail(key, "must be a number, not " + shown(*found));
  const double number = real != nullptr ? *real : static_cast<double>(*integer);
  if (!(number >= least) || !std::isfinite(number))
    fail(key, fmt::format("must be a finite number of at least {}, not {}", least, number));
  return number;
}

std::optional<std::string> Section::text(std::string_view key) {
  const Value* found = look_up(key);
  if (found == nullptr) return {};
  if (found->text() == nullptr) fail(key, "must be a word, not " + shown(*found));
  return *found->text();
}

std::optional<std::string> Section::choice(std::string_view key,
                                           std::initializer_list<std::string_view> names) {
  const Value* found = look_up(key);
  if (found == nullptr) return {};
  const std::string given =
      found->text() != nullptr ? upper_case(*found->text()) : to_string(*found);
  for (const std::string_view name : names)
    if (upper_case(name) == given) return std::string(name);
  fail(key, fmt::format("must be one of {}, not {}", fmt::join(names, ", "), shown(*found)));
}

std::vector<std::string> Section::names(std::string_view key) {
  const Value* found = look_up(key);
  if (found == nullptr) return {};
  if (const std::string* text = found->text()) return split_at_commas(*text);
  if (found->list() == nullptr) fail(key, "must be names, not " + shown(*found));
  std::vector<std::string> all;
  for (const Value& entry : *found->list()) {
    if (entry.text() == nullptr) fail(key, "must be names, not " + shown(entry));
    all.push_back(*entry.text());
  }
  return all;
}

std::optional<Section> Section::section(std::string_view key) {
  const Value* found = look_up(key);
  if (found == nullptr) return {};
  return Section(*found, source_, name_of(key));
}

void Section::expect_all_read() const {
  const std::vector<std::string> known(asked_.begin(), asked_.end());
  for (const auto& [key, value] : *map_)
    if (!asked_.contains(key))
      fail(key, fmt::format("is not a key that exists here; near to it: {}",
                            fmt::join(flatshard::nearest_names(brief(key), known), ", ")));
}

}  // namespace flatshard_tool
