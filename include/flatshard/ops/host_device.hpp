// The host as a device: counted memory, streams of either form, kernels for this processor.
#pragma once

#include <flatshard/core/device.hpp>
#include <flatshard/core/host_memory.hpp>
#include <flatshard/core/host_stream.hpp>
#include <flatshard/ops/instruction_set.hpp>
#include <flatshard/ops/kernel_table.hpp>

#include <memory>
#include <optional>

namespace flatshard {

/// How a HostDevice works; nothing here changes a bit of any result.
struct HostOptions {
  StreamForm form = StreamForm::Inline;  // of make_stream()
  int threads = 1;                       // per kernel call, the calling one included; >= 1
  std::optional<InstructionSet> instruction_set =
      {};  // of the kernels; none: best_instruction_set()
  /// Keeps the threads of rank r of this process on cores of their own: cores r * threads ... of
  /// those that the constructing thread may use, one each. The calling thread is on the first while
  /// a call lasts, and as before afterwards. Without effect for one thread, for more than there are
  /// cores, and where the system refuses. Processes that share cores count their ranks together.
  std::optional<int> pin_as_rank = {};     // none: the system chooses
  bool huge_pages = true;                  // ask for 2 MiB pages for large blocks
  std::optional<Bytes> stream_above = {};  // out-of-place results of more bytes are written past
                                           // the cache (a step's copy, when its arrays are twice
                                           // that); none: half of the last-level cache
};

/// The kernels of a host device with these options. Throws UsageError for fewer than one thread and
/// for an instruction set that this processor lacks. Thread-safety: several threads may call at
/// once; one of them then gets the team of threads, the others work alone.
std::unique_ptr<const KernelTable> make_host_kernels(const HostOptions& options);

/// A host device. Must outlive the streams, events and buffers made from it.
class HostDevice final : public Device {
 public:
  /// Throws UsageError as make_host_kernels does.
  explicit HostDevice(const HostOptions& options = {});

  DeviceKind kind() const override { return DeviceKind::Host; }
  std::string_view name() const override { return "host"; }
  HostMemory& memory() override { return memory_; }
  HostMemory& host_memory() override { return host_memory_; }
  void copy(const void* source, void* destination, Bytes bytes, StreamRef stream) override;
  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Stream> make_compute_stream() override;
  std::unique_ptr<Event> make_event() override;
  const KernelTable& kernels() const override { return *kernels_; }

  const HostOptions& options() const { return options_; }  // as given
  /// Of the kernels: what was asked for, or the best.
  InstructionSet instruction_set() const { return instruction_set_; }

 private:
  HostOptions options_;
  InstructionSet instruction_set_;
  HostMemory memory_;
  HostMemory host_memory_;  // counted apart
  std::unique_ptr<const KernelTable> kernels_;
};

}  // namespace flatshard
