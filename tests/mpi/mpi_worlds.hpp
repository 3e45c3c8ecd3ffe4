// The ranks of mpirun, for conformance tests: every process runs the same tests in the same order.
#pragma once

#include <flatshard/comm/mpi.hpp>

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <new>

#include "worlds.hpp"

namespace conformance {

using namespace std::chrono_literals;

/// They give up after 20 seconds, so that a hang is a failure.
inline MpiOptions test_options() { return {.patience = 20s}; }

inline int world_size() { return MpiWorld(test_options()).size(); }
inline Rank world_rank() { return MpiWorld(test_options()).rank(); }

class MpiWorlds final : public Worlds {
 public:
  explicit MpiWorlds(StreamForm form, MpiOptions options = test_options())
      : form_(form), world_(options) {}
  std::vector<int> sizes() const override { return {world_.size()}; }
  void run(int, const RankMain& rank_main) override { world_.run(rank_main); }
  std::unique_ptr<Stream> make_stream() const override { return make_host_stream(form_); }

  void share(std::vector<std::string>& by_rank) const override {
    constexpr std::size_t longest = 1024;
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      std::vector<char> text(longest, '\0');
      std::copy_n(by_rank[rank].begin(), std::min(by_rank[rank].size(), longest - 1), text.begin());
      MPI_Bcast(text.data(), int(longest), MPI_CHAR, int(rank), MPI_COMM_WORLD);
      by_rank[rank] = text.data();
    }
  }

  /// In memory that the processes share: on one host only.
  std::atomic<int>& fresh_counter() override {
    static std::atomic<int>* const shared = shared_counter();
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_.rank() == 0) shared->store(0);
    MPI_Barrier(MPI_COMM_WORLD);
    return *shared;
  }

 private:
  static std::atomic<int>* shared_counter() {
    static_assert(std::atomic<int>::is_always_lock_free);
    MPI_Win window = MPI_WIN_NULL;
    void* memory = nullptr;
    MPI_Aint bytes = world_rank() == 0 ? sizeof(std::atomic<int>) : 0;
    MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    int unit = 1;
    MPI_Win_shared_query(window, 0, &bytes, &unit, &memory);
    return world_rank() == 0 ? new (memory) std::atomic<int>(0)
                             : static_cast<std::atomic<int>*>(memory);
  }

  StreamForm form_;
  MpiWorld world_;
};

/// Runs a conformance test with both forms of streams.
template <class Test>
void on_both_forms(Test test) {
  for (StreamForm form : {StreamForm::Inline, StreamForm::Threaded}) {
    const std::string name = form == StreamForm::Inline ? "inline streams" : "threaded streams";
    CAPTURE(name);
    MpiWorlds worlds(form);
    test(worlds);
  }
}

}  // namespace conformance
