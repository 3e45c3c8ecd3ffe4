#pragma once

#include "data.hpp"
#include "reporter.hpp"
#include "trainer.hpp"

namespace train_gpt {

/// Throws OptionError when this program or this machine has not that many GPUs.
void check_devices(int ranks);

/// Trains with one GPU per rank; `reporter` is null where rank 0 is another process. For double,
/// which validate() refuses: throws OptionError.
template <class Compute>
void run_on_devices(const Options& options, const Setup& setup, const TrainerType<Compute>& type,
                    const Corpus& corpus, Reporter* reporter);

}  // namespace train_gpt
