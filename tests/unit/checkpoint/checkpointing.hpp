// Trainings that save and resume: the tiny model of the Sharder's tests.
#pragma once

#include <flatshard/checkpoint/async_save.hpp>
#include <flatshard/checkpoint/load.hpp>
#include <flatshard/checkpoint/save.hpp>
#include <flatshard/io/faulty_file_operations.hpp>

#include <fstream>
#include <iterator>
#include <string>

#include "../sharder/training.hpp"
#include "scratch_folder.hpp"

namespace sharder_test {

using flatshard_test::ScratchFolder;

/// The operating system's, but nothing waits for the disk.
class UnsynchronizedFiles final : public FaultyFileOperations {
 public:
  UnsynchronizedFiles() : FaultyFileOperations(posix_file_operations(), {}) {}
  int fsync(int) override { return 0; }
};

/// One half of an interrupted training.
struct Part {
  StrategyName strategy = StrategyName::FullShard;
  PrecisionName precision = PrecisionName::Bf16Mixed;
  int world = 2;
  int from = 0;            // steps made before
  int to = 0;              // steps made in all
  std::string load, save;  // folders; empty: none
  Optimizer optimizer = AdamW{.lr = 1e-2};
  SaveOptions save_options = {};
  LoadOptions load_options = {};
  Options options = {};
  ModelChoice model = {};
  int micro_steps = 1;
};

/// Trains from Part::from to Part::to; returns the state at the end.
inline Trained train_part(const Part& part) {
  UnsynchronizedFiles files;
  Training training;
  training.strategy = part.strategy;
  training.precision = part.precision;
  training.world = part.world;
  training.steps = part.to - part.from;
  training.micro_steps = part.micro_steps;
  training.optimizer = part.optimizer;
  training.options = part.options;
  training.model = part.model;
  training.hooks.micro_step = [from = part.from](Trainer& trainer, const TestModel& test,
                                                 std::int64_t step, Elements micro_batch) {
    run_micro_step(trainer, test, step + from, micro_batch);
  };
  training.hooks.before_training = [&](Trainer& trainer, Communicator&) {
    if (!part.load.empty()) load_checkpoint(trainer.engine(), part.load, part.load_options);
  };
  training.hooks.after_training = [&](Trainer& trainer, Communicator&) {
    SaveOptions options = part.save_options;
    options.folder = part.save;
    options.operations = &files;
    if (!part.save.empty()) save_checkpoint(trainer.engine(), options);
  };
  return train(training);
}

inline bool same_state(const Trained& a, const Trained& b) {
  return a.masters == b.masters && a.states == b.states && a.replicas_agree && b.replicas_agree;
}

inline std::string bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace sharder_test
