#include <flatshard/ops/host_device.hpp>

namespace flatshard {

HostDevice::HostDevice(const HostOptions& options)
    : options_(options),
      instruction_set_(options.instruction_set ? *options.instruction_set : best_instruction_set()),
      memory_(options.huge_pages),
      host_memory_(options.huge_pages),
      kernels_(make_host_kernels(options)) {}

void HostDevice::copy(const void* source, void* destination, Bytes bytes, StreamRef stream) {
  kernels_->cast(source, DType::UInt8, destination, DType::UInt8, bytes, stream);
}

std::unique_ptr<Stream> HostDevice::make_stream() { return make_host_stream(options_.form); }

std::unique_ptr<Stream> HostDevice::make_compute_stream() {
  return make_host_stream(StreamForm::Inline);
}

std::unique_ptr<Event> HostDevice::make_event() { return make_host_event(); }

}  // namespace flatshard
