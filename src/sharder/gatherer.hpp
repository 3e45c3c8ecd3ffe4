// Makes parameters whole and lets them go: gathers, ring slots, prefetch, secondary shards.
#pragma once

#include "delivery.hpp"

namespace flatshard::detail {

/// Every gather runs on the gather stream; `hold` makes the compute stream wait for it, `release`
/// lets the ring slot be filled again once the compute stream got there. Nothing blocks the host
/// but copies of pageable memory beside a CUDA device.
class Gatherer {
 public:
  Gatherer(Runtime& runtime, Elements max_live);

  /// Makes the unit whole for the compute stream and holds it; each hold needs one release.
  void hold(int unit);
  void release(int unit);
  /// Gathers ahead if a slot is free and the cap allows.
  void prefetch(int unit);
  int outstanding() const { return outstanding_; }
  bool is_absent(int unit) const;

  /// Throws UsageError when a unit is held: parameters are about to change.
  void expect_released() const;
  /// Parameters have changed: nothing gathered stays valid. Later gathers run after all that the
  /// reduce stream has been given so far.
  void invalidate();
  /// The same of one unit, which is updated while backward runs: who holds it keeps what was
  /// gathered, whoever gathers it later has the new parameters.
  void outdate(int unit);
  /// Where the optimizer writes the unit's slices; begin() before, publish() after.
  Delivery& delivery() { return delivery_; }
  /// Delivers the unit's updated slices, and sends those of flats that rest whole to every rank of
  /// the shard group, after what the optimizer's lane has been given so far. Between the calls of a
  /// backward, flats that rest whole on the host are left to publish_on_host(): no buffer is free.
  void publish(int unit, bool within_backward = false);
  /// The rest of it; no unit is held.
  void publish_on_host(int unit);
  /// The streams that write parameters wait for all that was issued so far and reads them.
  void order_before_writes();

  /// Address of the whole flat; null while its unit is absent.
  std::byte* whole(int flat) const;
  Elements live_elements() const { return live_; }
  Elements peak_live_elements() const { return peak_live_; }

 private:
  struct State {
    int holds = 0;
    bool present = false;     // gathered, or being gathered, and not out of date
    bool prefetched = false;  // and not used since
    bool outdated = false;    // present, but only for those who hold it
    bool secondary = false;   // the secondary shard is up to date
    bool brought = false;     // from NVMe, into a buffer on the host
    int slot = -1;
    std::unique_ptr<Event> ready;      // recorded on the gather stream
    std::unique_ptr<Event> published;  // on the gather stream; with offload, where nothing is sent
                                       // to other ranks, on the stream that delivers
    std::unique_ptr<Event> stepped;    // on the reduce stream; on the gather stream, of what is
                                       // published through the device
    std::unique_ptr<Event> lifted;     // recorded on the upload stream
    std::unique_ptr<Event> lowered;    // recorded on the download stream
  };
  struct Slot {
    int unit = -1;
    std::byte* data = nullptr;
    std::unique_ptr<Event> free;     // recorded on the compute stream
    std::unique_ptr<Event> filled;   // recorded on the gather stream
    std::unique_ptr<Event> lowered;  // recorded on the download stream
  };

  State& state(int unit) { return states_[static_cast<std::size_t>(unit)]; }
  const State& state(int unit) const { return states_[static_cast<std::size_t>(unit)]; }
  bool gathers(int unit) const { return runtime_.unit(unit).gathered_elements > 0; }
  void gather(int unit);
  void gather_flat(int flat, State& unit_state);
  void gather_from_secondary(const Flat& flat, const FlatMemory& memory, std::byte* whole);
  void lift(int flat, State& unit_state, std::byte* whole);
  void bring(int flat, State& unit_state);
  std::byte* own_part(const Flat& flat, std::byte* whole) const;
  void publish_through_device(int flat);
  bool is_published(int flat, Tier tier) const;
  void keep_secondary(const Flat& flat, const FlatMemory& memory, const std::byte* whole);
  int free_slot() const;
  int take_slot(int unit);
  /// Drops a unit that was gathered ahead and not used yet; false when there is none.
  bool evict_prefetched(bool from_ring);
  void drop(int unit);
  void order_after_reads();

  Runtime& runtime_;
  Delivery delivery_;
  Elements max_live_;
  int outstanding_ = 0;  // prefetched units not used yet
  Elements live_ = 0;
  Elements peak_live_ = 0;
  std::vector<State> states_;
  std::vector<Slot> slots_;
  std::unique_ptr<Event> gathered_;    // recorded on the gather stream
  std::unique_ptr<Event> changed_;     // recorded on the reduce stream
  std::unique_ptr<Event> read_;        // recorded on the compute stream
  std::unique_ptr<Event> uploaded_;    // recorded on the upload stream
  std::unique_ptr<Event> downloaded_;  // recorded on the download stream
  std::unique_ptr<Event> brought_;     // recorded on the disk stream
};

}  // namespace flatshard::detail
