// NVMe: the edges between what moves slots and the other streams are all there, and needed.
#include <doctest/doctest.h>
#include <flatshard/core/error.hpp>

#include "late_device.hpp"
#include "offload.hpp"
#include "random.hpp"
#include "scratch_folder.hpp"

using namespace sharder_test;

namespace {

enum : int { compute, gather, reduce, upload, download, host, disk };  // in the order they are made

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr bool has_thread_sanitizer = true;
#else
constexpr bool has_thread_sanitizer = false;
#endif
#elif defined(__SANITIZE_THREAD__)
constexpr bool has_thread_sanitizer = true;
#else
constexpr bool has_thread_sanitizer = false;
#endif

Training on_nvme(StrategyName strategy, const OffloadTraits& offload, bool in_backward) {
  Training training = clipped(strategy, 2, 2);
  training.precision = PrecisionName::Bf16Mixed;
  training.options.offload = offload;
  if (in_backward) training.options.max_grad_norm = 0;
  training.options.step_in_backward = in_backward;
  training.options.nvme.backend = IoBackend::Threads;
  training.options.nvme.block_bytes = 4096;
  return training;
}

std::uint64_t hash_without_disk(Training training) {
  training.options.offload = none;
  return train(training).hash();
}

/// With it, and streams that are late.
std::uint64_t hash_with(Training training, const Lateness& lateness) {
  const flatshard_test::ScratchFolder folder;
  training.options.nvme.folder = folder.path();
  training.hooks.device = [&](const HostOptions&, Rank) {
    return std::make_unique<LateDevice>(lateness);
  };
  return train(training).hash();
}

}  // namespace

// A gather that is late does not wait for its lift at once.
TEST_CASE("NVMe streams: whichever are late, the bits are the same") {
  auto random = flatshard_test::generator(45);
  for (const OffloadTraits& offload : nvme_offloads)
    for (const PrecisionName precision : {PrecisionName::Fp32, PrecisionName::Bf16Mixed}) {
      const auto strategy =
          random() % 2 == 0 ? StrategyName::ShardOptimizer : StrategyName::FullShard;
      Training training = on_nvme(strategy, offload, random() % 2 == 0);
      training.precision = precision;
      const std::uint64_t expected = hash_without_disk(training);
      for (const auto& late :
           std::vector<std::vector<int>>{{upload}, {gather, upload}, {download}, {host}, {disk}}) {
        training.options.nvme.buffers = 1 + static_cast<int>(random() % 2);
        CAPTURE(to_string(training));
        CAPTURE(to_string(offload));
        CAPTURE(late.front());
        CHECK(hash_with(training, {.late = late}) == expected);
      }
    }
}

// Without an edge the disk's thread may be at the same bytes, which a sanitizer would report. What
// shows is wrong whenever that thread gets to run: who reads, or waits for it, does so too early.
TEST_CASE("NVMe streams: no kind of edge may be left out" * doctest::skip(has_thread_sanitizer)) {
  const auto needed = [](const OffloadTraits& offload, std::pair<int, int> edge,
                         std::vector<int> late) {
    Training training = on_nvme(StrategyName::FullShard, offload, false);
    training.options.nvme.buffers = 1;
    training.options.prefetch_forward = 2;
    CAPTURE(to_string(offload));
    CAPTURE(edge.first);
    CAPTURE(edge.second);
    const std::uint64_t expected = hash_without_disk(training);
    bool is_right = false;
    try {
      is_right = hash_with(training, {.late = late, .dropped = edge}) == expected;
    } catch (const Error&) {  // checksums notice some of it
    }
    CHECK_FALSE(is_right);
  };
  constexpr OffloadTraits all{Tier::Nvme, Tier::Nvme}, optimizer{Tier::Device, Tier::Nvme};
  needed(optimizer, {upload, host}, {upload});  // begin a buffer whose masters were sent
  needed(all, {host, download}, {host});        // copy a gradient into one
  // Begin a buffer that was lifted: units ahead wait for their turn, until they are gathered. Write
  // what was copied: that shows only when the disk's thread is fast.
  needed(all, {upload, disk}, {gather, upload});
  needed(all, {disk, upload}, {disk});  // lift what was read, copy into a buffer
  // The edge from the disk to the next decision orders what step() has waited for already.
}
