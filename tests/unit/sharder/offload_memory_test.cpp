// The bytes of offload on the device and on the host, pinned and pageable, and what is refused.
#include "offload_checks.hpp"

#include <doctest/doctest.h>

#include <atomic>

using namespace sharder_test;

TEST_CASE("offload: what cannot be done is refused before anything is allocated") {
  const auto refused = [](auto&& device, Options options) {
    std::string message;
    ThreadWorld(1).run([&](Communicator& communicator) {
      options.device = &device;
      options.groups = {{}, {}};
      message = message_of([&] {
        make_trainer(StrategyName::FullShard, PrecisionName::Fp32, communicator, TestModel().model,
                     AdamW{}, options);
      });
    });
    CHECK(device.memory().allocations() == 0);
    return message;
  };
  for (const OffloadTraits& offload : offloads) {
    CHECK(contains(refused(HostDevice(), {.capturable = true, .offload = offload}), "capturable"));
    CHECK(contains(refused(HostDevice(), {.offload = offload, .pinned_budget = -1}),
                   "pinned_budget is -1"));
  }
  for (const OffloadTraits& offload : nvme_offloads)
    CHECK(contains(refused(HostDevice(), {.offload = offload}), "Options::nvme.folder"));
}

TEST_CASE("offload: bytes fall on the device and rise on the host as the Plan says, to the byte") {
  for (const StrategyName strategy : all_strategies)
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed})
      for (const int world : {1, 4}) {
        Training training = clipped(strategy, world, 2);
        training.precision = precision;
        Bytes host = 0, pinned = 0, pageable = 0;
        training.hooks.after_training = [&](Trainer& trainer, Communicator& communicator) {
          if (communicator.rank() != 0) return;
          host = trainer.engine().device().host_memory().high_water();
          pinned = trainer.plan().pinned_bytes;
          pageable = trainer.plan().pageable_bytes;
        };
        const Trained before = trained_at(training, none);
        CHECK(pinned == 0);
        const Bytes beside = host;  // reports
        for (const OffloadTraits& offload : offloads) {
          CAPTURE(to_string(training));
          CAPTURE(to_string(offload));
          const Trained after = trained_at(training, offload);
          CHECK(after.high_water == after.arena_bytes);
          CHECK(host == beside + pinned);
          CHECK(pinned > 0);
          CHECK(pageable == 0);
        }
        const Trained all = trained_at(training, all_on_host);
        CHECK(all.arena_bytes < before.arena_bytes);
      }
}

TEST_CASE("offload: a budget makes the rest pageable, and says so once on each rank") {
  Training training = clipped(StrategyName::FullShard, 2, 2);
  const Trained expected = train(training);
  std::atomic<int> warnings{0};
  Bytes host = 0, beside = 0, pageable = 0;
  training.hooks.after_training = [&](Trainer& trainer, Communicator& communicator) {
    if (communicator.rank() != 0) return;
    host = trainer.engine().device().host_memory().high_water();
    pageable = trainer.plan().pageable_bytes;
  };
  train(training);
  beside = host;
  training.options.offload = all_on_host;
  training.options.on_warning = [&](std::string_view message) {
    ++warnings;
    CHECK(contains(std::string(message), "pageable"));
  };
  for (const Bytes budget : {Bytes{0}, Bytes{1000}, Bytes{5000}}) {
    warnings = 0;
    training.options.pinned_budget = budget;
    const Trained trained = train(training);
    CHECK(trained.hash() == expected.hash());
    CHECK(host - beside <= budget);
    CHECK(pageable > 0);
    CHECK(warnings == 2);
  }
  warnings = 0;
  training.options.pinned_budget = unlimited_bytes;
  CHECK(train(training).hash() == expected.hash());
  CHECK(warnings == 0);
}
