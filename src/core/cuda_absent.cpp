// The CUDA device of a build without CUDA: there is none, and who asks for one is told why.
#include <flatshard/core/cuda_device.hpp>
#include <flatshard/core/error.hpp>

namespace flatshard {

namespace {

[[noreturn]] void throw_absent() {
  throw UsageError("flatshard was built without CUDA: configure it with -Dcuda=enabled",
                   {__FILE__, __LINE__});
}

}  // namespace

struct CudaDevice::Parts {};

int cuda_device_count() noexcept { return 0; }

CudaDevice::CudaDevice(int, const CudaOptions&) { throw_absent(); }
CudaDevice::~CudaDevice() = default;
std::string_view CudaDevice::name() const { throw_absent(); }
MemoryResource& CudaDevice::memory() { throw_absent(); }
MemoryResource& CudaDevice::pinned() { throw_absent(); }
void CudaDevice::copy(const void*, void*, Bytes, StreamRef) { throw_absent(); }
std::unique_ptr<Stream> CudaDevice::make_stream() { throw_absent(); }
std::unique_ptr<Stream> CudaDevice::make_compute_stream() { throw_absent(); }
std::unique_ptr<Event> CudaDevice::make_event() { throw_absent(); }
const KernelTable& CudaDevice::kernels() const { throw_absent(); }
std::unique_ptr<Stream> CudaDevice::make_host_side_stream() { throw_absent(); }
const KernelTable& CudaDevice::host_kernels() const { throw_absent(); }
const CudaOptions& CudaDevice::options() const { throw_absent(); }
int CudaDevice::ordinal() const { throw_absent(); }

CudaGraph CudaGraph::capture(StreamRef, const std::function<void()>&) { throw_absent(); }
CudaGraph::~CudaGraph() = default;
void CudaGraph::launch(StreamRef) { throw_absent(); }

std::unique_ptr<Stream> adopt_cuda_stream(void*) { throw_absent(); }
void* cuda_stream(StreamRef) { throw_absent(); }

}  // namespace flatshard
