// The scratch that the Plan gives to sums by exchange is what they need, to the byte.
#include <doctest/doctest.h>
#include <flatshard/comm/call.hpp>
#include <flatshard/comm/decorator.hpp>

#include <algorithm>
#include <atomic>
#include <memory>

#include "training.hpp"

using namespace sharder_test;

namespace {

/// Of one rank.
struct Scratch {
  Bytes lent = 0;    // for its sums
  Bytes needed = 0;  // by the largest of them
};

/// Says that its sums need scratch, and notes how much.
class ScratchCommunicator final : public CommunicatorDecorator {
 public:
  ScratchCommunicator(Communicator& inner, std::shared_ptr<Scratch> scratch)
      : CommunicatorDecorator(inner), scratch_(std::move(scratch)) {}
  ScratchCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<Scratch> scratch)
      : CommunicatorDecorator(std::move(inner)), scratch_(std::move(scratch)) {}

  bool needs_scratch() const override { return true; }
  void lend_scratch(void* memory, Bytes bytes) override {
    if (memory != nullptr) scratch_->lent = bytes;
  }
  void reduce_scatter(std::string_view label, const void* send, void* receive, Elements count,
                      DType contribution, DType result, StreamRef stream) override {
    need({Operation::ReduceScatter, label, count, contribution, result});
    inner().reduce_scatter(label, send, receive, count, contribution, result, stream);
  }
  void all_reduce(std::string_view label, const void* send, void* receive, Elements count,
                  DType contribution, DType result, StreamRef stream) override {
    need({Operation::AllReduce, label, count, contribution, result});
    inner().all_reduce(label, send, receive, count, contribution, result, stream);
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<ScratchCommunicator>(inner().split(color, key), scratch_);
  }

 private:
  void need(const CollectiveCall& call) {
    scratch_->needed = std::max(scratch_->needed, detail::exchange_bytes(call, size()));
  }
  std::shared_ptr<Scratch> scratch_;
};

}  // namespace

TEST_CASE("the Plan's exchange is what the largest sum needs") {
  for (const StrategyName strategy : all_strategies)
    for (const PrecisionName precision :
         {PrecisionName::Fp32, PrecisionName::Bf16Mixed, PrecisionName::Fp64})
      for (const int world : {1, 2, 3, 4})
        for (const int group : {0, 2})
          for (const bool at_boundary : {false, true}) {
            Training training;
            training.strategy = strategy;
            training.precision = precision;
            training.world = world;
            training.micro_steps = 2;
            training.steps = 1;
            if (group != 0 && (!has_groups(strategy) || world != 4)) continue;
            training.options.shard_group = group;
            if (at_boundary)
              training.options.reduce_moment =
                  is_hybrid(strategy) ? ReduceMoment::ReplicaBoundary : ReduceMoment::Boundary;
            CAPTURE(to_string(training));
            std::atomic<bool> equal{true};
            std::atomic<Bytes> planned{0};
            std::vector<std::shared_ptr<Scratch>> scratch(static_cast<std::size_t>(world));
            training.hooks.decorate = [&](Communicator& comm) {
              auto& mine = scratch[static_cast<std::size_t>(comm.rank())];
              mine = std::make_shared<Scratch>();
              return std::make_unique<ScratchCommunicator>(comm, mine);
            };
            training.hooks.after_training = [&](Trainer& trainer, Communicator& comm) {
              const Bytes bytes = trainer.plan().bytes(Role::Exchange);
              const Scratch& mine = *scratch[static_cast<std::size_t>(comm.rank())];
              if (mine.lent != bytes || mine.needed != bytes) equal.store(false);
              if (comm.rank() == 0) planned.store(bytes);
            };
            train(training);
            CHECK(equal.load());
            CHECK((planned.load() > 0) == (world > 1));
          }
}
