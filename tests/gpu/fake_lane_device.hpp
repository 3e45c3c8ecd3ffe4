// A host device that behaves as a CUDA device does: streams with threads of their own, and a lane
// that is tied to them by numbers.
#pragma once

#include <flatshard/ops/host_device.hpp>

#include <memory>
#include <mutex>
#include <thread>

#include "../../src/core/device_lane.hpp"

namespace sharder_test {

using namespace flatshard;  // NOLINT: tests only

class FakeLink;

/// As CudaEvent: recorded by a stream or by the lane.
class FakeEvent final : public Event {
 public:
  void synchronize() override {
    if (lane == nullptr) return host->synchronize();
    detail::wait_in_turns([this] { return is_complete(); }, [](auto) {});
  }
  bool is_complete() const override;

  const std::unique_ptr<Event> host = make_host_event();
  std::shared_ptr<FakeLink> lane;
  std::uint64_t target = 0;
};

/// As CudaStream. Events of others, of communicators, are the inner stream's.
class FakeStream final : public HostStream {
 public:
  explicit FakeStream(StreamForm form) : inner_(make_host_stream(form)) {}
  void enqueue(Task task) override { inner_->enqueue(std::move(task)); }
  void record(Event& event) override {
    auto* const fake = dynamic_cast<FakeEvent*>(&event);
    if (fake == nullptr) return inner_->record(event);
    inner_->record(*fake->host);
    fake->lane = nullptr;
  }
  void wait(Event& event) override;
  void check() override { inner_->check(); }
  void synchronize() override { inner_->synchronize(); }

 private:
  std::unique_ptr<HostStream> inner_;
};

/// As CudaLink.
class FakeLink final : public detail::LaneLink, public std::enable_shared_from_this<FakeLink> {
 public:
  std::uint64_t follow(Event& event) override {
    auto& mark = static_cast<FakeEvent&>(event);
    if (mark.lane.get() == this || mark.is_complete()) return 0;
    follower_.wait(event);
    follower_.enqueue([this, value = ++followed_] { arrivals_.store(value); });
    return followed_;
  }
  void mark(Event& event, std::uint64_t target) override {
    static_cast<FakeEvent&>(event).lane = shared_from_this();
    static_cast<FakeEvent&>(event).target = target;
  }
  void poll(std::chrono::steady_clock::duration) override {}
  void expect_intact() const override {}
  const std::atomic<std::uint64_t>& arrivals() const override { return arrivals_; }
  std::atomic<std::uint64_t>& departures() override { return departures_; }

 private:
  std::atomic<std::uint64_t> arrivals_{0}, departures_{0};
  std::uint64_t followed_ = 0;
  FakeStream follower_{StreamForm::Threaded};
};

inline bool FakeEvent::is_complete() const {
  return lane == nullptr ? host->is_complete() : lane->departures().load() >= target;
}

inline void FakeStream::wait(Event& event) {
  const auto* const fake = dynamic_cast<FakeEvent*>(&event);
  if (fake == nullptr) return inner_->wait(event);
  if (fake->lane == nullptr) return inner_->wait(*fake->host);
  inner_->enqueue([lane = fake->lane, target = fake->target] {
    detail::wait_in_turns([&] { return lane->departures().load() >= target; }, [](auto) {});
  });
}

class FakeLaneDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::Host; }
  std::string_view name() const override { return "fake"; }
  MemoryResource& memory() override { return host_.memory(); }
  MemoryResource& host_memory() override { return host_.host_memory(); }
  void copy(const void* source, void* destination, Bytes bytes, StreamRef stream) override {
    host_.copy(source, destination, bytes, stream);
  }
  std::unique_ptr<Stream> make_stream() override {
    return std::make_unique<FakeStream>(StreamForm::Threaded);
  }
  std::unique_ptr<Stream> make_compute_stream() override {
    return std::make_unique<FakeStream>(StreamForm::Inline);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<FakeEvent>(); }
  const KernelTable& kernels() const override { return host_.kernels(); }
  std::unique_ptr<Stream> make_host_side_stream() override {
    return std::make_unique<detail::DeviceLane>(std::make_shared<FakeLink>());
  }

 private:
  HostDevice host_;
};

}  // namespace sharder_test
