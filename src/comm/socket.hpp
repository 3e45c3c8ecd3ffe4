// A TCP connection with deadlines and without surprises: frames of bounded size.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace flatshard::detail {

using Deadline = std::chrono::steady_clock::time_point;

/// Whether a call on a socket was done, or why not.
enum class SocketResult { Done, Late, Closed };

/// Owns a file descriptor. Move-only.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() { close(); }

  bool is_open() const { return descriptor_ >= 0; }
  void close() noexcept;
  /// Port that the socket is bound to.
  int port() const;

  SocketResult send(std::span<const std::byte> bytes, Deadline deadline) noexcept;
  SocketResult receive(std::span<std::byte> bytes, Deadline deadline) noexcept;
  /// Sleeps until something can be read, at most that long.
  void wait_readable(std::chrono::milliseconds most) noexcept;
  /// True when at least `bytes` bytes (64 at most) can be read at once, or the peer has closed.
  bool has(std::size_t bytes) noexcept;
  /// The first bytes that can be read, without reading them; 0 bytes when the peer has closed.
  std::ptrdiff_t peek(std::span<std::byte> bytes) noexcept;
  /// A connection to this listening socket; not open when none came in time.
  Socket accept(Deadline deadline) noexcept;

 private:
  int descriptor_ = -1;
};

/// Listens on exactly this address. Throws UsageError for a wildcard and for what cannot be bound.
Socket listen_on(const std::string& address, int port);
/// Not open when nobody listens there. Throws UsageError for an address that is none.
Socket connect_to(const std::string& address, int port, Deadline deadline);

}  // namespace flatshard::detail
