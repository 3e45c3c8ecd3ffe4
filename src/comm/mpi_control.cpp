#include "mpi_control.hpp"

#include <algorithm>
#include <cstddef>
#include <new>

namespace flatshard::detail {

namespace {

constexpr int control_tag = 1;

}  // namespace

void MpiRecord::set_text(std::string_view message) noexcept {
  length = std::min(message.size(), text.size());
  std::copy_n(message.begin(), length, text.begin());
}

Failure MpiRecord::failure() const {
  return {rank, std::string(text.data(), std::min<std::size_t>(length, text.size()))};
}

int MpiRecord::bytes() const { return static_cast<int>(offsetof(MpiRecord, text) + length); }

MpiControl::MpiControl(MPI_Comm communicator) : communicator_(communicator) {
  alive_.record.news = MpiNews::Alive;
  post();
}

void MpiControl::close(bool is_clean) noexcept {
  if (posted_ != MPI_REQUEST_NULL) {
    MPI_Cancel(&posted_);
    MPI_Wait(&posted_, MPI_STATUS_IGNORE);  // local: it is cancelled or has come
  }
  if (is_clean) MPI_Comm_free(&communicator_);
}

void MpiControl::send(Rank to, const MpiRecord& record) noexcept {
  try {
    outgoing_.push_back({record, MPI_REQUEST_NULL});
  } catch (const std::bad_alloc&) {
    return;  // the others wait out their patience
  }
  start(outgoing_.back(), to);
}

void MpiControl::send_alive(Rank to) noexcept {
  if (is_done(alive_.request)) start(alive_, to);
}

void MpiControl::receive(const std::function<void(const MpiRecord&, Rank)>& handle) noexcept {
  MPI_Status status;
  int came = 1;
  while (posted_ != MPI_REQUEST_NULL && MPI_Test(&posted_, &came, &status) == MPI_SUCCESS && came) {
    const MpiRecord record = incoming_;
    post();
    handle(record, status.MPI_SOURCE);
  }
}

bool MpiControl::is_idle() noexcept {
  std::erase_if(outgoing_, [](Outgoing& outgoing) { return is_done(outgoing.request); });
  return outgoing_.empty() && is_done(alive_.request);
}

void MpiControl::post() noexcept {
  MPI_Irecv(&incoming_, sizeof(incoming_), MPI_BYTE, MPI_ANY_SOURCE, control_tag, communicator_,
            &posted_);
}

/// Also when it failed.
bool MpiControl::is_done(MPI_Request& request) noexcept {
  int done = 1;
  return request == MPI_REQUEST_NULL ||
         MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
}

void MpiControl::start(Outgoing& outgoing, Rank to) noexcept {
  MPI_Isend(&outgoing.record, outgoing.record.bytes(), MPI_BYTE, to, control_tag, communicator_,
            &outgoing.request);
}

}  // namespace flatshard::detail
