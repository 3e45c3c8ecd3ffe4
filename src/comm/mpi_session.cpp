#include "mpi_session.hpp"

#include <fmt/format.h>
#include <flatshard/ops/host_device.hpp>

#include <algorithm>
#include <climits>
#include <system_error>
#include <utility>

namespace flatshard::detail {

namespace {

constexpr auto mpi_farewell = std::chrono::seconds(3);     // for ranks to close after a failure
constexpr auto listening = std::chrono::milliseconds(50);  // from one look at the news to the next

void expect_success(int code, const char* call, Rank rank) {
  if (code != MPI_SUCCESS) throw CommunicationError(rank, mpi_message(code, call));
}

/// A copy whose errors are returned. Not MPI_Comm_dup, which would wait for ever.
MPI_Comm duplicate(MPI_Comm parent, Rank rank, std::chrono::milliseconds patience) {
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  expect_success(MPI_Comm_idup(parent, &copy, &request), "MPI_Comm_idup", rank);
  PollPause pause;
  int done = 0;
  for (;;) {
    expect_success(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Comm_idup", rank);
    if (done != 0) break;
    if (pause.waited() > patience)
      throw CommunicationError(
          rank, fmt::format("MPI: waited {} ms for the other ranks to begin", patience.count()));
    pause.rest();
  }
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  return copy;
}

}  // namespace

void validate(const MpiOptions& options) {
  FLATSHARD_EXPECTS(options.patience.count() > 0, "MpiOptions: the patience must be positive");
  FLATSHARD_EXPECTS(options.silence.count() >= 0, "MpiOptions: the silence is negative");
  FLATSHARD_EXPECTS(options.largest_message >= 1 && options.largest_message <= INT_MAX,
                    fmt::format("MpiOptions: largest_message is {} bytes, not 1 to {}",
                                options.largest_message, INT_MAX));
}

void PollPause::rest() {
  constexpr int yields = 100, longest = 500;  // turns; microseconds
  ++turns_;
  if (turns_ <= yields) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(std::min(10 * (turns_ - yields), longest)));
}

MpiSession::MpiSession(MPI_Comm parent, const MpiOptions& options)
    : options_(options), kernels_(make_host_kernels({})) {
  MPI_Comm_rank(parent, &rank_);
  MPI_Comm_size(parent, &size_);
  if (size_ == 1) return;
  data_ = duplicate(parent, rank_, options_.patience);
  control_ = std::make_unique<MpiControl>(duplicate(parent, rank_, options_.patience));
  ended_.resize(static_cast<std::size_t>(size_));
  heard_ = looked_ = MpiClock::now();
  try {
    listener_ = std::thread([this] { listen(); });
  } catch (const std::system_error& error) {
    control_->close(false);
    throw Error(std::string("MPI: cannot start the thread that listens: ") + error.what());
  }
}

MpiSession::~MpiSession() {
  if (!listener_.joinable()) return;
  {
    const std::lock_guard lock(sleep_mutex_);
    stop_ = true;
  }
  stop_changed_.notify_one();
  listener_.join();
  if (given_up_.load() || !is_mpi_alive()) {
    static_cast<void>(control_.release());  // its messages may still be MPI's
    return;
  }
  // After a failure ranks may be gone, and messages be left over.
  const bool is_idle = control_->is_idle();
  control_->close(is_clean_.load());
  if (is_clean_.load()) MPI_Comm_free(&data_);
  if (!is_idle) static_cast<void>(control_.release());  // MPI may still read what it sends
}

void MpiSession::listen() {
  std::unique_lock lock(sleep_mutex_);
  while (!stop_changed_.wait_for(lock, listening, [this] { return stop_; })) {
    lock.unlock();
    {
      const std::lock_guard control_lock(control_mutex_);
      service();
    }
    lock.lock();
  }
}

void MpiSession::poll() {
  if (size_ > 1) {
    const std::unique_lock lock(control_mutex_, std::try_to_lock);
    if (lock.owns_lock()) service();
  }
  if (failed()) throw_failure();
}

/// With control_mutex_.
void MpiSession::service() noexcept {
  if (given_up_.load()) return;
  control_->receive([this](const MpiRecord& record, Rank sender) { hear(record, sender); });
  if (options_.silence.count() > 0 && !closed_.load()) watch_neighbour();
  static_cast<void>(control_->is_idle());
}

/// False after a failure when it does not come about in time.
bool MpiSession::closes_when(bool (MpiSession::*is_over)() const) noexcept {
  PollPause pause;
  std::optional<MpiClock::time_point> failed_at;
  for (;; pause.rest()) {
    const std::lock_guard lock(control_mutex_);
    service();
    if (given_up_.load()) return false;
    if ((is_zero_dead_ || (this->*is_over)()) && control_->is_idle()) return !is_zero_dead_;
    if (failed() && !failed_at) failed_at = MpiClock::now();
    if (failed_at && MpiClock::now() - *failed_at > mpi_farewell) return false;
  }
}

void MpiSession::close() noexcept {
  if (size_ == 1 || given_up_.load()) return;
  MpiRecord record;
  record.news = MpiNews::Ended;
  record.rank = rank_;
  {
    const std::lock_guard lock(control_mutex_);
    if (rank_ == 0)
      note_end(0);
    else
      control_->send(0, record);
  }
  if (!closes_when(&MpiSession::all_ended)) return give_up();
  if (failed()) return;
  // A communicator may be freed when nothing is under way on it.
  {
    const std::lock_guard lock(control_mutex_);
    record.news = MpiNews::Last;
    tell_all(record);
  }
  is_clean_.store(closes_when(&MpiSession::all_silent));
}

}  // namespace flatshard::detail
