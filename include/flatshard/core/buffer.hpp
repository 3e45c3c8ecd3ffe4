// Owning memory. A MemoryResource hands out and counts bytes; a Buffer owns one block of it.
#pragma once

#include <flatshard/core/types.hpp>

#include <utility>

namespace flatshard {

/// Source of memory, counted. Thread-safety: all members may be called from several threads.
class MemoryResource {
 public:
  virtual ~MemoryResource() = default;
  /// Uninitialised memory aligned to 4096 bytes (in a CUDA device to 256); allocate(0) is valid.
  /// Throws MemoryError.
  virtual void* allocate(Bytes bytes) = 0;
  /// What allocate(bytes) gave.
  virtual void deallocate(void* pointer, Bytes bytes) noexcept = 0;
  virtual Bytes allocated() const = 0;           // bytes now in use
  virtual Bytes high_water() const = 0;          // the most bytes ever in use at once
  virtual std::int64_t allocations() const = 0;  // calls of allocate so far
};

/// Owns one uninitialised block of a resource. Move-only; the resource must outlive it.
class Buffer {
 public:
  Buffer() = default;
  /// Allocates. Throws MemoryError.
  Buffer(MemoryResource& resource, Bytes bytes)
      : resource_(&resource), data_(resource.allocate(bytes)), bytes_(bytes) {}
  /// Leaves the other empty.
  Buffer(Buffer&& other) noexcept { swap(other); }
  /// Frees what it held.
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer() {
    if (resource_ != nullptr) resource_->deallocate(data_, bytes_);
  }

  void* data() const { return data_; }   // null: empty
  Bytes size() const { return bytes_; }  // as asked for
  /// Exchanges what is owned.
  void swap(Buffer& other) noexcept {
    std::swap(resource_, other.resource_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

 private:
  MemoryResource* resource_ = nullptr;
  void* data_ = nullptr;
  Bytes bytes_ = 0;
};

}  // namespace flatshard
