#pragma once

#include <flatshard/comm/faulty.hpp>
#include <flatshard/comm/recording.hpp>
#include <flatshard/comm/threads.hpp>

#include <utility>

#include "worlds.hpp"

namespace conformance {

/// Ranks as threads of this process. They give up after 20 seconds, so that a hang is a failure.
class ThreadWorlds : public Worlds {
 public:
  ThreadWorlds(StreamForm form, std::vector<int> sizes) : form_(form), sizes_(std::move(sizes)) {}
  std::vector<int> sizes() const override { return sizes_; }
  void run(int size, const RankMain& rank_main) override {
    ThreadWorld(size, {.patience = std::chrono::seconds(20)}).run(rank_main);
  }
  std::unique_ptr<Stream> make_stream() const override { return make_host_stream(form_); }

 private:
  StreamForm form_;
  std::vector<int> sizes_;
};

/// The same behind a decorator that records and one that delays some calls of some ranks.
class DecoratedWorlds final : public ThreadWorlds {
 public:
  using ThreadWorlds::ThreadWorlds;
  void run(int size, const RankMain& rank_main) override {
    ThreadWorlds::run(size, [&](Communicator& comm) {
      const Faults slow{.delay = std::chrono::microseconds(100),
                        .delay_every = 3 + comm.rank(),
                        .on_stream = true};
      FaultyCommunicator faulty(comm, slow);
      RecordingCommunicator recording(faulty);
      rank_main(recording);
    });
  }
};

}  // namespace conformance
