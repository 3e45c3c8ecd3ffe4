// Reduced gradients that come to the host in parts, each used as soon as it is there.
#pragma once

#include "runtime.hpp"

namespace flatshard::detail {

/// Brings the reduced gradient of one flat to the host, part by part, while its unit is updated.
/// The parts pass through a few buffers that stay in the processor's cache: what is read right
/// after it was written, and soon written again, costs the host's memory little. Holds one flat at
/// a time. Nothing blocks the host.
class GradientRelay {
 public:
  explicit GradientRelay(Runtime& runtime);

  /// The flat's reduced slice lies at `reduced` on the device; the download stream has been ordered
  /// after the reduction. finish() records `left` there; until then nobody may write it. Call only
  /// when is_empty().
  void take(int flat, const std::byte* reduced, Event& left);
  bool is_empty() const { return flat_ < 0; }
  bool holds(int flat) const { return flat_ == flat; }

  /// Elements [from, from + count) of that slice, at most Plan::update_part, in host memory: what
  /// the host stream is given after this call may read them until release(). One part at a time.
  const std::byte* bring(Elements from, Elements count);
  void release();
  /// No further part is brought: after the last release(), or of a step that is discarded.
  void finish();

 private:
  struct Slot {
    std::byte* data;
    std::unique_ptr<Event> arrived;  // recorded on the download stream
    std::unique_ptr<Event> free;     // recorded on the host stream
  };

  Runtime& runtime_;
  std::vector<Slot> slots_;
  std::size_t next_ = 0;
  int flat_ = -1;  // none
  const std::byte* reduced_ = nullptr;
  Event* left_ = nullptr;
};

}  // namespace flatshard::detail
