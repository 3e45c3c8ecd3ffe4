// A device is a run-time value: where memory comes from, how streams are made, which kernels run.
// No Sharder type depends on it.
#pragma once

#include <flatshard/core/buffer.hpp>
#include <flatshard/core/stream.hpp>

#include <memory>
#include <string_view>

namespace flatshard {

class KernelTable;  // ops/kernel_table.hpp: what the device can do to elements

/// Which kernels a device runs.
enum class DeviceKind { Host, Cuda };

/// What the library asks of a place that computes. Implementations outlive every Sharder, stream,
/// event and buffer made from them. Thread-safety: ranks that are threads use one device each.
class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  /// Host or Cuda.
  virtual DeviceKind kind() const = 0;
  virtual std::string_view name() const = 0;  // for messages
  /// Accounted memory of this device.
  virtual MemoryResource& memory() = 0;
  /// Accounted memory of the host that this device copies from and to without anybody waiting
  /// (CUDA: pinned, in whole pages, which stay locked until the device goes: CudaDevice::pinned).
  virtual MemoryResource& host_memory() = 0;
  /// Copies between two places, each in memory() or host_memory(). Only enqueues. Other host memory
  /// is taken too, but then a CUDA device may block the host until it has been read or written.
  virtual void copy(const void* source, void* destination, Bytes bytes, StreamRef stream) = 0;
  /// A new stream; for a host device inline or with its own thread, as the device was made.
  virtual std::unique_ptr<Stream> make_stream() = 0;
  /// A stream for the user's own forward and backward. A host device computes in the calling
  /// thread, so there it is inline: waiting on an event blocks that thread.
  virtual std::unique_ptr<Stream> make_compute_stream() = 0;
  /// An event that was never recorded.
  virtual std::unique_ptr<Event> make_event() = 0;
  virtual const KernelTable& kernels() const = 0;  // what it can do to elements
  /// A new stream for work in host memory, a HostStream. It waits for this device's events, and
  /// this device's streams wait for what it records. Of a device whose memory is the host's: as
  /// make_stream().
  virtual std::unique_ptr<Stream> make_host_side_stream() { return make_stream(); }
  /// What such streams can do to elements in host memory. Of a device whose memory is the host's:
  /// kernels().
  virtual const KernelTable& host_kernels() const { return kernels(); }

 protected:
  Device() = default;
};

}  // namespace flatshard
