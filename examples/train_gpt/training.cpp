#include "training.hpp"

#include <flatshard/flatshard.hpp>

#include <new>
#include <stdexcept>

#include "precision_table.hpp"
#include "progress.hpp"
#include "trainer.hpp"

namespace train_gpt {
namespace {

/// Where rank 0 tells how training goes.
class Reporter {
 public:
  explicit Reporter(const Options& options)
      : file_(options.metrics),
        progress_(options.steps),
        throughput_(options.steps, options.batch * options.model.context) {}

  void add(double loss, const flatshard::StepReport& report) {
    recent_.add(loss);
    const StepMetrics metrics{report.step,       loss,
                              report.grad_norm,  report.skipped,
                              report.scale_used, throughput_.tokens_per_s()};
    file_.write(metrics);
    progress_.show(metrics, throughput_.seconds_left(report.step));
  }
  void finish(std::uint64_t params_hash) {
    file_.finish(params_hash);
    progress_.finish(recent_.mean(), throughput_.seconds(), params_hash);
  }

 private:
  MetricsFile file_;
  Progress progress_;
  Throughput throughput_;
  RecentLoss recent_;
};

/// One rank's part of the run: its model, its share of the data, its trainer.
template <class Compute>
class RankTraining {
 public:
  RankTraining(flatshard::Communicator& communicator, const Options& options, const Setup& setup,
               const TrainerType<Compute>& type, const Corpus& corpus)
      : communicator_(communicator),
        options_(options),
        corpus_(corpus),
        device_({.form = options.stream == StreamForm::threaded ? flatshard::StreamForm::Threaded
                                                                : flatshard::StreamForm::Inline,
                 .threads = options.threads}),
        trainer_(type.make(communicator, setup, device_)),
        model_(options.model, options.sequences_per_micro_step()),
        tokens_(static_cast<std::size_t>(model_.sequences() * options.model.context)),
        targets_(tokens_.size()) {
    trainer_->initialize();
  }

  /// `reporter` is null on every rank but one.
  void run(Reporter* reporter) {
    for (std::int64_t step = 0; step < options_.steps; ++step) {
      const double loss = run_step(step);
      const flatshard::StepReport report = trainer_->step().wait();
      if (reporter != nullptr) reporter->add(loss, report);
    }
    const std::uint64_t hash = trainer_->params_hash();
    if (reporter != nullptr) reporter->finish(hash);
  }

 private:
  /// Forward and backward of all micro-steps; the mean loss over the global batch.
  double run_step(std::int64_t step) {
    double sum = 0;
    for (int index = 0; index < options_.accumulate; ++index) {
      trainer_->micro_step(index + 1 == options_.accumulate);
      read_batch(step, trainer_->micro_batch(index, options_.accumulate));
      sum += run_micro_step(*trainer_, model_, tokens_.data(), targets_.data());
    }
    communicator_.all_reduce("loss", &sum, &sum, 1, flatshard::DType::Float64,
                             flatshard::DType::Float64, stream_);
    stream_.synchronize();
    return sum / (static_cast<double>(options_.ranks) * options_.accumulate);
  }

  void read_batch(std::int64_t step, std::int64_t micro_batch) {
    const std::int64_t context = options_.model.context;
    for (std::int64_t i = 0; i < model_.sequences(); ++i)
      corpus_.sequence(options_.seed, step, micro_batch * model_.sequences() + i, context,
                       tokens_.data() + i * context, targets_.data() + i * context);
  }

  flatshard::Communicator& communicator_;
  const Options& options_;
  const Corpus& corpus_;
  flatshard::HostDevice device_;
  flatshard::InlineStream stream_;
  std::unique_ptr<Trainer<Compute>> trainer_;
  Model<Compute> model_;
  std::vector<std::int32_t> tokens_, targets_;
};

Corpus read_corpus(const Options& options) {
  const std::int64_t context = options.model.context;
  return options.data.empty() ? Corpus::from_project(context)
                              : Corpus::from_file(options.data, context);
}

}  // namespace

void run_training(const Options& options) {
  const std::unique_ptr<const Setup> setup = make_setup(options);
  with_trainer_type(options, [&](const auto& type) {
    static_cast<void>(type.plan(*setup, options.ranks));  // refuses what no rank could do
    const Corpus corpus = read_corpus(options);
    Reporter reporter(options);
    flatshard::ThreadWorld world(options.ranks);
    world.run([&](flatshard::Communicator& communicator) {
      try {
        RankTraining training(communicator, options, *setup, type, corpus);
        training.run(communicator.rank() == 0 ? &reporter : nullptr);
      } catch (const std::bad_alloc&) {
        throw std::runtime_error("there is not enough memory");
      }
    });
  });
}

std::string plan_text(const Options& options) {
  const std::unique_ptr<const Setup> setup = make_setup(options);
  std::string text;
  with_trainer_type(options, [&](const auto& type) {
    text = flatshard::to_string(type.plan(*setup, options.ranks));
  });
  return text;
}

}  // namespace train_gpt
