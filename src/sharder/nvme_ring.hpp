// Parts that rest on NVMe, on their way through a few buffers in host memory.
#pragma once

#include <flatshard/core/device.hpp>
#include <flatshard/core/host_stream.hpp>
#include <flatshard/io/slot_store.hpp>
#include <flatshard/ops/step_control.hpp>
#include <flatshard/sharder/plan.hpp>

#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace flatshard::detail {

struct FlatMemory;

/// Gives out one block that belongs to somebody else.
class LentMemory final : public MemoryResource {
 public:
  LentMemory(std::byte* data, Bytes bytes) : data_(data), bytes_(bytes) {}
  void* allocate(Bytes bytes) override;
  void deallocate(void*, Bytes) noexcept override {}
  Bytes allocated() const override { return bytes_; }
  Bytes high_water() const override { return bytes_; }
  std::int64_t allocations() const override { return 1; }

 private:
  std::byte* data_;
  Bytes bytes_;
};

/// A file of slots and the buffers that its units pass through, taken in turn. Which buffer a unit
/// gets is known when work is issued, so FlatMemory says where the unit's parts are from begin() on
/// until another unit takes the buffer; work on other streams needs no more than that address and
/// the order of events. All of the file's requests are made by tasks on one host stream, which is
/// also where they are waited for: calls below enqueue, unless their names say that they block.
///
/// A failure of a request is that task's error, so the stream's; from then on nothing passes any
/// more, and check() throws it each time.
class NvmeRing {
 public:
  /// Where the Plan's blocks lie.
  struct Blocks {
    std::vector<std::byte*> buffers;
    std::byte* bounce;
  };
  /// All that is passed must outlive the ring. `device` makes events. Throws what SlotStore throws.
  NvmeRing(const Plan& plan, const NvmeFile& file, const NvmeOptions& options, Device& device,
           HostStream& stream, std::span<FlatMemory> flats, const Blocks& blocks);

  HostStream& stream() const { return stream_; }
  const SlotStore& store() const { return store_; }
  int buffers() const { return static_cast<int>(buffers_.size()); }
  /// Some part of the unit has a slot.
  bool holds(int unit) const { return holds_[static_cast<std::size_t>(unit)]; }

  /// The unit gets the next buffer, when what used it is done.
  void begin(int unit);
  /// Brings a part of a flat of a unit that has a buffer; without a slot for it, nothing. What was
  /// never written is zero.
  void read(NvmePart part, int flat);
  /// What the stream is given from now on finds the part there.
  void await(NvmePart part, int flat);
  /// Sends it back; with `decision`, only when that says that the step applies. The part may be
  /// read meanwhile, not written.
  void write(NvmePart part, int flat, const StepScalars* decision = nullptr);
  /// The unit's buffer is in use until `reader` has done all that it was given so far.
  void used_by(int unit, Stream& reader);

  /// Between steps, when nothing is under way: blocks until the part of the flat's unit is in a
  /// buffer, where it stays until other units need that, or put_back_and_wait(). `writes`: it goes
  /// back then.
  void bring_and_wait(NvmePart part, int flat, bool writes);
  /// Ends that for all units.
  void put_back_and_wait();

  /// Throws what a request failed with, if one has.
  void check() const;

 private:
  struct SlotState {
    int flat = -1;
    NvmePart part = NvmePart::Optimizer;
    Bytes buffer_offset = 0, bytes = 0;
    std::vector<const Block*> blocks;
    Bytes offset = 0;        // in the file
    std::int64_t tag = 0;    // of its last write; the stream's alone
    bool in_flight = false;  // a request was begun; the stream's alone
  };
  struct Buffer {
    std::byte* data = nullptr;
    int unit = -1;                   // that has it
    std::unique_ptr<Event> used;     // recorded by whoever used it last on another stream
    std::vector<std::size_t> slots;  // whose requests use it; the stream's alone
    bool brought = false, writes = false;
  };

  std::size_t slot_of(NvmePart part, int flat) const;
  Buffer* buffer_of(int unit);
  void bind(int unit, std::byte* data);
  void place(const SlotState& slot, std::byte* data);
  class Finish;
  template <class Work>
  void run(Work work);
  template <class Work>
  void enqueue(Work work);
  void enqueue_finish(Buffer& buffer);
  void finish(Buffer& buffer);
  void abandon(Buffer& buffer) noexcept;
  void settle(SlotState& slot, std::size_t index);
  void begin_read(std::size_t index, Buffer& buffer);
  void begin_write(std::size_t index, Buffer& buffer);
  std::span<std::byte> bytes_of(const SlotState& slot, const Buffer& buffer) const;
  void put_back(Buffer& buffer);

  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  const Plan& plan_;
  HostStream& stream_;
  std::span<FlatMemory> flats_;
  std::vector<SlotState> slots_;
  std::array<std::vector<std::size_t>, nvme_part_count> slot_of_;  // by part and flat
  std::vector<bool> holds_;                                        // by unit
  std::vector<int> buffer_of_;                                     // by unit; -1: none
  std::vector<Buffer> buffers_;
  std::size_t next_ = 0;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::exception_ptr failure_;  // under the mutex
  LentMemory bounce_;
  SlotStore store_;
};

}  // namespace flatshard::detail
