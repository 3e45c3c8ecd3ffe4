// Reduced gradients that come to the host in parts, each used as soon as it is there.
#pragma once

#include "runtime.hpp"

namespace flatshard::detail {

/// Of a unit that is updated as its gradient arrives. The parts pass through a few buffers that
/// stay in the processor's cache: what is read right after it was written, and soon written again,
/// costs the host's memory little. Nothing blocks the host.
class GradientRelay {
 public:
  explicit GradientRelay(Runtime& runtime);

  /// The flat's reduced slice is at `reduced` on the device, for the download stream; `left` is to
  /// be recorded there when all of it has gone. Before the next one, it must be brought.
  void take(int flat, const std::byte* reduced, Event& left);
  bool is_empty() const { return flat_ < 0; }
  bool holds(int flat) const { return flat_ == flat; }

  /// Elements [from, from + count) of that slice, at most Plan::update_part, for the host stream.
  const std::byte* bring(Elements from, Elements count);
  /// The host stream has read what bring() gave.
  void release();
  /// All parts were brought.
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
