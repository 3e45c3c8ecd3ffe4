// Slots on a disk against what the disk does for plain transfers of the same block size and depth,
// by turns in one process. The plain transfers: threads that call pread and pwrite past the page
// cache, and io_uring kept full; the faster of the two is the disk's bound. Slots are written and
// read through a pipeline of three buffers, with checksums, and read, changed and written back. And
// whole steps of a Sharder whose optimizer rests on NVMe, which read and write as many bytes.
//
//   nvme_bench FOLDER [MIB [BLOCK_KIB [DEPTH]]]     default: 512 MiB, blocks of 1024 KiB, depth 16
#include <flatshard/comm/solo.hpp>
#include <flatshard/core/host_memory.hpp>
#include <flatshard/io/slot_pipeline.hpp>
#include <flatshard/io/slot_store.hpp>
#include <flatshard/io/transfer_queue.hpp>
#include <flatshard/ops/adamw.hpp>
#include <flatshard/ops/host_device.hpp>
#include <flatshard/sharder/params_hash.hpp>
#include <flatshard/sharder/sharder.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace flatshard_bench {
namespace {

using namespace flatshard;

constexpr int rounds = 5, slots = 16, buffers = 3;

enum class Work { Write, Read, Both };
constexpr Work all_work[] = {Work::Write, Work::Read, Work::Both};
const char* name_of(Work work) {
  return work == Work::Write ? "write" : work == Work::Read ? "read" : "read and write";
}

struct Settings {
  std::string folder;
  Bytes bytes = 512, block = 1024;  // MiB, KiB until main has scaled them
  int depth = 16;
};

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// A file without a name, past the page cache, and as much memory as the slots' pipeline has: a
/// virtual disk copies, and faster from a cache.
class PlainDisk {
 public:
  explicit PlainDisk(const Settings& settings)
      : settings_(settings), buffer_(memory_, buffers * (settings.bytes / slots)) {
    const std::string path = settings.folder + "/nvme_bench.plain";
    file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600);
    if (file_ < 0) throw std::system_error(errno, std::generic_category(), path);
    ::unlink(path.c_str());
    expect(::fallocate(file_, 0, 0, settings.bytes) == 0, "no room for the plain file");
    std::mt19937_64 random(1);
    auto* words = static_cast<std::uint64_t*>(buffer_.data());
    std::generate_n(words, buffer_.size() / 8, random);
  }
  PlainDisk(const PlainDisk&) = delete;
  PlainDisk& operator=(const PlainDisk&) = delete;
  ~PlainDisk() { ::close(file_); }

  void by_threads(Work work) {
    std::atomic<Bytes> next = 0;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < settings_.depth; ++thread)
      threads.emplace_back([&] {
        for (Bytes at; (at = next.fetch_add(settings_.block)) < settings_.bytes;)
          move(work, memory_for(at), at);
      });
    for (std::thread& thread : threads) thread.join();
  }

  void by_queue(Work work, TransferQueue& queue) {
    std::vector<Bytes> place(static_cast<std::size_t>(settings_.depth), -1);  // of each block
    std::vector<TransferResult> results(place.size());
    Bytes next = 0;
    int in_flight = 0;
    const auto begin = [&](std::uint64_t id, Transfer::Kind kind, Bytes at) {
      const Transfer transfer{kind, file_, memory_for(at), settings_.block, at, id};
      queue.submit({&transfer, 1});
      ++in_flight;
    };
    std::vector<bool> was_read(place.size());
    const auto begin_next = [&](std::uint64_t id) {
      if (next >= settings_.bytes) return;
      place[id] = next;
      was_read[id] = work == Work::Both;
      begin(id, work == Work::Write ? Transfer::Kind::Write : Transfer::Kind::Read, next);
      next += settings_.block;
    };
    for (std::uint64_t id = 0; id < place.size(); ++id) begin_next(id);
    while (in_flight > 0) {
      const std::size_t came = queue.wait(results);
      for (std::size_t n = 0; n < came; ++n) {
        expect(results[n].moved == settings_.block, "a plain transfer was short");
        --in_flight;
        const std::uint64_t id = results[n].id;
        if (was_read[id]) {
          was_read[id] = false;
          begin(id, Transfer::Kind::Write, place[id]);
        } else {
          begin_next(id);
        }
      }
    }
  }

 private:
  std::byte* memory_for(Bytes at) {
    return static_cast<std::byte*>(buffer_.data()) + at % buffer_.size();
  }
  void move(Work work, std::byte* data, Bytes at) {
    const auto bytes = static_cast<std::size_t>(settings_.block);
    if (work != Work::Write)
      expect(::pread(file_, data, bytes, at) == settings_.block, "a plain read failed");
    if (work != Work::Read)
      expect(::pwrite(file_, data, bytes, at) == settings_.block, "a plain write failed");
  }

  Settings settings_;
  HostMemory memory_;
  Buffer buffer_;
  int file_ = -1;
};

