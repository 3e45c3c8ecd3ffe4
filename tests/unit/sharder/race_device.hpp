// A host device that writes down who touches which memory on which stream, and what the events
// order; afterwards it can say which accesses nothing orders. Streams run inline, so what the
// engine left out shows although nothing goes wrong.
#pragma once

#include <flatshard/comm/decorator.hpp>
#include <flatshard/ops/host_device.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sharder_test {

using namespace flatshard;  // NOLINT: tests only

/// How far each stream had come when something happened.
using Clock = std::array<int, 8>;
inline void join(Clock& clock, const Clock& other) {
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

struct Access {
  const std::byte* begin;
  Bytes bytes;
  bool writes;
};
inline Access reads(const void* data, Bytes bytes) {
  return {static_cast<const std::byte*>(data), bytes, false};
}
inline Access writes(const void* data, Bytes bytes) {
  return {static_cast<const std::byte*>(data), bytes, true};
}

struct Work {
  std::string name;
  int stream;
  Clock clock;  // of its start, itself included
  std::vector<Access> accesses;
};

/// The events and the work of one rank. `dropped`: waits of the second stream for the first count
/// as nothing.
struct History {
  std::vector<Work> work;
  std::vector<Clock> streams;
  Clock host{};
  std::pair<int, int> dropped{-1, -1};

  bool ordered(const Work& earlier, const Work& later) const {
    const auto stream = static_cast<std::size_t>(earlier.stream);
    return later.clock[stream] >= earlier.clock[stream];
  }
  static bool conflict(const Work& one, const Work& other) {
    for (const Access& a : one.accesses)
      for (const Access& b : other.accesses)
        if ((a.writes || b.writes) && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes)
          return true;
    return false;
  }
  /// Pairs of conflicting work that no event orders, in words.
  std::vector<std::string> races() const {
    std::vector<std::string> found;
    for (std::size_t later = 0; later < work.size(); ++later)
      for (std::size_t earlier = 0; earlier < later; ++earlier) {
        if (work[earlier].stream == work[later].stream) continue;
        if (!ordered(work[earlier], work[later]) && conflict(work[earlier], work[later]))
          found.push_back(work[earlier].name + " on stream " +
                          std::to_string(work[earlier].stream) + ", " + work[later].name +
                          " on stream " + std::to_string(work[later].stream));
      }
    return found;
  }
};

class RaceEvent final : public Event {
 public:
  explicit RaceEvent(History& history) : history_(history) {}
  void synchronize() override { join(history_.host, clock); }
  bool is_complete() const override { return true; }
  Clock clock{};
  int recorder = -1;

 private:
  History& history_;
};

class RaceStream final : public HostStream {
 public:
  explicit RaceStream(History& history)
      : history_(history), number(static_cast<int>(history.streams.size())) {
    history.streams.emplace_back();
  }
  void enqueue(Task task) override {
    const Running here(*this);
    inline_.enqueue(std::move(task));
  }
  void record(Event& event) override {
    auto& mark = static_cast<RaceEvent&>(event);
    join(clock(), history_.host);
    mark.clock = clock();
    mark.recorder = number;
  }
  void wait(Event& event) override {
    const auto& mark = static_cast<const RaceEvent&>(event);
    if (history_.dropped != std::pair(mark.recorder, number)) join(clock(), mark.clock);
  }
  void check() override { inline_.check(); }
  void synchronize() override {
    join(history_.host, clock());
    inline_.synchronize();
  }
  void add(std::string name, std::vector<Access> accesses) {
    join(clock(), history_.host);
    ++clock()[static_cast<std::size_t>(number)];
    history_.work.push_back({std::move(name), number, clock(), std::move(accesses)});
  }

  /// Whose task this thread runs; null: of none.
  static RaceStream* running() { return running_; }

 private:
  /// While a task of the stream runs, in the thread that issued it.
  class Running {
   public:
    explicit Running(RaceStream& stream) : outer_(std::exchange(running_, &stream)) {}
    ~Running() { running_ = outer_; }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    RaceStream* outer_;
  };
  static inline thread_local RaceStream* running_ = nullptr;

  Clock& clock() { return history_.streams[static_cast<std::size_t>(number)]; }
  History& history_;
  InlineStream inline_;

 public:
  const int number;  // streams are counted as they are made: compute, gather, reduce
};

/// Writes work down on a stream of a RaceDevice. What a task does on another, inline stream is work
/// of the task's.
inline void note(StreamRef stream, std::string name, std::vector<Access> accesses) {
  auto* own = dynamic_cast<RaceStream*>(&stream.get());
  if (own == nullptr) own = RaceStream::running();
  if (own != nullptr) own->add(std::move(name), std::move(accesses));
}

class RaceDevice final : public Device, private KernelTable {
 public:
  DeviceKind kind() const override { return DeviceKind::Host; }
  std::string_view name() const override { return "race"; }
  MemoryResource& memory() override { return host_.memory(); }
  MemoryResource& host_memory() override { return host_.host_memory(); }
  void copy(const void* source, void* destination, Bytes bytes, StreamRef stream) override {
    note(stream, "copy", {reads(source, bytes), writes(destination, bytes)});
    host_.copy(source, destination, bytes, stream);
  }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<RaceStream>(history); }
  std::unique_ptr<Stream> make_compute_stream() override { return make_stream(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<RaceEvent>(history); }
  const KernelTable& kernels() const override { return *this; }

  History history;

 private:
  const KernelTable& host() const { return host_.kernels(); }

  void zero(void* destination, Bytes bytes, StreamRef stream) const override {
    note(stream, "zero", {writes(destination, bytes)});
    host().zero(destination, bytes, stream);
  }
  void cast(const void* source, DType from, void* destination, DType to, Elements count,
            StreamRef stream) const override {
    note(stream, "cast",
         {reads(source, count * size_of(from)), writes(destination, count * size_of(to))});
    host().cast(source, from, destination, to, count, stream);
  }
  void add(const void* addend, DType addend_dtype, void* accumulator, DType accumulator_dtype,
           Elements count, StreamRef stream) const override {
    note(stream, "add",
         {reads(addend, count * size_of(addend_dtype)),
          writes(accumulator, count * size_of(accumulator_dtype))});
    host().add(addend, addend_dtype, accumulator, accumulator_dtype, count, stream);
  }
  void reduce(std::span<const void* const> sources, DType contribution, void* destination,
              DType result, Elements count, StreamRef stream) const override {
    host().reduce(sources, contribution, destination, result, count, stream);
  }
  static std::vector<Access> node_accesses(const void* buffer, DType dtype,
                                           std::span<const NormNode> nodes, double* values) {
    std::vector<Access> accesses{writes(values, static_cast<Bytes>(nodes.size() * sizeof(double)))};
    for (const NormNode& node : nodes)
      accesses.push_back(reads(static_cast<const std::byte*>(buffer) + node.offset * size_of(dtype),
                               node.count * size_of(dtype)));
    return accesses;
  }
  void square_sums(const void* buffer, DType dtype, std::span<const NormNode> nodes, double* values,
                   StreamRef stream) const override {
    note(stream, "square_sums", node_accesses(buffer, dtype, nodes, values));
    host().square_sums(buffer, dtype, nodes, values, stream);
  }
  void absolute_maxima(const void* buffer, DType dtype, std::span<const NormNode> nodes,
                       double* values, StreamRef stream) const override {
    note(stream, "absolute_maxima", node_accesses(buffer, dtype, nodes, values));
    host().absolute_maxima(buffer, dtype, nodes, values, stream);
  }
  static std::vector<Access> add_accesses(std::span<const NormAdd> adds, double* values) {
    std::vector<Access> accesses;
    for (const NormAdd& add : adds) {
      accesses.push_back(reads(values + add.from, sizeof(double)));
      accesses.push_back(writes(values + add.into, sizeof(double)));
    }
    return accesses;
  }
  void add_nodes(std::span<const NormAdd> adds, double* values, StreamRef stream) const override {
    note(stream, "add_nodes", add_accesses(adds, values));
    host().add_nodes(adds, values, stream);
  }
  void max_nodes(std::span<const NormAdd> adds, double* values, StreamRef stream) const override {
    note(stream, "max_nodes", add_accesses(adds, values));
    host().max_nodes(adds, values, stream);
  }
  void fill(const Initializer& initializer, DType dtype, void* destination, Elements canonical,
            Elements count, StreamRef stream) const override {
    note(stream, "fill", {writes(destination, count * size_of(dtype))});
    host().fill(initializer, dtype, destination, canonical, count, stream);
  }
  void start_control(StepControl& control, const LossScaler& scaler,
                     StreamRef stream) const override {
    note(stream, "start_control", {writes(&control, sizeof(control))});
    host().start_control(control, scaler, stream);
  }
  void conclude(const ConcludeArguments& arguments, StreamRef stream) const override {
    note(stream, "conclude",
         {writes(arguments.control, sizeof(StepControl)),
          writes(arguments.times, arguments.flats * Bytes{sizeof(std::int64_t)})});
    host().conclude(arguments, stream);
  }
  void flatten(std::span<const FlattenPiece> pieces, DType from, void* flat, DType to,
               StreamRef stream) const override {
    host().flatten(pieces, from, flat, to, stream);
  }
  void unflatten(std::span<const FlattenPiece> pieces, const void* flat, DType from, DType to,
                 StreamRef stream) const override {
    host().unflatten(pieces, flat, from, to, stream);
  }
  void step(const StepFunctions& functions, const StepArguments& arguments,
            StreamRef stream) const override {
    const StepRow& row = arguments.row;
    std::vector<Access> accesses{writes(arguments.master, arguments.count * size_of(row.master)),
                                 reads(arguments.gradient, arguments.count * size_of(row.gradient)),
                                 reads(arguments.scalars, sizeof(StepScalars))};
    for (void* state : arguments.states)
      if (state != nullptr) accesses.push_back(writes(state, arguments.count * size_of(row.state)));
    if (arguments.copy != nullptr)
      accesses.push_back(writes(arguments.copy, arguments.count * size_of(row.copy)));
    note(stream, "step", std::move(accesses));
    host().step(functions, arguments, stream);
  }

  HostDevice host_;
};

/// Collectives as work of their streams.
class RaceCommunicator final : public CommunicatorDecorator {
 public:
  using CommunicatorDecorator::CommunicatorDecorator;
  void all_gather(std::string_view label, const void* send, void* receive, Elements count,
                  DType dtype, StreamRef stream) override {
    const Bytes part = count * size_of(dtype);
    note(stream, "all_gather " + std::string(label),
         {reads(send, part), writes(receive, part * size())});
    inner().all_gather(label, send, receive, count, dtype, stream);
  }
  void reduce_scatter(std::string_view label, const void* send, void* receive, Elements count,
                      DType contribution, DType result, StreamRef stream) override {
    note(stream, "reduce_scatter " + std::string(label),
         {reads(send, count * size() * size_of(contribution)),
          writes(receive, count * size_of(result))});
    inner().reduce_scatter(label, send, receive, count, contribution, result, stream);
  }
  void all_reduce(std::string_view label, const void* send, void* receive, Elements count,
                  DType contribution, DType result, StreamRef stream) override {
    note(stream, "all_reduce " + std::string(label),
         {reads(send, count * size_of(contribution)), writes(receive, count * size_of(result))});
    inner().all_reduce(label, send, receive, count, contribution, result, stream);
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<RaceCommunicator>(inner().split(color, key));
  }
};

}  // namespace sharder_test
