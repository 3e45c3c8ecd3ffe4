// A host device of which some streams do nothing before somebody waits for it: what nobody ordered
// after their work then runs before it, and reads or writes the wrong bytes.
#pragma once

#include <flatshard/ops/host_device.hpp>

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

namespace sharder_test {

using namespace flatshard;  // NOLINT: tests only

/// Which streams are late, and which waits count as nothing: of the second stream for the first.
/// Streams are counted as they are made.
struct Lateness {
  std::vector<int> late = {};
  std::pair<int, int> dropped{-1, -1};
};

class LateStream;

/// A place in a LateStream.
class LateEvent final : public Event {
 public:
  void synchronize() override;
  bool is_complete() const override;

  LateStream* recorder = nullptr;
  std::int64_t position = 0;
};

/// Runs in the issuing thread: at once, or, if late, as far as somebody waits for.
class LateStream final : public HostStream {
 public:
  LateStream(const Lateness& lateness, int number)
      : lateness_(lateness),
        number_(number),
        is_late_(std::count(lateness.late.begin(), lateness.late.end(), number) > 0) {}

  void enqueue(Task task) override { add(std::move(task)); }
  void record(Event& event) override {
    auto& mark = static_cast<LateEvent&>(event);
    mark.recorder = this;
    mark.position = done_ + static_cast<std::int64_t>(queue_.size());
  }
  void wait(Event& event) override {
    const auto& mark = static_cast<const LateEvent&>(event);
    if (mark.recorder == nullptr || mark.recorder == this) return;
    if (lateness_.dropped != std::pair(mark.recorder->number_, number_))
      add(Mark{mark.recorder, mark.position});
  }
  void check() override { inline_.check(); }
  void synchronize() override {
    run_until(done_ + static_cast<std::int64_t>(queue_.size()));
    inline_.synchronize();
  }
  bool has_done(std::int64_t position) const { return done_ >= position; }
  void run_until(std::int64_t position) {
    while (!has_done(position)) {
      std::variant<Task, Mark> next = std::move(queue_.front());
      queue_.pop_front();
      ++done_;
      if (const Mark* mark = std::get_if<Mark>(&next))
        mark->stream->run_until(mark->position);
      else
        inline_.enqueue(std::move(std::get<Task>(next)));
    }
  }

 private:
  struct Mark {
    LateStream* stream;
    std::int64_t position;
  };
  void add(std::variant<Task, Mark> item) {
    queue_.push_back(std::move(item));
    if (!is_late_) run_until(done_ + static_cast<std::int64_t>(queue_.size()));
  }

  const Lateness& lateness_;
  int number_;
  bool is_late_;
  std::deque<std::variant<Task, Mark>> queue_;
  std::int64_t done_ = 0;
  InlineStream inline_;
};

inline void LateEvent::synchronize() {
  if (recorder != nullptr) recorder->run_until(position);
}
inline bool LateEvent::is_complete() const {
  return recorder == nullptr || recorder->has_done(position);
}

class LateDevice final : public Device {
 public:
  explicit LateDevice(const Lateness& lateness) : lateness_(lateness) {}
  DeviceKind kind() const override { return DeviceKind::Host; }
  std::string_view name() const override { return "late"; }
  MemoryResource& memory() override { return host_.memory(); }
  MemoryResource& host_memory() override { return host_.host_memory(); }
  void copy(const void* source, void* destination, Bytes bytes, StreamRef stream) override {
    host_.copy(source, destination, bytes, stream);
  }
  std::unique_ptr<Stream> make_stream() override {
    return std::make_unique<LateStream>(lateness_, streams_++);
  }
  std::unique_ptr<Stream> make_compute_stream() override { return make_stream(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<LateEvent>(); }
  const KernelTable& kernels() const override { return host_.kernels(); }

 private:
  Lateness lateness_;
  int streams_ = 0;
  HostDevice host_;
};

}  // namespace sharder_test
