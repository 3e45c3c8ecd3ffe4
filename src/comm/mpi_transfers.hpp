// Messages of one collective that are under way.
#pragma once

#include <vector>

#include "mpi_session.hpp"

namespace flatshard::detail {

/// Thread-safety: one thread at a time. Allocates only for more messages at once than `expected`.
class MpiTransfers {
 public:
  MpiTransfers(MpiSession& session, int tag, std::size_t expected);

  /// To and from world ranks. Memory must stay until wait() returns or throws.
  void send(const void* data, Bytes bytes, Rank to);
  void receive(void* data, Bytes bytes, Rank from);

  /// Blocks until all are done, in turn; calls watch(rank, waited) while `rank` lets us wait.
  /// Throws what that throws and the session's failure; then no message touches memory any more,
  /// or there is no MPI in this session any more.
  template <class Watch>
  void wait(const Watch& watch) {
    try {
      PollPause pause;
      for (std::size_t next = 0; next < pending_.size(); ++next)
        while (!is_done(pending_[next])) rest(pause, pending_[next].peer, watch);
    } catch (...) {
      drain();
      throw;
    }
    pending_.clear();
  }

 private:
  struct Pending {
    MPI_Request request = MPI_REQUEST_NULL;
    Rank peer = 0;
    bool receives = false;
  };

  template <class Watch>
  void rest(PollPause& pause, Rank peer, const Watch& watch) {
    if (pause.waited() > std::chrono::microseconds(200)) {
      session_.poll();
      watch(peer, pause.waited());
    }
    pause.rest();
  }
  template <class Start>
  void start(Bytes bytes, Rank peer, bool receives, const Start& start_one);
  bool is_done(Pending& pending);
  [[noreturn]] void fail(int code, const char* call, Rank peer);
  void drain() noexcept;

  MpiSession& session_;
  int tag_;
  std::vector<Pending> pending_;
};

}  // namespace flatshard::detail
