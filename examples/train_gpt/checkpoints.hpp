#pragma once

#include <flatshard/checkpoint/async_save.hpp>

#include <cstdint>
#include <memory>

#include "options.hpp"

namespace train_gpt {

/// Makes the folder of --save, and those that it is in, before any training is lost for want of it.
/// Throws OptionError when that cannot be done.
void make_save_folder(const Options& options);

/// What --save, --save-every and --resume do, on one rank. Calls are collective.
class Checkpoints {
 public:
  Checkpoints(const Options& options, flatshard::Engine& engine);

  /// Steps that were made before: 0 without --resume. Where the options are not those of the saved
  /// run, rank 0 says so on standard error. Throws OptionError when --steps is less.
  std::int64_t resume();
  /// Call after each step, of which `steps` have been made in all. Writes in the background.
  void after_step(std::int64_t steps);
  /// Waits for what is still being written.
  void finish();

 private:
  const Options& options_;
  flatshard::Engine& engine_;
  std::unique_ptr<flatshard::AsyncSaver> saver_;  // null without --save
};

}  // namespace train_gpt
