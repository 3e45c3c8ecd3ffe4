// Builds safetensors files, good and bad, byte by byte.
#pragma once

#include <flatshard/checkpoint/safetensors.hpp>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <string>

namespace flatshard_test {

/// `length`, when given, replaces the header's true length.
inline std::string file_of(const std::string& json, const std::string& data = "",
                           std::optional<std::uint64_t> length = {}) {
  const std::uint64_t announced = length.value_or(json.size());
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(announced >> (8 * i) & 0xFF);
  return bytes + json + data;
}

/// "name":{...} with a shape like "2,3" and offsets like "0,4".
inline std::string entry_json(const std::string& name, const std::string& dtype,
                              const std::string& shape, const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + offsets + "]}";
}

inline flatshard::safetensors::Header parse_whole(
    const std::string& file, const flatshard::safetensors::ReadLimits& limits = {},
    flatshard::safetensors::Mode mode = flatshard::safetensors::Mode::Strict) {
  const auto size = static_cast<flatshard::Bytes>(file.size());
  return flatshard::safetensors::parse_header(std::as_bytes(std::span(file)), size, limits, mode);
}

/// The error that the file gives, if any.
inline std::optional<flatshard::safetensors::FormatError> fault_of(
    const std::string& file, const flatshard::safetensors::ReadLimits& limits = {},
    flatshard::safetensors::Mode mode = flatshard::safetensors::Mode::Strict) {
  try {
    parse_whole(file, limits, mode);
    return std::nullopt;
  } catch (const flatshard::safetensors::FormatError& error) {
    return error;
  }
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace flatshard_test
