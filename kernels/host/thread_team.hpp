// The threads that share one kernel call. The calling thread is one of them.
#pragma once

#include <flatshard/core/parking.hpp>
#include <flatshard/core/types.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace flatshard::host {

/// `threads - 1` waiting threads plus whoever calls. Work is cut in pieces that depend on the count
/// and the number of threads only, and each is taken by the first thread that is free: cores do not
/// run alike when they share memory, or have other work. Nothing is allocated per call. Threads
/// that wait for the next call, or for the end of one, sleep after `between_calls`. Thread-safety:
/// any thread may call; if the team is at work for another caller, the caller does all of its work
/// alone.
class ThreadTeam {
 public:
  /// With one core for each thread, thread i stays on cores[i]; the calling one, cores[0], is there
  /// during a call that is shared, and where it was before afterwards. Throws Error when the system
  /// has no more threads.
  explicit ThreadTeam(int threads, std::vector<int> cores = {});
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int threads() const { return workers_count_ + 1; }

  static constexpr Elements chunk = 1024;  // elements; chunks start at multiples of it
  static constexpr Elements least_per_part = 1
                                             << 15;   // elements: below, waking a thread costs more
  static constexpr Elements least_piece = 4 * chunk;  // elements: what threads wait for at the end
  static constexpr Elements pieces_per_part = 8;      // a piece is 1/(parts * this) of what is left
  // Longer than the next part of an update takes to be issued.
  static constexpr auto between_calls = std::chrono::microseconds(100);

  /// function(begin, end) over disjoint pieces of whole chunks that cover [0, count), ever smaller
  /// ones; returns when all are done. The other threads have default floating-point control, the
  /// caller its own. The function must not throw.
  template <class Function>
  void for_chunks(Elements count, const Function& function) {
    const int parts = parts_for(count);
    if (parts == 1) return count > 0 ? function(Elements{0}, count) : void();
    std::atomic<Elements> next{0};
    for_parts(parts, [&](int, int) {
      for (Elements begin = next.load(); begin < count;) {
        const Elements end = std::min(count, begin + piece_of(count - begin, parts));
        if (!next.compare_exchange_weak(begin, end)) continue;
        function(begin, end);
        begin = next.load();
      }
    });
  }

  /// function(item) for 0 <= item < count, by `parts` threads, each taken by the first that is
  /// free; else as for_chunks.
  template <class Function>
  void for_items(Elements count, int parts, const Function& function) {
    std::atomic<Elements> next{0};
    for_parts(parts, [&](int, int) {
      for (Elements item = next++; item < count; item = next++) function(item);
    });
  }

  /// function(part, parts) for 0 <= part < parts (parts may come out smaller than asked for).
  template <class Function>
  void for_parts(int parts, const Function& function) {
    static_assert(std::is_invocable_v<const Function&, int, int>);
    run(parts, &function, [](const void* context, int part, int of) {
      (*static_cast<const Function*>(context))(part, of);
    });
  }

  /// Elements of the next piece, with `left` to do.
  static constexpr Elements piece_of(Elements left, int parts) {
    return std::max(least_piece, round_up(ceil_div(left, parts * pieces_per_part), chunk));
  }

  /// How many threads are worth waking for `count` elements; at least 1.
  int parts_for(Elements count) const;

 private:
  using Part = void (*)(const void* context, int part, int parts);
  struct Worker;

  int core_of(int thread) const;  // -1: any
  void start(int index);
  void stop();
  void run(int parts, const void* context, Part function) noexcept;
  void share(int parts, const void* context, Part function);
  void work(int index) noexcept;

  std::vector<int> cores_;
  std::chrono::microseconds spinning_;  // none in a team of more threads than cores
  int workers_count_;
  std::unique_ptr<Worker[]> workers_;
  std::atomic<bool> busy_{false};
  std::atomic<int> unfinished_{0};
  flatshard::detail::Parking caller_;
  bool stopping_ = false;
  int parts_ = 0;
  const void* context_ = nullptr;
  Part function_ = nullptr;
};

}  // namespace flatshard::host
