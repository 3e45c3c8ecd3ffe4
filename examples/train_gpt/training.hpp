#pragma once

#include "data.hpp"
#include "options.hpp"

namespace train_gpt {

/// Trains as the options say, with ranks as threads of this process or, under a launcher, as one of
/// its processes; rank 0 reports. Throws OptionError and flatshard::UsageError for what cannot be
/// done, before training begins.
void run_training(const Options& options);

/// The Plan of such a run, as text.
std::string plan_text(const Options& options);

}  // namespace train_gpt
