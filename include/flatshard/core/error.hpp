// Typed exceptions. Every message names the call, the place, and the numbers or names involved.
#pragma once

#include <stdexcept>
#include <string>

namespace flatshard {

/// Where an error was raised: file and line of the library or of the user's call.
struct SourcePlace {
  const char* file = "";  // path as the compiler saw it
  int line = 0;           // 0: unknown
};

/// Root of everything the library throws.
class Error : public std::runtime_error {
 public:
  /// `message` is what().
  explicit Error(const std::string& message, SourcePlace place = {})
      : std::runtime_error(message), place_(place) {}
  /// Where it was raised.
  const SourcePlace& place() const noexcept { return place_; }

 private:
  SourcePlace place_;
};

/// The caller asked for something impossible; nothing was changed.
class UsageError : public Error {
  using Error::Error;
};

/// Memory could not be had; the message gives the bytes asked for.
class MemoryError : public Error {
  using Error::Error;
};

/// A call of a device's driver failed; the message gives the call, the code and its text.
class DeviceError : public Error {
  using Error::Error;
};

/// A collective failed on some rank: what() is "rank r: message", the same on every rank.
class CommunicationError : public Error {
 public:
  /// what() is "rank r: message".
  CommunicationError(int rank, const std::string& message, SourcePlace place = {})
      : Error("rank " + std::to_string(rank) + ": " + message, place), rank_(rank) {}
  /// The rank (in the world) where the failure began.
  int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// Gradients were not finite and the policy says that this is an error.
class NonFiniteError : public Error {
  using Error::Error;
};

namespace detail {
[[noreturn]] void throw_usage_error(const std::string& message, const char* file, int line);
}  // namespace detail

}  // namespace flatshard

/// Throws UsageError with `message` (a std::string expression, evaluated only on failure).
#define FLATSHARD_EXPECTS(condition, message)                                              \
  do {                                                                                     \
    if (!(condition)) ::flatshard::detail::throw_usage_error(message, __FILE__, __LINE__); \
  } while (false)
