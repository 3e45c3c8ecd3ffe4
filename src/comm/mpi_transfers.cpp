#include "mpi_transfers.hpp"

#include <algorithm>

#include "bytes_at.hpp"

namespace flatshard::detail {

namespace {

constexpr auto draining = std::chrono::seconds(2);  // for messages that have begun to arrive

}  // namespace

MpiTransfers::MpiTransfers(MpiSession& session, int tag, std::size_t expected)
    : session_(session), tag_(tag) {
  pending_.reserve(expected);
}

void MpiTransfers::send(const void* data, Bytes bytes, Rank to) {
  start(bytes, to, false, [&](Bytes at, int count, MPI_Request* request) {
    return MPI_Isend(bytes_at(data, at), count, MPI_BYTE, to, tag_, session_.data(), request);
  });
}

void MpiTransfers::receive(void* data, Bytes bytes, Rank from) {
  start(bytes, from, true, [&](Bytes at, int count, MPI_Request* request) {
    return MPI_Irecv(bytes_at(data, at), count, MPI_BYTE, from, tag_, session_.data(), request);
  });
}

/// In messages of at most the largest size: MPI counts in int, and keeps their order.
template <class Start>
void MpiTransfers::start(Bytes bytes, Rank peer, bool receives, const Start& start_one) {
  const Bytes largest = session_.options().largest_message;
  for (Bytes at = 0; at < bytes; at += largest) {
    pending_.push_back({MPI_REQUEST_NULL, peer, receives});
    const int code =
        start_one(at, static_cast<int>(std::min(largest, bytes - at)), &pending_.back().request);
    if (code == MPI_SUCCESS) continue;
    drain();
    fail(code, receives ? "MPI_Irecv" : "MPI_Isend", peer);
  }
}

bool MpiTransfers::is_done(Pending& pending) {
  int done = 1;
  const int code = MPI_Test(&pending.request, &done, MPI_STATUS_IGNORE);
  if (code != MPI_SUCCESS) fail(code, pending.receives ? "MPI_Irecv" : "MPI_Isend", pending.peer);
  return done != 0;
}

void MpiTransfers::fail(int code, const char* call, Rank peer) {
  session_.fail({peer, "out of reach of rank " + std::to_string(session_.rank()) + ": " +
                           mpi_message(code, call)});
  session_.throw_failure();
}

/// Receives that have not begun are cancelled, others end. Sends cannot be cancelled.
void MpiTransfers::drain() noexcept {
  for (Pending& pending : pending_)
    if (pending.receives && pending.request != MPI_REQUEST_NULL) MPI_Cancel(&pending.request);
  const auto is_over = [](Pending& pending) {
    int done = 1;
    return pending.request == MPI_REQUEST_NULL ||
           MPI_Test(&pending.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  };
  PollPause pause;
  while (!std::all_of(pending_.begin(), pending_.end(), is_over)) {
    if (pause.waited() > draining) {
      session_.give_up();
      break;
    }
    pause.rest();
  }
  pending_.clear();
}

}  // namespace flatshard::detail
