// The runtime's functions of memory, but for copies.
#include "memory.hpp"

#include <cstdlib>
#include <cstring>
#include <map>
#include <shared_mutex>

#include "stream.hpp"

namespace emulated {
namespace {

constexpr std::size_t device_bytes = std::size_t{8} << 30;  // no block is larger
constexpr std::size_t pinned_alignment = 4096, device_alignment = 256;

struct Blocks {
  std::shared_mutex mutex;
  std::map<std::byte*, Block> by_begin;
};
Blocks& blocks() {
  static Blocks& instance = *new Blocks;
  return instance;
}

void add(const Block& block) {
  const std::unique_lock lock(blocks().mutex);
  blocks().by_begin[block.begin] = block;
}

/// The block that begins there, which is known no longer.
Block take(void* begin) {
  const std::unique_lock lock(blocks().mutex);
  const auto found = blocks().by_begin.find(static_cast<std::byte*>(begin));
  if (found == blocks().by_begin.end()) return {};
  const Block block = found->second;
  blocks().by_begin.erase(found);
  return block;
}

/// Full of bytes that are NaN in every dtype.
void* make_block(std::size_t bytes, std::size_t alignment, cudaMemoryType type) {
  if (bytes > device_bytes) return nullptr;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded > 0 ? rounded : alignment);
  if (memory == nullptr) return nullptr;
  std::memset(memory, 0xff, bytes);
  add({static_cast<std::byte*>(memory), bytes, type, current_device(), true});
  return memory;
}

cudaError_t made(void** pointer, void* memory) {
  *pointer = memory;
  return result(memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

}  // namespace

Block block_around(const void* address) {
  const std::shared_lock lock(blocks().mutex);
  auto* const at = static_cast<std::byte*>(const_cast<void*>(address));
  auto found = blocks().by_begin.upper_bound(at);
  if (found == blocks().by_begin.begin()) return {};
  const Block& block = (--found)->second;
  return at < block.begin + block.bytes ? block : Block{};
}

void touch(const void* begin, std::size_t bytes) {
  if (bytes == 0) return;
  const Block block = block_around(begin);
  expect(block.bytes > 0, "a kernel works on memory that no device sees");
  expect(static_cast<const std::byte*>(begin) + bytes <= block.begin + block.bytes,
         "a kernel works past the end of a block of memory");
}

}  // namespace emulated

using namespace emulated;

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return made(pointer, make_block(bytes, device_alignment, cudaMemoryTypeDevice));
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  const Block block = block_around(pointer);
  if (block.begin != pointer || block.type != cudaMemoryTypeDevice)
    return result(cudaErrorInvalidValue);
  wait_for_device(block.device);
  std::free(take(pointer).begin);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) {
  return cudaMalloc(pointer, bytes);
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  enqueue(stream_of(stream), Work([pointer] { std::free(take(pointer).begin); }));
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  return made(pointer, make_block(bytes, pinned_alignment, cudaMemoryTypeHost));
}

cudaError_t cudaFreeHost(void* pointer) {
  wait_for_device(-1);
  const Block block = take(pointer);
  if (block.begin == nullptr) return result(cudaErrorInvalidValue);
  std::free(block.begin);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
  if (block_around(pointer).bytes > 0) return result(cudaErrorHostMemoryAlreadyRegistered);
  add({static_cast<std::byte*>(pointer), bytes, cudaMemoryTypeHost, current_device(), false});
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  wait_for_device(-1);
  const Block block = take(pointer);
  return result(block.begin == nullptr || block.owned ? cudaErrorHostMemoryNotRegistered
                                                      : cudaSuccess);
}

cudaError_t cudaHostGetDevicePointer(void** on_device, void* pointer, unsigned) {
  if (block_around(pointer).type != cudaMemoryTypeHost) return result(cudaErrorInvalidValue);
  *on_device = pointer;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const Block block = block_around(pointer);
  const bool known = block.bytes > 0;
  *attributes = {};
  attributes->type = block.type;
  attributes->device = block.device;
  attributes->devicePointer = known ? const_cast<void*>(pointer) : nullptr;
  attributes->hostPointer =
      block.type != cudaMemoryTypeDevice ? const_cast<void*>(pointer) : nullptr;
  return cudaSuccess;
}

}  // extern "C"
