#include <flatshard/checkpoint/safetensors.hpp>

#include "header_handler.hpp"
#include "header_parts.hpp"
#include "text_of_file.hpp"

#include <flatshard/core/error.hpp>
#include <flatshard/io/file.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace flatshard::safetensors {
namespace {

[[noreturn]] void refuse(Fault fault, const std::string& message, std::string_view path) {
  throw FormatError(fault, message, {std::string(path), 0}, {__FILE__, __LINE__});
}

std::uint64_t little_endian(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i > 0; --i)
    value = value << 8 | std::to_integer<std::uint64_t>(bytes[i - 1]);
  return value;
}

void check_file_bytes(Bytes file_bytes, std::string_view path) {
  if (file_bytes < header_length_bytes)
    refuse(Fault::HeaderTooSmall, "the file has " + std::to_string(file_bytes) + " bytes", path);
}

/// Bytes of the JSON. Compared without adding: the number may be any.
Bytes checked_length(std::span<const std::byte> bytes, Bytes file_bytes, const ReadLimits& limits,
                     std::string_view path) {
  const std::uint64_t length = little_endian(bytes.first(header_length_bytes));
  const std::string found = "a header of " + std::to_string(length) + " bytes";
  if (length > static_cast<std::uint64_t>(limits.header_bytes))
    refuse(Fault::HeaderTooLarge, found + ", limit " + std::to_string(limits.header_bytes), path);
  if (length > static_cast<std::uint64_t>(file_bytes - header_length_bytes))
    refuse(Fault::InvalidHeaderLength, found + " in a file of " + std::to_string(file_bytes), path);
  return static_cast<Bytes>(length);
}

Header parse_json_of_header(std::string_view json, Bytes file_bytes, const ReadLimits& limits,
                            Mode mode, std::string_view path) {
  HeaderHandler handler(limits, mode, path);
  try {
    flatshard::detail::parse_json(json, limits.depth, handler);
  } catch (const flatshard::detail::JsonError& error) {
    throw handler.format_error(error);
  }
  return handler.take(header_length_bytes + static_cast<Bytes>(json.size()), file_bytes);
}

}  // namespace

Header parse_header(std::span<const std::byte> bytes, Bytes file_bytes, const ReadLimits& limits,
                    Mode mode, std::string_view path) {
  check_file_bytes(file_bytes, path);
  FLATSHARD_EXPECTS(bytes.size() >= header_length_bytes, "parse_header: fewer than 8 bytes given");
  const Bytes length = checked_length(bytes, file_bytes, limits, path);
  const auto json = bytes.subspan(header_length_bytes);
  FLATSHARD_EXPECTS(static_cast<Bytes>(json.size()) >= length,
                    "parse_header: " + std::to_string(json.size()) +
                        " bytes given of a header of " + std::to_string(length));
  const std::string_view text(reinterpret_cast<const char*>(json.data()),
                              static_cast<std::size_t>(length));
  return parse_json_of_header(text, file_bytes, limits, mode, path);
}

Header read_header(const File& file, const ReadLimits& limits, Mode mode) {
  const std::string path = file.path();
  const Bytes file_bytes = file.size();
  check_file_bytes(file_bytes, path);
  std::array<std::byte, header_length_bytes> first;
  file.read(0, first);
  const Bytes length = checked_length(first, file_bytes, limits, path);
  const std::string json = flatshard::detail::text_of_file(file, header_length_bytes, length);
  return parse_json_of_header(json, file_bytes, limits, mode, path);
}

}  // namespace flatshard::safetensors
