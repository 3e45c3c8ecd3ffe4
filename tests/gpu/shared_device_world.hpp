// Ranks as threads that share one device: more ranks than GPUs, with the order and the sums of
// every communicator. Each collective blocks the host until all ranks have issued it; the work
// itself is stream-ordered.
#pragma once

#include <flatshard/comm/call.hpp>
#include <flatshard/comm/communicator.hpp>
#include <flatshard/core/device.hpp>
#include <flatshard/ops/kernel_table.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "../../src/comm/thread_channel.hpp"

namespace flatshard_test {

using namespace flatshard;  // NOLINT: tests only

class SharedDeviceCommunicator final : public Communicator {
 public:
  SharedDeviceCommunicator(std::shared_ptr<detail::ThreadChannels> channels, Device& device,
                           Rank rank, std::vector<Rank> members)
      : channels_(std::move(channels)), device_(device), rank_(rank), members_(std::move(members)) {
    for (auto& event : events_) event = device.make_event();
  }

  Rank rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  std::span<const Rank> members() const override { return members_; }
  bool canonical_reduction() const override { return true; }
  Device* device() const override { return &device_; }

  void all_gather(std::string_view, const void* send, void* receive, Elements count, DType dtype,
                  StreamRef stream) override {
    const Bytes bytes = count * size_of(dtype);
    const auto peers = meet(ready, send, stream);
    for (Rank other = 0; other < size(); ++other)
      device_.copy(of(peers, other).data, at(receive, other * bytes), bytes, stream);
    meet(done, receive, stream);
  }
  void reduce_scatter(std::string_view, const void* send, void* receive, Elements count,
                      DType contribution, DType result, StreamRef stream) override {
    const auto peers = meet(ready, send, stream);
    reduce(peers, rank_ * count * size_of(contribution), receive, count, contribution, result,
           stream);
    meet(done, receive, stream);
  }
  void all_reduce(std::string_view, const void* send, void* receive, Elements count,
                  DType contribution, DType result, StreamRef stream) override {
    const auto peers = meet(ready, send, stream);
    const Bytes bytes = count * size_of(result);
    if (bytes > sum_.size()) {
      for (auto& event : events_) event->synchronize();
      sum_ = Buffer(device_.host_memory(), bytes);
    }
    reduce(peers, 0, sum_.data(), count, contribution, result, stream);
    meet(done, sum_.data(), stream);  // nobody reads `send` any more, which may be `receive`
    device_.copy(sum_.data(), receive, bytes, stream);
  }
  void broadcast(std::string_view, void* data, Elements count, DType dtype, Rank root,
                 StreamRef stream) override {
    const auto peers = meet(ready, data, stream);
    device_.copy(of(peers, root).data, data, count * size_of(dtype), stream);
    meet(done, data, stream);
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    struct Part {
      int color, key;
      std::shared_ptr<detail::ThreadChannels>* channels;
    };
    std::shared_ptr<detail::ThreadChannels> mine;
    const auto all = exchange(Part{color, key, &mine});
    std::vector<Rank> part;
    for (Rank other = 0; other < size(); ++other)
      if (of(all, other).color == color) part.push_back(other);
    std::stable_sort(part.begin(), part.end(),
                     [&](Rank a, Rank b) { return of(all, a).key < of(all, b).key; });
    if (part.front() == rank_)
      mine = std::make_shared<detail::ThreadChannels>(static_cast<int>(part.size()), patience);
    exchange(0);
    const auto shared = *of(all, part.front()).channels;
    exchange(0);  // the leader keeps its pointer until all have copied it
    const auto position = std::find(part.begin(), part.end(), rank_) - part.begin();
    for (Rank& rank : part) rank = members_[static_cast<std::size_t>(rank)];
    return std::make_unique<SharedDeviceCommunicator>(shared, device_, static_cast<Rank>(position),
                                                      std::move(part));
  }
  void synchronize() override { exchange(0); }
  void abort(std::string_view message) noexcept override {
    channels_->fail({members_[static_cast<std::size_t>(rank_)], std::string(message)});
  }

  static constexpr std::chrono::milliseconds patience = std::chrono::seconds(60);

 private:
  enum Moment { ready, done };
  struct Peer {
    const void* data;
    Event* event;
  };

  template <class Value>
  static const Value& of(const std::vector<Value>& values, Rank rank) {
    return values[static_cast<std::size_t>(rank)];
  }
  static std::byte* at(void* data, Bytes offset) { return static_cast<std::byte*>(data) + offset; }

  template <class Value>
  std::vector<Value> exchange(const Value& mine) {
    std::vector<Value> all(members_.size());
    channels_->all_gather(rank_, std::as_bytes(std::span(&mine, 1)),
                          std::as_writable_bytes(std::span(all)));
    return all;
  }
  /// Every rank's stream goes on from here when all ranks' streams have come here.
  std::vector<Peer> meet(Moment moment, const void* data, StreamRef stream) {
    Event& event = *events_[moment];
    stream->record(event);
    const auto peers = exchange(Peer{data, &event});
    for (const Peer& peer : peers) stream->wait(*peer.event);
    return peers;
  }
  void reduce(const std::vector<Peer>& peers, Bytes offset, void* destination, Elements count,
              DType contribution, DType result, StreamRef stream) {
    sources_.clear();
    for (const Peer& peer : peers)
      sources_.push_back(static_cast<const std::byte*>(peer.data) + offset);
    if (count > 0)
      device_.kernels().reduce(sources_, contribution, destination, result, count, stream);
  }

  std::shared_ptr<detail::ThreadChannels> channels_;
  Device& device_;
  Rank rank_;
  std::vector<Rank> members_;
  std::unique_ptr<Event> events_[2];
  std::vector<const void*> sources_;
  Buffer sum_;  // in host memory, so that the device's counts are the tested program's alone
};

/// make_device() gives each rank its own; all of them must reach each other's memory.
inline void run_on_shared_device(int size,
                                 const std::function<std::unique_ptr<Device>()>& make_device,
                                 const std::function<void(Communicator&)>& rank_main) {
  const auto channels =
      std::make_shared<detail::ThreadChannels>(size, SharedDeviceCommunicator::patience);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const auto device = make_device();
        std::vector<Rank> members(static_cast<std::size_t>(size));
        std::iota(members.begin(), members.end(), 0);
        SharedDeviceCommunicator communicator(channels, *device, rank, std::move(members));
        rank_main(communicator);
        communicator.synchronize();  // nobody's memory goes while others read it
      } catch (...) {
        channels->fail(rank, std::current_exception());
      }
    });
  for (std::thread& thread : threads) thread.join();
  channels->rethrow();
}

}  // namespace flatshard_test
