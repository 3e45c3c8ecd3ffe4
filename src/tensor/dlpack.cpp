#include <fmt/format.h>
#include <flatshard/core/cuda_device.hpp>
#include <flatshard/core/error.hpp>
#include <flatshard/tensor/dlpack.hpp>

#include <algorithm>
#include <array>
#include <vector>

namespace flatshard::dlpack {

namespace {

/// In the order of DType.
constexpr std::array<DLDataType, dtype_table.size()> data_types{{{2, 64, 1},
                                                                 {2, 32, 1},
                                                                 {4, 16, 1},
                                                                 {2, 16, 1},
                                                                 {10, 8, 1},
                                                                 {12, 8, 1},
                                                                 {0, 64, 1},
                                                                 {0, 32, 1},
                                                                 {0, 8, 1},
                                                                 {1, 8, 1},
                                                                 {6, 8, 1}}};

/// What an exported tensor needs to live.
template <class Managed>
struct Context {
  Managed tensor;
  std::vector<std::int64_t> shape, strides;
  std::shared_ptr<const void> keeps_alive;

  static void destroy(Managed* tensor) { delete static_cast<Context*>(tensor->manager_ctx); }
};

std::vector<std::int64_t> row_major(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis > 1; --axis)
    strides[axis - 2] = strides[axis - 1] * shape[axis - 1];
  return strides;
}

template <class Managed>
std::unique_ptr<Managed, CallDeleter> export_as(const Memory& memory,
                                                std::shared_ptr<const void> keeps_alive) {
  auto context = std::make_unique<Context<Managed>>();
  context->shape.assign(memory.shape.begin(), memory.shape.end());
  context->strides = row_major(memory.shape);
  context->keeps_alive = std::move(keeps_alive);
  Managed& tensor = context->tensor;
  tensor.manager_ctx = context.get();
  tensor.deleter = Context<Managed>::destroy;
  tensor.dl_tensor = {const_cast<void*>(memory.data),
                      memory.device,
                      static_cast<std::int32_t>(memory.shape.size()),
                      data_type_of(memory.dtype),
                      context->shape.data(),
                      context->strides.data(),
                      0};
  return std::unique_ptr<Managed, CallDeleter>(&context.release()->tensor);
}

std::string text_of(const DLDataType& type) {
  if (const auto dtype = dtype_from(type)) return std::string(name_of(*dtype));
  return fmt::format("code {}, {} bits, {} lanes", type.code, type.bits, type.lanes);
}

std::string text_of(const DLDevice& device) {
  return fmt::format("{}:{}", static_cast<int>(device.device_type), device.device_id);
}

std::span<const std::int64_t> shape_of(const DLTensor& tensor) {
  return {tensor.shape, static_cast<std::size_t>(tensor.ndim)};
}

bool is_empty(const DLTensor& tensor) {
  const auto shape = shape_of(tensor);
  return std::find(shape.begin(), shape.end(), 0) != shape.end();
}

/// Dimensions of one element, and tensors without elements, have any strides.
bool is_row_major(const DLTensor& tensor) {
  const auto shape = shape_of(tensor);
  if (tensor.strides == nullptr || is_empty(tensor)) return true;
  const std::vector<std::int64_t> strides = row_major(shape);
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] != 1 && tensor.strides[axis] != strides[axis]) return false;
  return true;
}

}  // namespace

DLDataType data_type_of(DType dtype) { return data_types[static_cast<std::size_t>(dtype)]; }

std::optional<DType> dtype_from(const DLDataType& type) {
  const auto found = std::find(data_types.begin(), data_types.end(), type);
  if (found == data_types.end()) return std::nullopt;
  return static_cast<DType>(found - data_types.begin());
}

DLDevice device_of(const Device& device) {
  if (device.kind() == DeviceKind::Host) return {};
  return {DeviceType::Cuda, dynamic_cast<const CudaDevice&>(device).ordinal()};
}

Exported export_memory(const Memory& memory, std::shared_ptr<const void> keeps_alive) {
  Exported tensor = export_as<DLManagedTensorVersioned>(memory, std::move(keeps_alive));
  tensor->flags = memory.writable ? 0 : read_only;
  return tensor;
}

ExportedUnversioned export_unversioned(const Memory& memory,
                                       std::shared_ptr<const void> keeps_alive) {
  FLATSHARD_EXPECTS(memory.writable,
                    "DLPack before version 1.0 cannot say that memory is read-only");
  return export_as<DLManagedTensor>(memory, std::move(keeps_alive));
}

Imported::Imported(DLManagedTensorVersioned* tensor) : versioned_(tensor) {
  FLATSHARD_EXPECTS(tensor != nullptr, "DLPack: no tensor was given");
  FLATSHARD_EXPECTS(tensor->version.major == 1,
                    fmt::format("DLPack: a tensor of version {}.{}; 1.x is known",
                                tensor->version.major, tensor->version.minor));
  tensor_ = &tensor->dl_tensor;
  read_only_ = (tensor->flags & read_only) != 0;
  check();
}

Imported::Imported(DLManagedTensor* tensor) : unversioned_(tensor) {
  FLATSHARD_EXPECTS(tensor != nullptr, "DLPack: no tensor was given");
  tensor_ = &tensor->dl_tensor;
  check();
}

void Imported::check() const {
  FLATSHARD_EXPECTS(
      tensor_->ndim >= 0 && (tensor_->ndim == 0 || tensor_->shape != nullptr),
      fmt::format("DLPack: a tensor of {} dimensions without a shape", tensor_->ndim));
  for (std::int32_t axis = 0; axis < tensor_->ndim; ++axis)
    FLATSHARD_EXPECTS(tensor_->shape[axis] >= 0,
                      fmt::format("DLPack: dimension {} is {}", axis, tensor_->shape[axis]));
}

void* Imported::checked_data(DType dtype, const DLDevice& device, bool writes) const {
  const DLTensor& tensor = *tensor_;
  FLATSHARD_EXPECTS(tensor.device == device,
                    fmt::format("DLPack: the tensor is on device {} (DLDeviceType:number), not {}",
                                text_of(tensor.device), text_of(device)));
  FLATSHARD_EXPECTS(
      tensor.dtype == data_type_of(dtype),
      fmt::format("DLPack: the elements are {}, not {}", text_of(tensor.dtype), name_of(dtype)));
  FLATSHARD_EXPECTS(is_row_major(tensor),
                    "DLPack: the strides are not those of a row-major tensor: make it contiguous");
  FLATSHARD_EXPECTS(!writes || !read_only_,
                    "DLPack: the tensor is read-only: ask for const elements");
  FLATSHARD_EXPECTS(tensor.data != nullptr || is_empty(tensor),
                    "DLPack: the tensor has elements and no address");
  if (tensor.data == nullptr) return nullptr;
  auto* data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  FLATSHARD_EXPECTS(
      address % static_cast<std::uintptr_t>(size_of(dtype)) == 0,
      fmt::format("DLPack: address {:#x} is no multiple of {} bytes", address, size_of(dtype)));
  return data;
}

}  // namespace flatshard::dlpack
