// --device cuda in a build without CUDA.
#include "device_training.hpp"
#include "option_error.hpp"

namespace train_gpt {

void check_devices(int) {
  throw OptionError("--device cuda needs a train_gpt that was built with -Dcuda=enabled");
}

template <class Compute>
void run_on_devices(const Options& options, const Setup&, const TrainerType<Compute>&,
                    const Corpus&, Reporter*) {
  check_devices(options.ranks);
}

template void run_on_devices(const Options&, const Setup&, const TrainerType<float>&, const Corpus&,
                             Reporter*);
template void run_on_devices(const Options&, const Setup&, const TrainerType<double>&,
                             const Corpus&, Reporter*);
template void run_on_devices(const Options&, const Setup&, const TrainerType<flatshard::Bf16>&,
                             const Corpus&, Reporter*);
template void run_on_devices(const Options&, const Setup&, const TrainerType<flatshard::Half>&,
                             const Corpus&, Reporter*);

}  // namespace train_gpt
