// DLPack: tensors that other libraries (NumPy, PyTorch, JAX, CuPy) read and write where they lie.
// The structs have the names and the memory layout of dlpack.h, versions 0.8 (DLManagedTensor) and
// 1.0 (DLManagedTensorVersioned), so that pointers to them may be cast to that header's; it is not
// needed here.
#pragma once

#include <flatshard/core/device.hpp>
#include <flatshard/tensor/tensor_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>

namespace flatshard::dlpack {

/// Where memory lies; the values of DLDeviceType that this library makes.
enum class DeviceType : std::int32_t {
  Cpu = 1,      // host memory
  Cuda = 2,     // of a CUDA device
  CudaHost = 3  // pinned host memory
};

/// A device by kind and number.
struct DLDevice {
  DeviceType device_type = DeviceType::Cpu;  // what it is
  std::int32_t device_id = 0;                // which of them
  friend constexpr bool operator==(const DLDevice&, const DLDevice&) = default;
};

/// Of one element.
struct DLDataType {
  std::uint8_t code = 0;    // 0 int, 1 unsigned, 2 float, 4 bfloat, 6 bool, 10 and 12 fp8
  std::uint8_t bits = 0;    // of one lane
  std::uint16_t lanes = 1;  // 1: not a vector
  friend constexpr bool operator==(const DLDataType&, const DLDataType&) = default;
};

/// A strided view.
struct DLTensor {
  void* data = nullptr;             // base address
  DLDevice device = {};             // where it lies
  std::int32_t ndim = 0;            // dimensions
  DLDataType dtype = {};            // of the elements
  std::int64_t* shape = nullptr;    // (ndim)
  std::int64_t* strides = nullptr;  // (ndim), in elements; null: row-major
  std::uint64_t byte_offset = 0;    // of the first element from `data`
};

/// A tensor and what keeps it alive, before version 1.0.
struct DLManagedTensor {
  DLTensor dl_tensor = {};                      // the view
  void* manager_ctx = nullptr;                  // the producer's
  void (*deleter)(DLManagedTensor*) = nullptr;  // the consumer calls it once; null: nothing to do
};

/// Of the struct that follows.
struct DLPackVersion {
  std::uint32_t major = 1;  // another one: only `deleter` may be relied on
  std::uint32_t minor = 0;  // adds meanings
};

inline constexpr std::uint64_t read_only = 1;  // of DLManagedTensorVersioned::flags
inline constexpr std::uint64_t is_copied = 2;  // the same

/// A tensor and what keeps it alive, since version 1.0.
struct DLManagedTensorVersioned {
  DLPackVersion version = {};                            // of this struct
  void* manager_ctx = nullptr;                           // the producer's
  void (*deleter)(DLManagedTensorVersioned*) = nullptr;  // as in DLManagedTensor
  std::uint64_t flags = 0;                               // read_only, is_copied
  DLTensor dl_tensor = {};                               // the view
};

// As a C compiler lays dlpack.h out where pointers have 64 bits.
static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, dtype) == 20);
static_assert(sizeof(DLManagedTensor) == 64 && offsetof(DLManagedTensor, manager_ctx) == 48);
static_assert(sizeof(DLManagedTensorVersioned) == 80 &&
              offsetof(DLManagedTensorVersioned, dl_tensor) == 32);

/// The DLDataType of a dtype. Float8E4M3 is e4m3fn, without infinities.
DLDataType data_type_of(DType dtype);
/// The dtype of a DLDataType; none: this library has no such elements.
std::optional<DType> dtype_from(const DLDataType& type);
/// Where the memory of a device lies.
DLDevice device_of(const Device& device);

/// Calls the deleter of a managed tensor that nobody took.
struct CallDeleter {
  /// Once; null is ignored.
  template <class Managed>
  void operator()(Managed* tensor) const noexcept {
    if (tensor != nullptr && tensor->deleter != nullptr) tensor->deleter(tensor);
  }
};
using Exported = std::unique_ptr<DLManagedTensorVersioned, CallDeleter>;  // release() gives it away
using ExportedUnversioned = std::unique_ptr<DLManagedTensor, CallDeleter>;  // the same

/// Memory to export: `numel_of(shape)` elements, row-major.
struct Memory {
  const void* data = nullptr;                // first element
  DType dtype = DType::Float32;              // of the elements
  std::span<const std::int64_t> shape = {};  // copied
  DLDevice device = {};                      // where it lies
  bool writable = false;                     // else flagged read_only
};

/// A tensor for another library to take. It shares `memory`, and holds `keeps_alive` until its
/// deleter is called, from whatever thread calls it: give what the memory lives in. Work on it that
/// was enqueued must be done before the other library looks. Shape and strides are its own.
Exported export_memory(const Memory& memory, std::shared_ptr<const void> keeps_alive);
/// The same for libraries older than version 1.0, which cannot be told that it is read-only: throws
/// UsageError for memory that is not writable.
ExportedUnversioned export_unversioned(const Memory& memory,
                                       std::shared_ptr<const void> keeps_alive);

/// The memory of a view; writable unless its elements are const.
template <class Element>
Memory memory_of(const TensorRef<Element>& view, const DLDevice& device) {
  return {view.data(), view.dtype(), view.shape(), device, !std::is_const_v<Element>};
}

/// Owns a tensor of another library; the destructor gives it back. Move-only.
class Imported {
 public:
  /// Takes the tensor over (rename the capsule that it came in). Throws UsageError for null, for
  /// another major version and for a tensor that is none (negative dimensions); the deleter is
  /// called then too.
  explicit Imported(DLManagedTensorVersioned* tensor);
  /// The same of a version before 1.0.
  explicit Imported(DLManagedTensor* tensor);

  /// As the other library describes it.
  const DLTensor& tensor() const { return *tensor_; }
  /// May not be written to.
  bool is_read_only() const { return read_only_; }

  /// The tensor as row-major elements of that type on that device, valid as long as this lives.
  /// Throws UsageError naming what is and what was asked for: another device or dtype, strides of
  /// anything but a row-major tensor, an address that no such element may have, const left out for
  /// a read-only tensor.
  template <class Element>
  TensorRef<Element> view(const DLDevice& device = {}) const {
    void* data = checked_data(TensorRef<Element>::dtype(), device, !std::is_const_v<Element>);
    return {static_cast<Element*>(data), {tensor_->shape, static_cast<std::size_t>(tensor_->ndim)}};
  }

 private:
  void* checked_data(DType dtype, const DLDevice& device, bool writes) const;
  void check() const;

  Exported versioned_;
  ExportedUnversioned unversioned_;
  const DLTensor* tensor_ = nullptr;
  bool read_only_ = false;
};

}  // namespace flatshard::dlpack
