#pragma once

#include <flatshard/comm/communicator.hpp>

#include <deque>
#include <memory>

#include "checkpoints.hpp"
#include "data.hpp"
#include "micro_step.hpp"
#include "reporter.hpp"
#include "trainer.hpp"

namespace train_gpt {

/// One rank's part of the run: its worker (device, model, losses), its share of the data, its
/// trainer. Reports come `Worker::lag` steps late, so that no step waits for its own end.
template <class Worker>
class RankTraining {
 public:
  using Compute = typename Worker::Compute;

  RankTraining(flatshard::Communicator& communicator, Worker& worker, const Options& options,
               const Setup& setup, const TrainerType<Compute>& type, const Corpus& corpus)
      : communicator_(communicator),
        worker_(worker),
        options_(options),
        corpus_(corpus),
        trainer_(type.make(communicator, setup, worker.device(), worker.compute_stream())) {
    trainer_->initialize();
  }

  /// `reporter` is null on every rank but one.
  void run(Reporter* reporter) {
    Checkpoints checkpoints(options_, trainer_->engine());
    const std::int64_t made = checkpoints.resume();
    if (reporter != nullptr) reporter->says_how(trainer_->engine().nvme());
    if (reporter != nullptr) reporter->start_after(made);
    for (std::int64_t step = made; step < options_.steps; ++step) {
      run_step(step);
      reports_.push_back(trainer_->step());
      if (reporter != nullptr) reporter->issued();
      if (reports_.size() > Worker::lag) report_oldest(reporter);
      checkpoints.after_step(step + 1);
    }
    while (!reports_.empty()) report_oldest(reporter);
    checkpoints.finish();
    const std::uint64_t hash = trainer_->params_hash();
    if (reporter != nullptr) reporter->finish(hash);
  }

 private:
  /// Forward and backward of all micro-steps.
  void run_step(std::int64_t step) {
    worker_.begin_step();
    for (int index = 0; index < options_.accumulate; ++index) {
      trainer_->micro_step(index + 1 == options_.accumulate);
      read_batch(step, trainer_->micro_batch(index, options_.accumulate));
      worker_.micro_step(*trainer_);
    }
    worker_.end_step(communicator_);
  }

  void read_batch(std::int64_t step, std::int64_t micro_batch) {
    const std::int64_t context = options_.model.context;
    const std::int64_t sequences = options_.sequences_per_micro_step();
    std::int32_t* const tokens = worker_.tokens();
    std::int32_t* const targets = worker_.targets();
    for (std::int64_t i = 0; i < sequences; ++i)
      corpus_.sequence(options_.seed, step, micro_batch * sequences + i, context,
                       tokens + i * context, targets + i * context);
  }

  void report_oldest(Reporter* reporter) {
    const flatshard::StepReport report = reports_.front().wait();
    reports_.pop_front();
    const double loss = worker_.take_loss();
    if (reporter != nullptr) reporter->add(loss, report, worker_);
  }

  flatshard::Communicator& communicator_;
  Worker& worker_;
  const Options& options_;
  const Corpus& corpus_;
  std::unique_ptr<Trainer<Compute>> trainer_;
  std::deque<flatshard::PendingReport> reports_;  // of steps that are under way
};

}  // namespace train_gpt
