#include "socket.hpp"

#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace flatshard::detail {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t most_ahead = 64;  // bytes that has() looks ahead

/// Waits until the socket is ready for `events`; false when it is late.
bool wait_for(int descriptor, short events, Deadline deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd entry{descriptor, events, 0};
    const auto most = std::clamp<std::chrono::milliseconds::rep>(left.count(), 0, 1 << 30);
    const int ready = poll(&entry, 1, static_cast<int>(most));
    if (ready > 0) return true;
    if (ready == 0 && left.count() <= 0) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses resolve(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int status = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list);
  FLATSHARD_EXPECTS(status == 0, fmt::format("rendezvous: address '{}' cannot be resolved: {}",
                                             address, gai_strerror(status)));
  return Addresses(list);
}

bool is_wildcard(const addrinfo& entry) {
  if (entry.ai_family == AF_INET) {
    sockaddr_in address;
    std::memcpy(&address, entry.ai_addr, sizeof(address));
    return address.sin_addr.s_addr == htonl(INADDR_ANY);
  }
  sockaddr_in6 address;
  std::memcpy(&address, entry.ai_addr, sizeof(address));
  return IN6_IS_ADDR_UNSPECIFIED(&address.sin6_addr);
}

int open_socket(const addrinfo& entry) {
  return socket(entry.ai_family, entry.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                entry.ai_protocol);
}

void set_option(int descriptor, int level, int option) {
  const int on = 1;
  static_cast<void>(setsockopt(descriptor, level, option, &on, sizeof(on)));
}

}  // namespace

void Socket::close() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

int Socket::port() const {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  if (getsockname(descriptor_, reinterpret_cast<sockaddr*>(&name), &size) != 0) return -1;
  if (name.ss_family == AF_INET) {
    sockaddr_in address;
    std::memcpy(&address, &name, sizeof(address));
    return ntohs(address.sin_port);
  }
  sockaddr_in6 address;
  std::memcpy(&address, &name, sizeof(address));
  return ntohs(address.sin6_port);
}

SocketResult Socket::send(std::span<const std::byte> bytes, Deadline deadline) noexcept {
  while (!bytes.empty()) {
    if (!is_open()) return SocketResult::Closed;
    const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!wait_for(descriptor_, POLLOUT, deadline)) return SocketResult::Late;
    } else {
      return SocketResult::Closed;
    }
  }
  return SocketResult::Done;
}

SocketResult Socket::receive(std::span<std::byte> bytes, Deadline deadline) noexcept {
  while (!bytes.empty()) {
    if (!is_open()) return SocketResult::Closed;
    const ssize_t got = recv(descriptor_, bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!wait_for(descriptor_, POLLIN, deadline)) return SocketResult::Late;
    } else {
      return SocketResult::Closed;
    }
  }
  return SocketResult::Done;
}

void Socket::wait_readable(std::chrono::milliseconds most) noexcept {
  if (is_open()) wait_for(descriptor_, POLLIN, Clock::now() + most);
}

std::ptrdiff_t Socket::peek(std::span<std::byte> bytes) noexcept {
  if (!is_open()) return 0;
  const ssize_t got = recv(descriptor_, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
  return got < 0 && errno != EAGAIN && errno != EINTR ? 0 : got;
}

bool Socket::has(std::size_t bytes) noexcept {
  std::array<std::byte, most_ahead> ahead;
  const std::ptrdiff_t got = peek(std::span(ahead).first(std::min(bytes, most_ahead)));
  return got == 0 || got >= static_cast<std::ptrdiff_t>(bytes);
}

Socket Socket::accept(Deadline deadline) noexcept {
  if (!wait_for(descriptor_, POLLIN, deadline)) return Socket();
  Socket connection(accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.is_open()) set_option(connection.descriptor_, IPPROTO_TCP, TCP_NODELAY);
  return connection;
}

Socket listen_on(const std::string& address, int port) {
  const Addresses entry = resolve(address, port);
  FLATSHARD_EXPECTS(!is_wildcard(*entry),
                    fmt::format("rendezvous: '{}' is every interface: name the one that the ranks "
                                "reach rank 0 by",
                                address));
  const int descriptor = open_socket(*entry);
  Socket socket(descriptor);
  if (socket.is_open()) set_option(descriptor, SOL_SOCKET, SO_REUSEADDR);
  const bool listens = socket.is_open() &&
                       bind(descriptor, entry->ai_addr, entry->ai_addrlen) == 0 &&
                       listen(descriptor, 128) == 0;
  FLATSHARD_EXPECTS(listens, fmt::format("rendezvous: rank 0 cannot listen on {} port {}: {}",
                                         address, port, std::strerror(errno)));
  return socket;
}

Socket connect_to(const std::string& address, int port, Deadline deadline) {
  const Addresses entry = resolve(address, port);
  const int descriptor = open_socket(*entry);
  Socket socket(descriptor);
  if (!socket.is_open()) return socket;
  if (connect(descriptor, entry->ai_addr, entry->ai_addrlen) != 0) {
    int error = errno == EINPROGRESS ? 0 : errno;
    socklen_t size = sizeof(error);
    if (error == 0 && !wait_for(descriptor, POLLOUT, deadline)) error = ETIMEDOUT;
    if (error == 0) getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return Socket();
  }
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY);
  return socket;
}

}  // namespace flatshard::detail
