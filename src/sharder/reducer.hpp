// Gradients: the buffers that backward writes, their reduction over ranks, their accumulation over
// micro-steps.
#pragma once

#include "gradient_relay.hpp"
#include "norm.hpp"

namespace flatshard::detail {

/// Zeroing runs on the compute stream, everything else on the reduce stream; what goes to the host
/// is copied on the download stream and added on the host stream. Nothing blocks the host.
class Reducer {
 public:
  /// Offers complete gradients that step on the host to `norm`.
  Reducer(Runtime& runtime, GradientNorm& norm, GradientRelay& relay);

  /// The unit's gradients for this micro-step: zeroed (only between parameters where backward
  /// overwrites them and `zero_all` is false). Call once per micro-step and unit.
  void open(int unit, bool zero_all);
  /// Backward has added all contributions of micro-step `index`: reduce and accumulate. `at_once`:
  /// the unit is updated right after this call; then the gradient of a Flat::relayed stays on the
  /// device, in the relay, if it is of the step's single micro-step.
  void close(int unit, int index, bool last, bool at_once);
  /// Of gradients that rest on NVMe: around close(), they have a place in memory, with what earlier
  /// micro-steps left where more is to be added.
  void open_slots(int unit, int index, bool last);
  /// And go back to where they rest.
  void close_slots(int unit, bool last);
  /// Drops the unit's gradients of this micro-step.
  void discard(int unit);
  /// Gradients written in place may be zeroed again after what the reduce stream has been given so
  /// far.
  void stepped();

  /// Address of the flat's gradient that backward writes; null while its unit is not open.
  std::byte* gradient(int flat) const;

 private:
  struct State {
    bool open = false;
    int slot = -1;
    std::unique_ptr<Event> written;  // recorded on the compute stream
    std::unique_ptr<Event> summed;   // recorded on the stream of the sums
  };
  /// Where a reduced slice waits on its way to the host: on the device, and there before it is
  /// added.
  struct Landing {
    std::byte* data = nullptr;
    std::byte* arrival = nullptr;
    std::unique_ptr<Event> reduced;  // recorded on the reduce stream
    std::unique_ptr<Event> copied;   // recorded on the download stream
    std::unique_ptr<Event> added;    // recorded on the host stream
  };
  struct Slot {
    int unit = -1;
    std::byte* data = nullptr;
    std::unique_ptr<Event> free;  // recorded on the reduce stream
  };

  State& state(int unit) { return states_[static_cast<std::size_t>(unit)]; }
  const State& state(int unit) const { return states_[static_cast<std::size_t>(unit)]; }
  Slot& slot_of(int unit) { return slots_[static_cast<std::size_t>(state(unit).slot)]; }
  int slot_for(int unit) const;
  void zero(int flat, bool zero_all);
  void zero_gaps(const Flat& flat, std::byte* gradient);
  void finish(int unit);

  void reduce_flat(int flat, int index, bool last, bool at_once);
  void keep_whole(const Flat& flat, const FlatMemory& memory, const std::byte* written, int index,
                  bool last);
  void reduce_slice(const Flat& flat, const FlatMemory& memory, const std::byte* source,
                    DType contribution, DType result, bool over_replicas, bool replace);
  void reduce_over_ranks(const Flat& flat, const std::byte* source, std::byte* target,
                         DType contribution, DType result, bool over_replicas);
  void reduce_replicas(const Flat& flat, const FlatMemory& memory);
  void reduce_to_host(int flat, const std::byte* written, bool replace, bool last, bool at_once);
  void finish_on_host(int flat, bool last);
  void take_arrival(const Flat& flat, const FlatMemory& memory, Landing& landing, bool replace);
  void fetch_slice(int flat);
  void add_partials(const Flat& flat, const FlatMemory& memory, Elements count, int index,
                    bool last);

  Runtime& runtime_;
  GradientNorm& norm_;
  GradientRelay& relay_;
  std::vector<State> states_;
  std::vector<Slot> slots_;  // ring slots, then one per dedicated unit
  std::vector<int> dedicated_slot_;
  std::unique_ptr<Event> stepped_;
  Lane sums_;  // of the accumulated gradients
  std::vector<Landing> landings_;
  std::size_t next_landing_ = 0;
  std::unique_ptr<Event> fetched_;       // recorded on the download stream
  std::unique_ptr<Event> host_stepped_;  // recorded on the host stream
  std::unique_ptr<Event> brought_;       // recorded on the host stream
  std::byte* landing_;
  std::byte* wide_;
};

}  // namespace flatshard::detail
