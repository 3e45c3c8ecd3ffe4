// What the tests of this layer share.
#pragma once

#include <flatshard/io/file_operations.hpp>
#include <flatshard/io/io_error.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <vector>

namespace io_cases {

inline std::vector<std::byte> random_bytes(std::mt19937_64& random, std::size_t count) {
  std::vector<std::byte> bytes(count);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

/// The IoError that a call throws; none when it does not.
inline std::optional<flatshard::IoError> error_of(const std::function<void()>& call) {
  try {
    call();
    return std::nullopt;
  } catch (const flatshard::IoError& error) {
    return error;
  }
}

/// Its errno, -1 when it throws nothing.
inline int code_of(const std::function<void()>& call) {
  const auto error = error_of(call);
  return error ? error->code() : -1;
}

}  // namespace io_cases
