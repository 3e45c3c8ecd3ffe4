// Brings new parameters from where the optimizer rests to where they rest.
#pragma once

#include "runtime.hpp"

namespace flatshard::detail {

/// The compute-dtype slices of a unit are made on the optimizer's lane: at rest where that is the
/// same tier, else in the master (equal dtypes) or in staging, a slot for the unit's slices or, of
/// long ones that rest on the device, buffers for parts; and then copied on a stream of their own.
/// Nothing blocks the host.
class Delivery {
 public:
  explicit Delivery(Runtime& runtime);

  /// The optimizer's lane may write the unit's slices and masters from here on. `decision`, in host
  /// memory, may say that nothing changes, which need not go to NVMe; none: something does.
  void begin(int unit, const StepScalars* decision = nullptr);
  /// Where the lane is to write the flat's compute-dtype elements from its slice's element `from`
  /// on, for the unit that was begun last: of one part if Flat::staged_in_parts, else to the
  /// slice's end. Null: nowhere; the master is what is sent. Each call is followed by one
  /// send_part().
  std::byte* open_part(int flat, Elements from);
  /// The lane has been given what makes the `count` elements from there.
  void send_part(int flat, Elements from, Elements count);
  /// New values of the flat were issued to the lane.
  void mark(int flat) { marked_[static_cast<std::size_t>(flat)] = true; }
  /// Sends what was marked of the unit that was begun last.
  void deliver(int unit);

  /// Recorded when the unit's slices are at rest.
  Event& delivered(int unit) { return *units_[static_cast<std::size_t>(unit)].delivered; }
  /// Where that is recorded.
  Stream& stream(int unit) const;

 private:
  struct Unit {
    std::unique_ptr<Event> stepped;    // on the optimizer's lane
    std::unique_ptr<Event> delivered;  // on stream()
    bool moves = false;                // some flat rests on another tier than the optimizer
  };
  struct Slot {
    std::byte* data;
    std::unique_ptr<Event> free;  // on the copying stream
  };
  struct PartSlot {
    std::byte* data;
    std::unique_ptr<Event> made;  // on the optimizer's lane
    std::unique_ptr<Event> free;  // on the copying stream
  };
  std::byte* slice(int flat) const;
  Slot& slot() { return slots_[static_cast<std::size_t>(slot_)]; }
  void copy(int flat);
  bool goes_to_nvme(int flat) const;
  bool open_slots(int unit);
  void close_slots(int unit);

  Runtime& runtime_;
  Stream& lane_;
  Stream& transfer_;
  std::vector<Unit> units_;
  std::vector<Slot> slots_;
  std::vector<PartSlot> parts_;
  std::size_t next_part_ = 0;
  std::vector<bool> marked_;  // per flat
  const StepScalars* decision_ = nullptr;
  std::unique_ptr<Event> opened_;  // on the disk stream
  std::unique_ptr<Event> copied_;  // on the copying stream
  int slot_ = -1;                  // of the unit that was begun last, where it stages
  int next_slot_ = 0;
};

}  // namespace flatshard::detail
