// A device around the host device that counts what is asked of it, knows where its memory lies, and
// can keep everybody else away from it.
#pragma once

#include <sys/mman.h>
#include <flatshard/ops/host_device.hpp>

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace sharder_test {

using namespace flatshard;  // NOLINT: tests only

/// Memory of whole pages that may be made inaccessible. Thread-safe as far as the tests need it.
class SpyMemory final : public MemoryResource {
 public:
  void* allocate(Bytes bytes) override {
    void* pages =
        mmap(nullptr, size(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    const std::lock_guard lock(mutex_);
    blocks_[static_cast<std::byte*>(pages)] = bytes;
    allocated_ += bytes;
    high_water_ = std::max(high_water_, allocated_);
    ++allocations_;
    return pages;
  }
  void deallocate(void* pointer, Bytes bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    blocks_.erase(static_cast<std::byte*>(pointer));
    allocated_ -= bytes;
    munmap(pointer, size(bytes));
  }
  Bytes allocated() const override { return allocated_; }
  Bytes high_water() const override { return high_water_; }
  std::int64_t allocations() const override { return allocations_; }

  /// The arena of the only Sharder on this device.
  std::byte* arena() const { return blocks_.begin()->first; }
  void protect(bool on) {
    for (const auto& [pages, bytes] : blocks_)
      mprotect(pages, size(bytes), on ? PROT_NONE : PROT_READ | PROT_WRITE);
  }

 private:
  static std::size_t size(Bytes bytes) {
    return static_cast<std::size_t>(round_up(bytes + 1, 4096));
  }
  std::mutex mutex_;
  std::map<std::byte*, Bytes> blocks_;
  Bytes allocated_ = 0;
  Bytes high_water_ = 0;
  std::int64_t allocations_ = 0;
};

/// While one lives, the memory may be touched. For one thread.
class Access {
 public:
  explicit Access(SpyMemory& memory, int& depth) : memory_(memory), depth_(depth) {
    if (depth_++ == 0) memory_.protect(false);
  }
  ~Access() {
    if (--depth_ == 0) memory_.protect(true);
  }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

 private:
  SpyMemory& memory_;
  int& depth_;
};

class SpyDevice final : public Device, private KernelTable {
 public:
  explicit SpyDevice(const HostOptions& options = {}) : host_(options) {}

  DeviceKind kind() const override { return DeviceKind::Host; }
  std::string_view name() const override { return "spy"; }
  SpyMemory& memory() override { return memory_; }
  HostMemory& host_memory() override { return host_.host_memory(); }
  void copy(const void* source, void* destination, Bytes bytes, StreamRef stream) override {
    run("copy", [&] { host_.copy(source, destination, bytes, stream); });
  }
  std::unique_ptr<Stream> make_stream() override { return count("stream"), host_.make_stream(); }
  std::unique_ptr<Stream> make_compute_stream() override { return host_.make_compute_stream(); }
  std::unique_ptr<Event> make_event() override { return count("event"), host_.make_event(); }
  const KernelTable& kernels() const override { return *this; }

  /// From now on only kernels, and scopes of access(), reach the memory. Inline streams only.
  void guard() { guarded_ = true, memory_.protect(true); }
  void unguard() { guarded_ = false, memory_.protect(false); }
  Access access() const { return Access(memory_, depth_); }

  std::int64_t calls(const std::string& what) const {
    const std::lock_guard lock(mutex_);
    const auto found = counts_.find(what);
    return found == counts_.end() ? 0 : found->second;
  }
  Bytes zeroed() const { return zeroed_; }  // bytes
  void reset() {
    const std::lock_guard lock(mutex_);
    counts_.clear();
    zeroed_ = 0;
  }

 private:
  void count(const char* what) const {
    const std::lock_guard lock(mutex_);
    ++counts_[what];
  }
  /// Counts, opens the memory, runs the host's kernel.
  template <class Kernel>
  void run(const char* what, Kernel&& kernel) const {
    count(what);
    if (!guarded_) return kernel();
    const Access open = access();
    kernel();
  }

  void zero(void* destination, Bytes bytes, StreamRef stream) const override {
    zeroed_ += bytes;
    run("zero", [&] { host().zero(destination, bytes, stream); });
  }
  void cast(const void* source, DType from, void* destination, DType to, Elements elements,
            StreamRef stream) const override {
    run("cast", [&] { host().cast(source, from, destination, to, elements, stream); });
  }
  void add(const void* addend, DType addend_dtype, void* accumulator, DType accumulator_dtype,
           Elements elements, StreamRef stream) const override {
    run("add", [&] {
      host().add(addend, addend_dtype, accumulator, accumulator_dtype, elements, stream);
    });
  }
  void reduce(std::span<const void* const> sources, DType contribution, void* destination,
              DType result, Elements elements, StreamRef stream) const override {
    run("reduce",
        [&] { host().reduce(sources, contribution, destination, result, elements, stream); });
  }
  void square_sums(const void* buffer, DType dtype, std::span<const NormNode> nodes, double* values,
                   StreamRef stream) const override {
    run("square_sums", [&] { host().square_sums(buffer, dtype, nodes, values, stream); });
  }
  void absolute_maxima(const void* buffer, DType dtype, std::span<const NormNode> nodes,
                       double* values, StreamRef stream) const override {
    run("absolute_maxima", [&] { host().absolute_maxima(buffer, dtype, nodes, values, stream); });
  }
  void add_nodes(std::span<const NormAdd> adds, double* values, StreamRef stream) const override {
    run("add_nodes", [&] { host().add_nodes(adds, values, stream); });
  }
  void max_nodes(std::span<const NormAdd> adds, double* values, StreamRef stream) const override {
    run("max_nodes", [&] { host().max_nodes(adds, values, stream); });
  }
  void fill(const Initializer& initializer, DType dtype, void* destination, Elements canonical,
            Elements elements, StreamRef stream) const override {
    run("fill", [&] { host().fill(initializer, dtype, destination, canonical, elements, stream); });
  }
  void start_control(StepControl& control, const LossScaler& scaler,
                     StreamRef stream) const override {
    run("start_control", [&] { host().start_control(control, scaler, stream); });
  }
  void conclude(const ConcludeArguments& arguments, StreamRef stream) const override {
    run("conclude", [&] { host().conclude(arguments, stream); });
  }
  void flatten(std::span<const FlattenPiece> pieces, DType from, void* flat, DType to,
               StreamRef stream) const override {
    run("flatten", [&] { host().flatten(pieces, from, flat, to, stream); });
  }
  void unflatten(std::span<const FlattenPiece> pieces, const void* flat, DType from, DType to,
                 StreamRef stream) const override {
    run("unflatten", [&] { host().unflatten(pieces, flat, from, to, stream); });
  }
  void step(const StepFunctions& functions, const StepArguments& arguments,
            StreamRef stream) const override {
    run("step", [&] { host().step(functions, arguments, stream); });
  }

  const KernelTable& host() const { return host_.kernels(); }

  HostDevice host_;
  mutable SpyMemory memory_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::int64_t> counts_;
  mutable Bytes zeroed_ = 0;
  bool guarded_ = false;
  mutable int depth_ = 0;
};

}  // namespace sharder_test
