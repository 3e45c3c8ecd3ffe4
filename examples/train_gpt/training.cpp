#include "training.hpp"

#include <flatshard/flatshard.hpp>

#include <cstdlib>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>

#include "checkpoints.hpp"
#include "device_training.hpp"
#include "host_worker.hpp"
#include "precision_table.hpp"
#include "rank_training.hpp"

namespace train_gpt {
namespace {

Corpus read_corpus(const Options& options) {
  const std::int64_t context = options.model.context;
  if (!options.data.empty()) return Corpus::from_file(options.data, context);
  const bool bytes = options.model.vocabulary == 256;
  return bytes ? Corpus::from_project(context) : Corpus::of_random_tokens(options.model.vocabulary);
}

void run_ranks(const Options& options,
               const std::function<void(flatshard::Communicator&)>& rank_main) {
  if (options.launched)
    flatshard::world_from_env(flatshard::DeviceKind::Host).run(rank_main);
  else
    flatshard::ThreadWorld(options.ranks).run(rank_main);
}

/// Among the ranks of this host.
flatshard::Rank local_rank(const Options& options, const flatshard::Communicator& communicator) {
  if (!options.launched) return communicator.rank();
  return flatshard::launch_environment([](const char* name) { return std::getenv(name); })
      .local_rank;
}

template <class Compute>
void run_on_host(const Options& options, const Setup& setup, const TrainerType<Compute>& type,
                 const Corpus& corpus, Reporter* reporter) {
  run_ranks(options, [&](flatshard::Communicator& communicator) {
    try {
      HostWorker<Compute> worker(options, local_rank(options, communicator));
      RankTraining training(communicator, worker, options, setup, type, corpus);
      training.run(communicator.rank() == 0 ? reporter : nullptr);
    } catch (const std::bad_alloc&) {
      throw std::runtime_error("there is not enough memory");
    }
  });
}

}  // namespace

void run_training(const Options& options) {
  if (options.device == Place::cuda) check_devices(options.launched ? 1 : options.ranks);
  const std::unique_ptr<const Setup> setup = make_setup(options);
  with_trainer_type(options, [&](const auto& type) {
    static_cast<void>(type.plan(*setup, options.ranks));  // refuses what no rank could do
    const Corpus corpus = read_corpus(options);
    make_save_folder(options);
    std::optional<Reporter> reporter;
    if (options.process == 0) reporter.emplace(options);
    Reporter* const mine = reporter ? &*reporter : nullptr;
    if (options.device == Place::cuda)
      run_on_devices(options, *setup, type, corpus, mine);
    else
      run_on_host(options, *setup, type, corpus, mine);
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
