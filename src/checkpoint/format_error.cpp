#include <flatshard/checkpoint/format_error.hpp>

#include "json_text.hpp"

#include <array>
#include <cstddef>
#include <utility>

namespace flatshard::safetensors {
namespace {

constexpr std::array<std::string_view, 26> fault_names{
    "HeaderTooSmall",    "HeaderTooLarge",  "InvalidHeaderLength", "InvalidJson",
    "WrongType",         "TooDeep",         "DuplicateKey",        "MissingField",
    "UnknownField",      "InvalidNumber",   "InvalidName",         "TooManyTensors",
    "TooManyDimensions", "UnknownType",     "ShapeOverflow",       "Misaligned",
    "SizeMismatch",      "InvalidOffset",   "IncompleteBuffer",    "IndexTooLarge",
    "InvalidFileName",   "NotARegularFile", "MissingFile",         "FileCountMismatch",
    "MissingTensor",     "UnmappedTensor"};

std::string composed(Fault fault, const std::string& message, const FormatError::Where& where) {
  std::string text = where.path.empty() ? "safetensors" : where.path;
  if (where.offset >= 0) text += ": byte " + std::to_string(where.offset);
  if (!where.tensor.empty()) text += ": tensor " + detail::in_quotes(where.tensor);
  return text + ": " + message + " (" + std::string(name_of(fault)) + ")";
}

}  // namespace

std::string_view name_of(Fault fault) { return fault_names[static_cast<std::size_t>(fault)]; }

FormatError::FormatError(Fault fault, const std::string& message, Where where, SourcePlace place)
    : Error(composed(fault, message, where), place), fault_(fault), where_(std::move(where)) {}

}  // namespace flatshard::safetensors
