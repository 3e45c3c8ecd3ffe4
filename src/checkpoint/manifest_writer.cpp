#include <flatshard/checkpoint/manifest.hpp>
#include <flatshard/config.hpp>

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "json_text.hpp"
#include "manifest_rules.hpp"

namespace flatshard {
namespace {

// One line per member, tensor and file, so that two manifests can be compared by eye and by diff.

std::string json_string(std::string_view text) {
  std::string json;
  detail::append_json_string(json, text);
  return json;
}

std::string hexadecimal(std::uint32_t digest) { return fmt::format("\"{:08x}\"", digest); }

/// The shortest decimal that gives these bits again; with a fraction or an exponent, so that no
/// reader takes -0.0 for the integer 0.
std::string decimal(double value) {
  FLATSHARD_EXPECTS(std::isfinite(value), fmt::format("manifest: {} cannot be written", value));
  char digits[32];
  const auto [end, code] = std::to_chars(digits, digits + sizeof digits, value);
  std::string text(digits, end);
  return text.find_first_of(".e") == text.npos ? text + ".0" : text;
}

/// The items between two brackets, `separator` between them.
template <class Range, class Write>
std::string list(const char* open, const Range& range, const char* separator, const char* close,
                 Write write) {
  std::string text = open;
  const char* before = "";
  for (const auto& item : range) text += before + write(item), before = separator;
  return text + close;
}

template <class Pairs, class Write>
std::string object(const Pairs& pairs, const char* separator, Write write) {
  return list("{", pairs, separator, "}", [&](const auto& pair) {
    return json_string(pair.first) + ": " + write(pair.second);
  });
}

std::string number(std::int64_t value) { return std::to_string(value); }
std::string truth(bool value) { return value ? "true" : "false"; }

std::string json_of(const HyperParameters& group) { return object(group.values, ", ", decimal); }

std::string json_of(const OptimizerRecord& optimizer) {
  return fmt::format(
      "{{\n    \"name\": {},\n    \"states\": {},\n    \"groups\": {},\n    \"time\": {},\n"
      "    \"times\": {}\n  }}",
      json_string(optimizer.name), list("[", optimizer.states, ", ", "]", json_string),
      list("[", optimizer.groups, ",\n               ", "]",
           [](const HyperParameters& group) { return json_of(group); }),
      optimizer.time, object(optimizer.times, ",\n              ", number));
}

std::string json_of(const ScaleSettings& settings) {
  return fmt::format(
      R"({{"rule": "{}", "initial": {}, "growth": {}, "backoff": {}, "interval": {}, "minimum": {}, )"
      R"("hysteresis": {}, "consecutive": {}, "error_at_minimum": {}}})",
      detail::name_of(settings.rule), decimal(settings.initial), decimal(settings.growth),
      decimal(settings.backoff), settings.interval, decimal(settings.minimum), settings.hysteresis,
      truth(settings.consecutive), truth(settings.error_at_minimum));
}

std::string json_of(const ScaleState& state) {
  return fmt::format(
      R"({{"scale": {}, "good_steps": {}, "step": {}, "last_overflow": {}, "left": {}}})",
      decimal(static_cast<double>(state.scale)), state.good_steps, state.step, state.last_overflow,
      state.left);
}

std::string json_of(const LossScaler& scaler) {
  return fmt::format("{{\n    \"settings\": {},\n    \"state\": {}\n  }}", json_of(scaler.settings),
                     json_of(scaler.state));
}

std::string json_of(const TensorDigest& tensor) {
  return fmt::format(R"({{"name": {}, "dtype": {}, "shape": {}, "crc32c": {}}})",
                     json_string(tensor.name), json_string(tensor.dtype),
                     list("[", tensor.shape, ", ", "]", number), hexadecimal(tensor.crc32c));
}

std::string json_of(const FileDigest& file) {
  return fmt::format(
             R"({{"name": {}, "bytes": {}, "header_bytes": {}, "header_crc32c": {}, "tensors": )",
             json_string(file.name), file.bytes, file.header_bytes,
             hexadecimal(file.header_crc32c)) +
         list("[\n      ", file.tensors, ",\n      ", "]}",
              [](const TensorDigest& tensor) { return json_of(tensor); });
}

void append(std::string& text, const char* key, const std::string& value) {
  text += fmt::format("{}\n  \"{}\": {}", text.size() > 1 ? "," : "", key, value);
}

std::string library_version() {
  return fmt::format("{}.{}.{}", FLATSHARD_VERSION_MAJOR, FLATSHARD_VERSION_MINOR,
                     FLATSHARD_VERSION_PATCH);
}

std::string members_of(const Manifest& manifest) {
  std::string text = "{";
  append(text, "format", json_string(detail::manifest_format));
  append(text, "version", number(manifest.version));
  append(text, "library",
         json_string(manifest.library.empty() ? library_version() : manifest.library));
  append(text, "save_id", json_string(manifest.save_id));
  append(text, "step", number(manifest.step));
  append(text, "world", number(manifest.world));
  append(text, "strategy", json_string(manifest.strategy));
  append(text, "precision", json_string(manifest.precision));
  if (manifest.seed) append(text, "seed", std::to_string(*manifest.seed));
  if (manifest.loss_scaler) append(text, "loss_scaler", json_of(*manifest.loss_scaler));
  if (manifest.optimizer) append(text, "optimizer", json_of(*manifest.optimizer));
  append(text, "ties", object(manifest.ties, ",\n    ", json_string));
  append(text, "user", object(manifest.user, ",\n    ", json_string));
  append(text, "files", list("[\n    ", manifest.files, ",\n    ", "]", [](const FileDigest& file) {
           return json_of(file);
         }));
  return text;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  const std::string fault = detail::contradiction_in(manifest);
  FLATSHARD_EXPECTS(fault.empty(), "manifest: " + fault);
  const std::string members = members_of(manifest);
  return members + detail::digest_tail(members);
}

}  // namespace flatshard
