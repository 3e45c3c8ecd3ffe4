// Worlds over NCCL for tests: one rank per device, at most four.
#pragma once

#include <flatshard/comm/nccl.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "random.hpp"
#include "staged_communicator.hpp"
#include "worlds.hpp"

namespace conformance {

using namespace std::chrono_literals;

inline int most_ranks() { return std::min(cuda_device_count(), 4); }

/// Ranks over NCCL that stay for many jobs: making a communicator takes long.
class StandingWorld {
 public:
  explicit StandingWorld(int size)
      : size_(size), world_(size, {.patience = flatshard_test::short_run() ? 200s : 10s}) {
    thread_ = std::thread([this] {
      failure_ = message_of([this] { world_.run([this](Communicator& comm) { serve(comm); }); });
      over_.store(true);
    });
  }
  ~StandingWorld() {
    job_ = nullptr;
    round_.fetch_add(1);
    thread_.join();
  }
  StandingWorld(const StandingWorld&) = delete;
  StandingWorld& operator=(const StandingWorld&) = delete;

  /// A job that throws ends this world.
  void run(const RankMain& job) {
    job_ = &job;
    finished_.store(0);
    round_.fetch_add(1);
    while (finished_.load() < size_ && !over_.load()) std::this_thread::yield();
    if (over_.load()) throw std::runtime_error(failure_);
  }

 private:
  void serve(Communicator& comm) {
    for (int next = 1;; ++next) {
      while (round_.load() < next) std::this_thread::yield();
      if (job_ == nullptr) return;
      (*job_)(comm);
      finished_.fetch_add(1);
    }
  }

  int size_;
  NcclWorld world_;
  const RankMain* job_ = nullptr;
  std::atomic<int> round_{0}, finished_{0};
  std::atomic<bool> over_{false};
  std::string failure_;
  std::thread thread_;
};

/// One rank per device.
inline StandingWorld& standing_world() {
  static StandingWorld world(most_ranks());
  return world;
}

class NcclWorlds final : public Worlds {
 public:
  std::vector<int> sizes() const override { return {most_ranks()}; }
  void run(int, const RankMain& rank_main) override {
    standing_world().run([&](Communicator& comm) {
      device() = comm.device();
      flatshard_test::StagedCommunicator staged(comm);
      rank_main(staged);
    });
  }
  std::unique_ptr<Stream> make_stream() const override { return device()->make_stream(); }

 private:
  static Device*& device() {  // of this rank
    static thread_local Device* mine = nullptr;
    return mine;
  }
};

}  // namespace conformance
