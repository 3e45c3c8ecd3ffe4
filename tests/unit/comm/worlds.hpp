// What a conformance test needs of a kind of communicator: somewhere to run ranks.
#pragma once

#include <flatshard/comm/communicator.hpp>
#include <flatshard/core/host_stream.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace conformance {

using namespace flatshard;  // NOLINT: tests of the library, nothing else

using RankMain = std::function<void(Communicator&)>;

class Worlds {
 public:
  virtual ~Worlds() = default;
  virtual std::vector<int> sizes() const = 0;
  /// Calls rank_main once per rank; throws what(): "rank r: message" when one throws.
  virtual void run(int size, const RankMain& rank_main) = 0;
  virtual std::unique_ptr<Stream> make_stream() const = 0;
  /// On every rank, by_rank[r] becomes what rank r has there: where ranks are processes.
  virtual void share(std::vector<std::string>& by_rank) const { static_cast<void>(by_rank); }
  /// One counter for all ranks, at 0.
  virtual std::atomic<int>& fresh_counter() {
    counter_.store(0);
    return counter_;
  }

 private:
  std::atomic<int> counter_{0};
};

/// Within ranks: doctest's assertions are for the test's own thread.
inline void expect(bool condition, const std::string& message) {
  if (!condition) throw std::runtime_error("expected: " + message);
}

/// The message of what `call` throws; empty when it does not.
template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

inline std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace conformance
