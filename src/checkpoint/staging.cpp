#include "staging.hpp"

#include <flatshard/ops/kernel_table.hpp>

namespace flatshard::detail {

namespace {

constexpr Bytes widest_element = 8;

std::byte* block_of(Buffer& buffer, MemoryResource& memory, Bytes bytes) {
  const Bytes needed = std::max(bytes, widest_element);
  if (buffer.size() < needed) buffer = Buffer(memory, needed);
  return static_cast<std::byte*>(buffer.data());
}

}  // namespace

std::byte* Staging::device_block() {
  return block_of(device_block_, device_.memory(), block_bytes_);
}
std::byte* Staging::host_block() {
  return block_of(host_block_, device_.host_memory(), block_bytes_);
}

void Staging::cast(const void* source, DType from, void* destination, DType to, Elements count) {
  device_.kernels().cast(source, from, destination, to, count, *stream_);
}

std::span<const std::byte> Staging::fetch(const std::byte* source, DType from, DType to,
                                          Elements count) {
  const auto bytes = static_cast<std::size_t>(count * size_of(to));
  if (on_host() && from == to) return {source, bytes};
  std::byte* block = host_block();
  fetch_into(source, from, block, to, count);
  return {block, bytes};
}

void Staging::fetch_into(const std::byte* source, DType from, std::byte* destination, DType to,
                         Elements count) {
  if (on_host())
    cast(source, from, destination, to, count);
  else
    device_.copy(convert(source, from, to, count), destination, count * size_of(to), *stream_);
  stream_->synchronize();
}

const std::byte* Staging::convert(const std::byte* source, DType from, DType to, Elements count) {
  if (from == to) return source;
  std::byte* block = device_block();
  cast(source, from, block, to, count);
  return block;
}

std::span<std::byte> Staging::landing(std::byte* destination, DType from, DType to,
                                      Elements count) {
  const auto bytes = static_cast<std::size_t>(count * size_of(from));
  if (on_host() && from == to) return {destination, bytes};
  return {host_block(), bytes};
}

void Staging::deliver(std::byte* destination, DType from, DType to, Elements count) {
  if (on_host() && from == to) return;
  deliver_from(host_block(), from, destination, to, count);
}

void Staging::deliver_from(const std::byte* source, DType from, std::byte* destination, DType to,
                           Elements count) {
  if (on_host()) return place(source, from, destination, to, count);
  const bool converts = from != to;
  std::byte* arrived = converts ? device_block() : destination;
  device_.copy(source, arrived, count * size_of(from), *stream_);
  if (converts) cast(arrived, from, destination, to, count);
  stream_->synchronize();
}

void Staging::place(const std::byte* source, DType from, std::byte* destination, DType to,
                    Elements count) {
  cast(source, from, destination, to, count);
  stream_->synchronize();
}

}  // namespace flatshard::detail
