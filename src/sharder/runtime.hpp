// What the parts of the engine share: the plan, who this rank is, streams, and where blocks lie.
#pragma once

#include <flatshard/comm/communicator.hpp>
#include <flatshard/core/device.hpp>
#include <flatshard/ops/kernel_table.hpp>
#include <flatshard/sharder/plan.hpp>

#include <memory>
#include <vector>

namespace flatshard::detail {

/// Addresses of one flat's blocks on this rank; null where the Plan has none.
struct FlatMemory {
  std::byte* whole = nullptr;      // (padded) compute dtype; null for flats gathered into the ring
  std::byte* master = nullptr;     // (slice) master dtype
  std::byte* compute = nullptr;    // (slice) compute dtype: what this rank gives to a gather
  std::byte* secondary = nullptr;  // (padded / secondary group) compute dtype
  std::byte* gradient = nullptr;   // (slice, or padded for ReduceMoment::Boundary) accumulate dtype
  std::byte* gradient_slice = nullptr;  // (slice) of it that this rank owns
  std::vector<std::byte*> states;       // each (slice) state dtype
  std::vector<std::byte*> partials;     // each as gradient
};

/// Owns the arena, the engine's streams and the communicators split off the user's.
class Runtime {
 public:
  /// `compute` and `memory`: none, and they are the device's.
  Runtime(Communicator& world, Plan plan, Device& device, Stream* compute, MemoryResource* memory);
  ~Runtime();
  /// Waits for the streams: their work uses what is about to go. Errors nobody asked for are lost.
  void drain() noexcept;

  const Plan plan;
  Device& device;
  MemoryResource& memory_resource;
  const KernelTable& kernels;

 private:  // in the order in which they must be made
  std::unique_ptr<Stream> own_compute_;
  std::unique_ptr<Stream> own_gather_;
  std::unique_ptr<Stream> own_reduce_;
  std::unique_ptr<Communicator> own_shard_, own_replicas_, own_secondary_;
  Buffer arena_;

 public:
  Stream& compute;  // where the user's forward and backward run
  Stream& gather;   // all-gathers
  Stream& reduce;   // reductions, norm, optimizer step
  Communicator& world;
  Communicator& shard;      // ranks that share one copy of everything sharded
  Communicator& replicas;   // ranks that hold the same slice
  Communicator& secondary;  // ranks of the second shard
  std::vector<FlatMemory> flats;

  const Flat& flat(int index) const { return plan.flats[static_cast<std::size_t>(index)]; }
  const FlatMemory& memory(int index) const { return flats[static_cast<std::size_t>(index)]; }
  const UnitPlan& unit(int index) const { return plan.units[static_cast<std::size_t>(index)]; }
  /// Address of a block; null when the Plan has none.
  std::byte* address(Role role, int owner, int index = 0) const;
  /// An address for flats without elements: not null, and nobody reads or writes there.
  std::byte* nothing() const { return static_cast<std::byte*>(arena()); }
  void* arena() const { return arena_.data(); }
  std::unique_ptr<Event> make_event() { return device.make_event(); }
  /// Work issued to `later` from now on runs after all issued to `earlier` so far.
  void order(Stream& earlier, Event& event, Stream& later) {
    earlier.record(event);
    later.wait(event);
  }

 private:
  FlatMemory locate(int index) const;
};

}  // namespace flatshard::detail