/// Slots whose bytes are known.
class Slots {
 public:
  Slots(const Settings& settings, IoBackend backend)
      : store_(std::vector<Bytes>(slots, settings.bytes / slots), memory_,
               options(settings, backend)),
        pipeline_(store_, memory_, buffers) {
    std::mt19937_64 random(2);
    for (std::size_t slot = 0; slot < store_.slots(); ++slot) order_.push_back(slot);
    contents_.resize(static_cast<std::size_t>(store_.bytes(0)) / 8);
    std::generate(contents_.begin(), contents_.end(), random);
    for (const std::size_t slot : order_) {
      const auto data = pipeline_.wait_for_empty(slot);
      std::copy_n(reinterpret_cast<const std::byte*>(contents_.data()), data.size(), data.begin());
      pipeline_.put_back(slot, tag_);
    }
    pipeline_.wait_all();
  }
  std::string description() const { return store_.description(); }

  void run(Work work) {
    if (work == Work::Write) return write();
    const bool back = work == Work::Both;
    pipeline_.wait_for_each(order_, tag_, back ? std::optional(tag_ + 1) : std::nullopt,
                            [](std::size_t, std::span<std::byte>) {});
    if (back) ++tag_;
  }
  void check() {
    pipeline_.wait_for_each(order_, tag_, {}, [&](std::size_t, std::span<std::byte> data) {
      expect(std::equal(data.begin(), data.end(), reinterpret_cast<std::byte*>(contents_.data())),
             "a slot has other bytes than were written");
    });
  }

 private:
  static SlotStoreOptions options(const Settings& settings, IoBackend backend) {
    return {.folder = settings.folder,
            .backend = backend,
            .queue_depth = settings.depth,
            .block_bytes = settings.block};
  }
  // The buffers hold what was in them: the same bytes in all.
  void write() {
    ++tag_;
    for (const std::size_t slot : order_) {
      pipeline_.wait_for_empty(slot);
      pipeline_.put_back(slot, tag_);
    }
    pipeline_.wait_all();
  }

  HostMemory memory_;
  SlotStore store_;
  SlotPipeline pipeline_;
  std::vector<std::size_t> order_;
  std::vector<std::uint64_t> contents_;
  std::int64_t tag_ = 0;
};

/// Steps of fp32 AdamW, clipped: each reads 16 bytes a parameter and writes as many, the gradient
/// in backward, master and states around the update. As many units as there are slots.
class Steps {
 public:
  Steps(const Settings& settings, IoBackend backend, Tier optimizer = Tier::Nvme)
      : modules_(modules_of(model_, settings.bytes / 16 / slots)),
        trainer_(communicator_, model_, AdamW{.lr = 1e-3, .weight_decay = 0.1},
                 options(settings, backend, optimizer)) {
    trainer_.initialize(init::normal{0.02, 1});
    run();
  }
  std::string description() { return trainer_.engine().nvme(); }
  std::uint64_t hash() { return params_hash(trainer_); }

  void run() {
    for (auto module = modules_.rbegin(); module != modules_.rend(); ++module)
      trainer_.backward(*module, [](auto, auto) {});
    trainer_.step();
    trainer_.synchronize();
  }

  /// The step leaves the bits of one in memory.
  static void check(Settings settings, IoBackend backend) {
    settings.bytes = 16 * slots * 3000;
    expect(Steps(settings, backend).hash() == Steps(settings, backend, Tier::Device).hash(),
           "a step on NVMe left other bits");
  }

