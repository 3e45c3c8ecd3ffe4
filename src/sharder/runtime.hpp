// What the parts of the engine share: the plan, who this rank is, streams, and where blocks lie.
#pragma once

#include <flatshard/comm/communicator.hpp>
#include <flatshard/core/device.hpp>
#include <flatshard/core/host_memory.hpp>
#include <flatshard/ops/kernel_table.hpp>
#include <flatshard/sharder/plan.hpp>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "nvme_ring.hpp"

namespace flatshard::detail {

/// Addresses of one flat's blocks on this rank; null where the Plan has none.
struct FlatMemory {
  std::byte* whole = nullptr;    // (padded) compute dtype; null for flats gathered into the ring
  std::byte* master = nullptr;   // (slice) master dtype
  std::byte* compute = nullptr;  // (slice) compute dtype: what this rank gives to a gather
  std::byte* resting_whole = nullptr;  // (padded) where the whole flat rests, if it does
  std::byte* secondary = nullptr;      // (padded / secondary group) compute dtype
  std::byte* gradient = nullptr;   // (slice, or padded for ReduceMoment::Boundary) accumulate dtype
  std::byte* sum_slice = nullptr;  // (slice) of it that this rank owns
  std::byte* gradient_slice = nullptr;  // (slice) what the step reads: the same, or its copy on the
                                        // host
  std::vector<std::byte*> states;       // each (slice) state dtype
  std::vector<std::byte*> partials;     // each as gradient
};

/// Where work on the memory of one tier runs.
struct Lane {
  const KernelTable& kernels;
  Stream& stream;
};

/// Owns the arenas, the engine's streams and the communicators split off the user's.
class Runtime {
 public:
  /// Of the options: compute_stream and memory (none, and they are the device's), nvme, and
  /// on_warning, which is told when host memory is not pinned or io_uring is not there.
  Runtime(Communicator& world, Plan plan, Device& device, const Options& options);
  ~Runtime();
  /// Waits for the streams: their work uses what is about to go. Errors nobody asked for are lost.
  void drain() noexcept;
  /// The same of one stream.
  static void settle(Stream& stream) noexcept;

  const Plan plan;
  Device& device;
  MemoryResource& memory_resource;
  const KernelTable& kernels;

 private:  // in the order in which they must be made
  std::unique_ptr<Stream> own_compute_;
  std::unique_ptr<Stream> own_gather_;
  std::unique_ptr<Stream> own_reduce_;
  std::unique_ptr<Stream> own_upload_, own_download_, own_host_;  // with offload only
  std::unique_ptr<Stream> own_disk_;                              // parameters on NVMe only
  std::unique_ptr<Communicator> own_shard_, own_replicas_, own_secondary_;
  HostMemory pageable_memory_;
  bool pinned_ = true;
  std::array<Buffer, memory_count> arenas_;  // by Memory

 public:
  Stream& compute;   // where the user's forward and backward run
  Stream& gather;    // all-gathers
  Stream& reduce;    // reductions, norm, optimizer step
  Stream& upload;    // copies from the host; without offload: gather
  Stream& download;  // copies to the host; without offload: reduce
  Stream& host;      // work in host memory: sums, norm and step there; without offload: reduce
  Stream& disk;      // what moves parameters to and from NVMe; without: host
  Communicator& world;
  Communicator& shard;                        // ranks that share one copy of everything sharded
  Communicator& replicas;                     // ranks that hold the same slice
  Communicator& secondary;                    // ranks of the second shard
  std::vector<FlatMemory> flats;              // on NVMe: while it is in memory
  std::unique_ptr<NvmeRing> optimizer_slots;  // on the host stream; null: not on NVMe
  std::unique_ptr<NvmeRing> parameter_slots;  // on the disk stream; null: not on NVMe

  const Flat& flat(int index) const { return plan.flats[static_cast<std::size_t>(index)]; }
  const FlatMemory& memory(int index) const { return flats[static_cast<std::size_t>(index)]; }
  const UnitPlan& unit(int index) const { return plan.units[static_cast<std::size_t>(index)]; }
  /// Address of a block; null when the Plan has none.
  std::byte* address(Role role, int owner, int index = 0) const;
  /// An address for flats without elements: not null, and nobody reads or writes there.
  std::byte* nothing() const { return static_cast<std::byte*>(arena()); }
  void* arena() const { return arenas_[0].data(); }
  /// What the Plan pins is pinned: the device could have as much.
  bool has_pinned() const { return pinned_; }
  /// Something rests elsewhere than on the device.
  bool offloads() const { return plan.request.offload != OffloadTraits{}; }
  Lane lane(Tier tier) const {
    if (tier != Tier::Device && offloads()) return {device.host_kernels(), host};
    return {kernels, reduce};
  }
  /// Of masters, states and the gradients that a step reads.
  Lane step_lane() const { return lane(plan.request.offload.optimizer); }
  std::unique_ptr<Event> make_event() { return device.make_event(); }
  /// Work issued to `later` from now on runs after all issued to `earlier` so far.
  void order(Stream& earlier, Event& event, Stream& later) {
    earlier.record(event);
    later.wait(event);
  }
  /// Whatever the engine's own streams are given from now on runs after all they were given so far.
  void join();
  /// Throws what work of a stream failed with, of those that have failed; after a failure on NVMe
  /// that, each time.
  void check();
  void synchronize();
  /// Blocks until what was read from NVMe so far, and what was made of it, is known to be right;
  /// without NVMe, returns at once. Throws what was not.
  void wait_for_nvme();
  /// The memory that is authoritative for the flat is there; where that rests on NVMe, blocks until
  /// all work is done and it has been read. It stays until another unit needs the buffer, or
  /// put_back_and_wait(); `writes`: it is written back then.
  void bring_and_wait(int flat, bool writes);
  /// Ends that for all flats.
  void put_back_and_wait();

 private:
  FlatMemory locate(int index) const;
  Buffer take_pinned(std::string& warning);
  void take_host_memory(const WarningHandler& on_warning);
  void lend_exchange();
  void zero_arenas();
  void open_files(const Options& options);
  std::unique_ptr<NvmeRing> open_file(const NvmeFile& file, const NvmeOptions& options,
                                      Stream& stream, int owner, int index);
  std::array<Stream*, 6> own_streams() {
    return {&gather, &reduce, &upload, &download, &host, &disk};
  }

  std::array<std::unique_ptr<Event>, 6> joined_;
};

}  // namespace flatshard::detail
