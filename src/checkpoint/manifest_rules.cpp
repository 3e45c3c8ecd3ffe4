#include "manifest_rules.hpp"

#include <flatshard/io/crc32c.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "json_text.hpp"
#include "step_number.hpp"

namespace flatshard::detail {
namespace {

using Names = std::unordered_set<std::string_view>;

template <class Range, class Name>
std::string repeated(const char* what, const Range& range, Name name) {
  Names seen;
  for (const auto& item : range)
    if (!seen.insert(name(item)).second)
      return fmt::format("{} {} twice", what, in_quotes(name(item)));
  return {};
}

template <class Pairs>
std::string repeated_first(const char* what, const Pairs& pairs) {
  return repeated(what, pairs, [](const auto& pair) -> std::string_view { return pair.first; });
}

std::string fault_of(const TensorDigest& tensor) {
  const bool negative = std::any_of(tensor.shape.begin(), tensor.shape.end(),
                                    [](std::int64_t dimension) { return dimension < 0; });
  return negative ? "tensor " + in_quotes(tensor.name) + " has a negative dimension" : "";
}

std::string fault_of(const FileDigest& file) {
  const std::string name = "file " + in_quotes(file.name);
  if (!is_plain_name(file.name) || file.name.starts_with(manifest_name))
    return name + " cannot be part of a checkpoint: its name";
  if (file.header_bytes < 0 || file.header_bytes > file.bytes)
    return name + fmt::format(": {} bytes of header in {} bytes", file.header_bytes, file.bytes);
  for (const TensorDigest& tensor : file.tensors)
    if (std::string fault = fault_of(tensor); !fault.empty()) return fault;
  return repeated("tensor", file.tensors,
                  [](const TensorDigest& tensor) -> std::string_view { return tensor.name; });
}

std::string fault_of(const OptimizerRecord& optimizer) {
  if (optimizer.time < 0) return fmt::format("optimizer: time {} is negative", optimizer.time);
  for (const auto& [name, time] : optimizer.times)
    if (time < 0) return fmt::format("optimizer: time {} of {} is negative", time, in_quotes(name));
  for (const HyperParameters& group : optimizer.groups)
    if (std::string fault = repeated_first("hyper-parameter", group.values); !fault.empty())
      return fault;
  return repeated_first("time of", optimizer.times);
}

std::string fault_of(const LossScaler& scaler) {
  try {
    validate(scaler.settings);
    return {};
  } catch (const UsageError& error) {
    return std::string("loss scaler: ") + error.what();
  }
}

Names names_of(const std::vector<FileDigest>& files) {
  Names names;
  for (const FileDigest& file : files)
    for (const TensorDigest& tensor : file.tensors) names.insert(tensor.name);
  return names;
}

std::string fault_of_ties(const Manifest& manifest) {
  if (manifest.ties.empty()) return {};
  const Names names = names_of(manifest.files);
  for (const auto& [alias, owner] : manifest.ties) {
    if (!names.contains(owner)) return "tie to " + in_quotes(owner) + ", which is no tensor";
    if (names.contains(alias)) return "alias " + in_quotes(alias) + " is a tensor of its own";
  }
  return repeated_first("alias", manifest.ties);
}

std::string fault_of_numbers(const Manifest& manifest) {
  if (manifest.version != manifest_version)
    return fmt::format("version {} is not {}, the one known", manifest.version, manifest_version);
  if (manifest.step < 0) return fmt::format("step {} is negative", manifest.step);
  if (manifest.world < 1) return fmt::format("world of {} ranks", manifest.world);
  return save_number(manifest.save_id) ? "" : "save_id is not 16 hexadecimal digits";
}

}  // namespace

std::string_view name_of(ScaleRule rule) {
  if (rule == ScaleRule::Torch) return "torch";
  return rule == ScaleRule::DeepSpeed ? "deepspeed" : "constant";
}

std::string contradiction_in(const Manifest& manifest) {
  if (std::string fault = fault_of_numbers(manifest); !fault.empty()) return fault;
  for (const FileDigest& file : manifest.files)
    if (std::string fault = fault_of(file); !fault.empty()) return fault;
  const auto name = [](const FileDigest& file) -> std::string_view { return file.name; };
  if (std::string fault = repeated("file", manifest.files, name); !fault.empty()) return fault;
  if (std::string fault = fault_of_ties(manifest); !fault.empty()) return fault;
  if (std::string fault = repeated_first("user data", manifest.user); !fault.empty()) return fault;
  if (manifest.optimizer)
    if (std::string fault = fault_of(*manifest.optimizer); !fault.empty()) return fault;
  return manifest.loss_scaler ? fault_of(*manifest.loss_scaler) : std::string();
}

std::string digest_tail(std::string_view text_before) {
  return fmt::format(",\n  \"crc32c\": \"{:08x}\"\n}}\n",
                     crc32c(std::as_bytes(std::span(text_before))));
}

}  // namespace flatshard::detail
