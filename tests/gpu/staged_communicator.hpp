// A communicator of a device for tests that hold their buffers in host memory: every call copies
// them to the device, lets the communicator work there, and copies them back.
#pragma once

#include <flatshard/comm/decorator.hpp>
#include <flatshard/core/device.hpp>

#include <algorithm>
#include <cstddef>

namespace flatshard_test {

using namespace flatshard;  // NOLINT: tests only

/// Memory of a call: on the device as on the host, in one piece where the buffers overlap.
class StagedBuffers {
 public:
  StagedBuffers(Device& device, const void* send, Bytes send_bytes, void* receive,
                Bytes receive_bytes, StreamRef stream)
      : device_(device), stream_(stream) {
    auto* from = static_cast<std::byte*>(const_cast<void*>(send));
    auto* to = static_cast<std::byte*>(receive);
    const bool overlap = from < to + receive_bytes && to < from + send_bytes;
    if (overlap) {
      std::byte* begin = std::min(from, to);
      std::byte* end = std::max(from + send_bytes, to + receive_bytes);
      host_ = begin;
      bytes_ = end - begin;
      whole_ = Buffer(device.memory(), bytes_);
      send_ = at(whole_, from - begin);
      receive_ = at(whole_, to - begin);
    } else {
      host_ = to;
      bytes_ = receive_bytes;
      whole_ = Buffer(device.memory(), receive_bytes);
      sent_ = Buffer(device.memory(), send_bytes);
      device.copy(send, sent_.data(), send_bytes, stream);
      send_ = at(sent_, 0);
      receive_ = at(whole_, 0);
    }
    device.copy(host_, whole_.data(), bytes_, stream);
  }
  void* send() const { return send_; }
  void* receive() const { return receive_; }
  /// Blocks the host.
  void copy_back() {
    device_.copy(whole_.data(), host_, bytes_, stream_);
    stream_->synchronize();
  }

 private:
  static std::byte* at(const Buffer& buffer, Bytes offset) {
    return static_cast<std::byte*>(buffer.data()) + offset;
  }
  Device& device_;
  StreamRef stream_;
  void* host_ = nullptr;
  Bytes bytes_ = 0;
  Buffer whole_, sent_;
  std::byte* send_ = nullptr;
  std::byte* receive_ = nullptr;
};

class StagedCommunicator final : public CommunicatorDecorator {
 public:
  using CommunicatorDecorator::CommunicatorDecorator;

  void all_gather(std::string_view label, const void* send, void* receive, Elements count,
                  DType dtype, StreamRef stream) override {
    const Bytes bytes = valid(count) * size_of(dtype);
    StagedBuffers staged(*device(), send, bytes, receive, bytes * size(), stream);
    inner().all_gather(label, staged.send(), staged.receive(), count, dtype, stream);
    staged.copy_back();
  }
  void reduce_scatter(std::string_view label, const void* send, void* receive, Elements count,
                      DType contribution, DType result, StreamRef stream) override {
    StagedBuffers staged(*device(), send, valid(count) * size() * size_of(contribution), receive,
                         valid(count) * size_of(result), stream);
    inner().reduce_scatter(label, staged.send(), staged.receive(), count, contribution, result,
                           stream);
    staged.copy_back();
  }
  void all_reduce(std::string_view label, const void* send, void* receive, Elements count,
                  DType contribution, DType result, StreamRef stream) override {
    StagedBuffers staged(*device(), send, valid(count) * size_of(contribution), receive,
                         valid(count) * size_of(result), stream);
    inner().all_reduce(label, staged.send(), staged.receive(), count, contribution, result, stream);
    staged.copy_back();
  }
  void broadcast(std::string_view label, void* data, Elements count, DType dtype, Rank root,
                 StreamRef stream) override {
    const Bytes bytes = valid(count) * size_of(dtype);
    StagedBuffers staged(*device(), data, bytes, data, bytes, stream);
    inner().broadcast(label, staged.receive(), count, dtype, root, stream);
    staged.copy_back();
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<StagedCommunicator>(inner().split(color, key));
  }

 private:
  /// A negative count is for the communicator to refuse.
  static Elements valid(Elements count) { return std::max<Elements>(count, 0); }
};

}  // namespace flatshard_test