 private:
  static std::vector<Module> modules_of(Model& model, Elements elements) {
    std::vector<Module> modules;
    for (int unit = 0; unit < slots; ++unit) {
      modules.push_back(model.module("h." + std::to_string(unit), {.backward_overwrites = true}));
      modules.back().add("weight", {elements});
    }
    return modules;
  }
  Options options(const Settings& settings, IoBackend backend, Tier optimizer) {
    Options options;
    options.max_grad_norm = 1;
    options.device = &device_;
    options.offload = {Tier::Device, optimizer};
    options.nvme = {.folder = settings.folder,
                    .backend = backend,
                    .queue_depth = settings.depth,
                    .block_bytes = settings.block,
                    .buffers = buffers};
    return options;
  }

  HostDevice device_{{.form = StreamForm::Threaded}};
  Solo communicator_{device_.kernels()};
  Model model_;
  std::vector<Module> modules_;
  Sharder<strategy::FullShard, precision::Full<float>> trainer_;
};

struct Contestant {
  std::string name;
  bool is_plain;
  std::function<void(Work)> run;
  bool reads_and_writes = false;  // and nothing else
  std::map<Work, std::vector<double>> seconds = {};
};

void print(const Settings& settings, std::vector<Contestant>& contestants) {
  for (const Work work : all_work) {
    const double gigabytes =
        static_cast<double>(settings.bytes) * (work == Work::Both ? 2e-9 : 1e-9);
    double bound = 0;
    for (Contestant& contestant : contestants)
      if (contestant.is_plain)
        bound = std::max(bound, gigabytes / median(contestant.seconds[work]));
    for (Contestant& contestant : contestants) {
      if (contestant.seconds[work].empty()) continue;
      const double speed = gigabytes / median(contestant.seconds[work]);
      fmt::print("{:<15} {:<15} {:6.2f} GB/s  share {:.2f}\n", name_of(work), contestant.name,
                 speed, speed / bound);
    }
  }
}

void run(const Settings& settings) {
  PlainDisk disk(settings);
  disk.by_threads(Work::Write);
  std::vector<Contestant> contestants{
      {"plain threads", true, [&](Work work) { disk.by_threads(work); }}};
  std::vector<std::unique_ptr<Slots>> all_slots;
  const MadeQueue queue = make_transfer_queue({}, settings.depth);
  const bool has_uring = queue.queue->backend() == IoBackend::Uring;
  if (has_uring)
    contestants.push_back(
        {"plain io_uring", true, [&](Work work) { disk.by_queue(work, *queue.queue); }});
  for (const IoBackend backend : {IoBackend::Threads, IoBackend::Uring}) {
    if (backend == IoBackend::Uring && !has_uring) continue;
    Slots& made = *all_slots.emplace_back(std::make_unique<Slots>(settings, backend));
    fmt::print("{} MiB in {} slots: {}\n", settings.bytes >> 20, slots, made.description());
    contestants.push_back({std::string("slots, ") + to_string(backend), false,
                           [&made](Work work) { made.run(work); }});
  }
  std::vector<std::unique_ptr<Steps>> all_steps;
  for (const IoBackend backend : {IoBackend::Threads, IoBackend::Uring}) {
    if (backend == IoBackend::Uring && !has_uring) continue;
    Steps::check(settings, backend);
    Steps& made = *all_steps.emplace_back(std::make_unique<Steps>(settings, backend));
    contestants.push_back(
        {std::string("steps, ") + to_string(backend), false, [&made](Work) { made.run(); }, true});
  }
  for (int round = 0; round < rounds; ++round)
    for (const Work work : all_work)
      for (Contestant& contestant : contestants)
        if (work == Work::Both || !contestant.reads_and_writes)
          contestant.seconds[work].push_back(seconds_of([&] { contestant.run(work); }));
  for (const auto& made : all_slots) made->check();
  print(settings, contestants);
}

}  // namespace
}  // namespace flatshard_bench

int main(int argc, char** argv) try {
  flatshard_bench::Settings settings;
  if (argc < 2 || argc > 5) {
    std::fputs("usage: nvme_bench FOLDER [MIB [BLOCK_KIB [DEPTH]]]\n", stderr);
    return 2;
  }
  settings.folder = argv[1];
  if (argc > 2) settings.bytes = std::atoll(argv[2]);
  if (argc > 3) settings.block = std::atoll(argv[3]);
  if (argc > 4) settings.depth = std::atoi(argv[4]);
  settings.block <<= 10;
  settings.bytes = (settings.bytes << 20) / (16 * settings.block) * (16 * settings.block);
  flatshard_bench::run(settings);
} catch (const std::exception& error) {
  std::fprintf(stderr, "nvme_bench: %s\n", error.what());
  return 1;
}
