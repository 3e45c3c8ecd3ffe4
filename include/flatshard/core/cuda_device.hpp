// A CUDA device: its memory, pinned host memory, streams, events and kernels. In a build without
// CUDA (-Dcuda=disabled) everything is here too, counts no device and throws UsageError.
#pragma once

#include <flatshard/core/device.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace flatshard {

/// CUDA devices that this process can use; 0 without a driver, a device, or CUDA in the build.
int cuda_device_count() noexcept;

/// How a CudaDevice works; nothing here changes a bit of any result.
struct CudaOptions {
  int host_threads = 0;  // per kernel call in host memory (offload), the calling one included; 0:
                         // this device's share of the cores, but for one
  /// Keeps these threads on cores of their own, as HostOptions::pin_as_rank.
  std::optional<int> pin_as_rank = {};  // none: the system chooses
};

/// One CUDA device. Thread-safety: as Device; the calling thread's current CUDA device is left as
/// it was by every call. Destructors survive the unloading of the CUDA runtime at process exit.
class CudaDevice final : public Device {
 public:
  /// Throws UsageError when this process cannot use a device of that number, and for fewer threads
  /// than none.
  explicit CudaDevice(int ordinal = 0, const CudaOptions& options = {});
  ~CudaDevice() override;

  DeviceKind kind() const override { return DeviceKind::Cuda; }
  std::string_view name() const override;
  MemoryResource& memory() override;
  MemoryResource& host_memory() override { return pinned(); }
  /// Page-locked host memory: whole pages, no more than the bytes asked for need. Blocks that are
  /// given back stay locked, for the next that needs as many pages, until the device goes; it
  /// counts the bytes asked for, and not these.
  MemoryResource& pinned();
  /// From or to pageable memory it blocks the host until the stream has come there; with offload,
  /// before the copy is issued.
  void copy(const void* source, void* destination, Bytes bytes, StreamRef stream) override;
  /// A stream of the highest priority, for collectives and the step beside the user's kernels.
  std::unique_ptr<Stream> make_stream() override;
  /// A stream of the default priority. Neither waits for the legacy default stream, nor it for
  /// them.
  std::unique_ptr<Stream> make_compute_stream() override;
  std::unique_ptr<Event> make_event() override;
  const KernelTable& kernels() const override;
  /// A stream of host tasks with a thread of its own, which waits for this device's events, and for
  /// which its streams wait, without blocking the thread that issues. A thread that waits for it
  /// notices when the device fails. It cannot be part of a CudaGraph: UsageError.
  std::unique_ptr<Stream> make_host_side_stream() override;
  const KernelTable& host_kernels() const override;

  const CudaOptions& options() const;  // as they are used: host_threads is not 0
  int ordinal() const;                 // its number, as CUDA counts

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// The user's own cudaStream_t, not owned: it must outlive what is returned. The legacy default
/// stream (null) is refused: name cudaStreamLegacy or cudaStreamPerThread if you mean one of them.
std::unique_ptr<Stream> adopt_cuda_stream(void* stream);

/// The cudaStream_t behind a stream that a CudaDevice made or that was adopted. Throws UsageError
/// for any other.
void* cuda_stream(StreamRef stream);

/// Work of a stream, and of all streams that it made wait, kept to be launched again. Move-only;
/// the memory that the work uses must stay. In a graph, waits for events that were recorded outside
/// of it are left out: whoever launches it orders it.
class CudaGraph {
 public:
  /// What `issue` enqueues on `stream`. Nothing of it runs. Blocks the host; what `issue` throws is
  /// thrown on.
  static CudaGraph capture(StreamRef stream, const std::function<void()>& issue);
  /// Leaves the other empty.
  CudaGraph(CudaGraph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)) {}
  /// Exchanges what is held.
  CudaGraph& operator=(CudaGraph&& other) noexcept {
    std::swap(executable_, other.executable_);
    return *this;
  }
  ~CudaGraph();

  /// Only enqueues.
  void launch(StreamRef stream);

 private:
  explicit CudaGraph(void* executable) : executable_(executable) {}
  void* executable_;  // cudaGraphExec_t
};

}  // namespace flatshard
