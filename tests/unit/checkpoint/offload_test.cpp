// Checkpoints know nothing of tiers: what one place saves, any other resumes.
#include <doctest/doctest.h>

#include "../sharder/offload.hpp"
#include "checkpointing.hpp"

namespace sharder_test {
namespace {

constexpr OffloadTraits all_on_nvme{Tier::Nvme, Tier::Nvme};

/// Every run leaves it empty.
const ScratchFolder& nvme_folder() {
  static const ScratchFolder folder;
  return folder;
}

Part part_of(StrategyName strategy, PrecisionName precision, const OffloadTraits& offload) {
  Part part;
  part.strategy = strategy;
  part.precision = precision;
  part.options.max_grad_norm = 1;
  part.options.offload = offload;
  part.options.nvme.folder = nvme_folder().path();
  return part;
}

TEST_CASE("offload: a run goes on in another place with the bits of one that was not interrupted") {
  const std::array places{none, all_on_host, optimizer_on_host, parameters_on_host, all_on_nvme};
  for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed})
    for (const StrategyName strategy : {StrategyName::FullShard, StrategyName::ShardOptimizer}) {
      Part whole = part_of(strategy, precision, none);
      whole.to = 4;
      const Trained expected = train_part(whole);
      for (const OffloadTraits& before : places)
        for (const OffloadTraits& after : places) {
          CAPTURE(to_string(before));
          CAPTURE(to_string(after));
          const ScratchFolder folder;
          Part first = part_of(strategy, precision, before);
          first.to = 2;
          first.save = folder / "run";
          const Trained saved = train_part(first);
          Part second = part_of(StrategyName::FullShard, precision, after);
          second.load = first.save;
          second.from = second.to = 2;
          CHECK(same_state(train_part(second), saved));
          second.to = 4;
          CHECK(same_state(train_part(second), expected));
        }
    }
}

TEST_CASE("offload: the files are the same bytes") {
  const ScratchFolder folder;
  std::vector<std::string> saved;
  for (const OffloadTraits& place :
       {none, all_on_host, optimizer_on_host, parameters_on_host, all_on_nvme}) {
    Part part = part_of(StrategyName::HybridShard, PrecisionName::Bf16Mixed, place);
    part.to = 1;
    part.save = folder / std::to_string(saved.size());
    train_part(part);
    saved.push_back(bytes_of_file(part.save + "/step-1/model.safetensors") +
                    bytes_of_file(part.save + "/step-1/optimizer.safetensors"));
    CHECK(saved.back().size() > 1000);
    CHECK(saved.back() == saved.front());
  }
}

}  // namespace
}  // namespace sharder_test
