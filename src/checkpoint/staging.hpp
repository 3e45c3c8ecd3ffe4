// Elements between a device's memory and the host, converted on the way, in blocks.
#pragma once

#include <flatshard/core/buffer.hpp>
#include <flatshard/core/device.hpp>
#include <flatshard/tensor/dtype.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>

namespace flatshard::detail {

/// Two buffers of at most `block_bytes`, taken when first needed: none on a host device that need
/// not convert. One thread at a time; calls block.
class Staging {
 public:
  Staging(Device& device, Bytes block_bytes)
      : device_(device), stream_(device.make_stream()), block_bytes_(block_bytes) {}

  /// Elements that fit into a block in both dtypes, at least 1.
  Elements block_elements(DType a, DType b) const {
    return std::max<Elements>(1, block_bytes_ / std::max(size_of(a), size_of(b)));
  }

  /// `count` elements of device memory as `to` in host memory; valid until the next call.
  std::span<const std::byte> fetch(const std::byte* source, DType from, DType to, Elements count);
  /// The same, written to `destination` (host memory).
  void fetch_into(const std::byte* source, DType from, std::byte* destination, DType to,
                  Elements count);
  /// The same in device memory; valid until the next call.
  const std::byte* convert(const std::byte* source, DType from, DType to, Elements count);

  /// Where the host should put `count` elements of `from` that are meant for `destination`.
  std::span<std::byte> landing(std::byte* destination, DType from, DType to, Elements count);
  /// What was put there goes to `destination`, which is device memory.
  void deliver(std::byte* destination, DType from, DType to, Elements count);
  /// From host memory anywhere.
  void deliver_from(const std::byte* source, DType from, std::byte* destination, DType to,
                    Elements count);
  /// From device memory.
  void place(const std::byte* source, DType from, std::byte* destination, DType to, Elements count);

  /// A block in device memory, and one in host memory.
  std::byte* device_block();
  std::byte* host_block();
  Device& device() const { return device_; }
  Stream& stream() const { return *stream_; }

 private:
  bool on_host() const { return device_.kind() == DeviceKind::Host; }
  void cast(const void* source, DType from, void* destination, DType to, Elements count);

  Device& device_;
  std::unique_ptr<Stream> stream_;
  Bytes block_bytes_;
  Buffer device_block_, host_block_;
};

}  // namespace flatshard::detail
