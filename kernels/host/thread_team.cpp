#include "thread_team.hpp"

#include "affinity.hpp"
#include "float_environment.hpp"

#include <flatshard/core/error.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

namespace flatshard::host {

struct alignas(64) ThreadTeam::Worker {
  std::atomic<std::uint32_t> ticket{0};  // one more: there is work, or the team stops
  flatshard::detail::Parking parking;
  std::thread thread;

  void wake() {
    ticket.fetch_add(1);
    parking.notify();
  }
};

ThreadTeam::ThreadTeam(int threads, std::vector<int> cores)
    : cores_(std::move(cores)),
      spinning_(threads <= static_cast<int>(std::thread::hardware_concurrency())
                    ? between_calls
                    : std::chrono::microseconds(0)),
      workers_count_(std::max(threads, 1) - 1),
      workers_(std::make_unique<Worker[]>(static_cast<std::size_t>(workers_count_))) {
  for (int i = 0; i < workers_count_; ++i) start(i);
}

ThreadTeam::~ThreadTeam() { stop(); }

int ThreadTeam::core_of(int thread) const {
  return cores_.empty() ? -1 : cores_[static_cast<std::size_t>(thread)];
}

void ThreadTeam::start(int index) {
  try {
    workers_.get()[index].thread = std::thread([this, index] { work(index); });
  } catch (const std::system_error& error) {
    stop();
    throw Error("host device: cannot start thread " + std::to_string(index + 2) + " of " +
                    std::to_string(threads()) + ": " + error.what(),
                {__FILE__, __LINE__});
  }
}

void ThreadTeam::stop() {
  stopping_ = true;
  for (int i = 0; i < workers_count_; ++i) workers_.get()[i].wake();
  for (int i = 0; i < workers_count_; ++i)
    if (workers_.get()[i].thread.joinable()) workers_.get()[i].thread.join();
}

int ThreadTeam::parts_for(Elements count) const {
  const Elements worth = std::max<Elements>(count / least_per_part, 1);
  return static_cast<int>(std::min<Elements>(worth, threads()));
}

void ThreadTeam::run(int parts, const void* context, Part function) noexcept {
  parts = std::min(parts, threads());
  if (parts <= 1 || busy_.exchange(true)) {
    function(context, 0, 1);
  } else {
    share(parts, context, function);
    busy_.store(false);
  }
}

void ThreadTeam::share(int parts, const void* context, Part function) {
  const OnCore own(core_of(0));  // elsewhere it may hold up a thread that cannot move
  parts_ = parts;
  context_ = context;
  function_ = function;
  unfinished_.store(parts - 1);
  for (int i = 0; i + 1 < parts; ++i) workers_.get()[i].wake();
  function(context, 0, parts);
  caller_.wait([this] { return unfinished_.load() == 0; }, spinning_);
}

void ThreadTeam::work(int index) noexcept {
  const DefaultFloatEnvironment environment;
  const OnCore own(core_of(index + 1));
  Worker& self = workers_.get()[index];
  for (std::uint32_t seen = 0;; ++seen) {
    self.parking.wait([&] { return self.ticket.load() != seen; }, spinning_);
    if (stopping_) return;
    function_(context_, index + 1, parts_);
    if (unfinished_.fetch_sub(1) == 1) caller_.notify();
  }
}

}  // namespace flatshard::host
