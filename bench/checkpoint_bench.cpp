// Saving and loading state over four ranks against plain large sequential writes with fsync and
// cold reads of as many bytes, by turns in one process; saving through the page cache beside it.
//
//   checkpoint_bench FOLDER [GIB...]     default: 1 and 4 GiB of masters and states
#include <flatshard/flatshard.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace flatshard_bench {
namespace {

using namespace flatshard;
using Trainer = Sharder<strategy::FullShard, precision::Full<float>, offload::None>;

constexpr int ranks = 4, rounds = 8, modules = 32;
constexpr Bytes plain_block = Bytes{8} << 20;

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Of this process, in bytes: "VmRSS" now, "VmHWM" the most since reset_peak().
Bytes memory_of(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field + ":")) return std::atoll(line.c_str() + field.size() + 1) * 1024;
  return 0;
}
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

void drop_from_cache(const std::string& path) {
  File::open_for_reading(path).hint(FileHint::DontNeed);
}

/// Equal parameters whose masters and two states have `bytes` together.
Model model_of(Bytes bytes) {
  Model model;
  for (int index = 0; index < modules; ++index)
    model.module("h." + std::to_string(index)).add("w", {bytes / 12 / modules / 1024, 1024});
  return model;
}

struct Times {
  std::vector<double> plain_write, save, cached_save, plain_read, load;
};

/// What is measured, as seen by one rank: rank 0 holds the watch.
class Rounds {
 public:
  Rounds(Communicator& communicator, const std::string& folder, Bytes bytes)
      : communicator_(communicator),
        folder_(folder),
        plain_(folder + "/plain"),
        bytes_(bytes),
        model_(model_of(bytes)),
        trainer_(communicator, model_, AdamW{}, with_device()),
        block_(device_.memory(), plain_block) {
    trainer_.initialize(init::normal{1, 1});
    trainer_.synchronize();
    std::fill_n(static_cast<char*>(block_.data()), plain_block, 'x');
  }

  /// `plain_first`: by turns, because a disk may serve what comes after a rest faster.
  void run(Times& times, bool plain_first) {
    const auto together = [&](std::vector<double>& into, const std::function<void()>& act) {
      communicator_.synchronize();
      const double seconds = seconds_of([&] {
        act();
        communicator_.synchronize();
      });
      if (communicator_.rank() == 0) into.push_back(seconds);
    };
    const bool mine = communicator_.rank() == 0;
    const auto plainly_write = [&] {
      together(times.plain_write, [&] {
        if (mine) write_plain();
      });
    };
    const auto plainly_read = [&] {
      together(times.plain_read, [&] {
        if (mine) read_plain();
      });
    };
    const auto save_through_cache = [&] { together(times.cached_save, [&] { save(true); }); };
    if (plain_first) plainly_write(), save_through_cache();
    together(times.save, [&] { save(); });
    if (!plain_first) save_through_cache(), plainly_write();
    if (mine) drop();
    if (plain_first) plainly_read();
    together(times.load, [&] { load_checkpoint(trainer_, folder_); });
    if (!plain_first) plainly_read();
  }
  /// Bytes beyond what there was before, of all ranks, at the peak of a save.
  Bytes extra_memory_of_save() {
    communicator_.synchronize();
    const Bytes before = memory_of("VmRSS");
    if (communicator_.rank() == 0) reset_peak();
    communicator_.synchronize();
    save();
    communicator_.synchronize();
    return memory_of("VmHWM") - before;
  }

 private:
  Options with_device() {
    Options options;
    options.device = &device_;
    return options;
  }
  std::span<std::byte> block() {
    return {static_cast<std::byte*>(block_.data()), static_cast<std::size_t>(plain_block)};
  }
  void save(bool page_cache = false) {
    save_checkpoint(
        trainer_, {.folder = folder_, .existing = ExistingStep::Replace, .page_cache = page_cache});
  }
  void write_plain() {
    std::remove(plain_.c_str());
    File file = File::create(plain_);
    for (Bytes at = 0; at < bytes_; at += plain_block) file.write(at, block());
    file.synchronize();
    file.close();
  }
  void read_plain() {
    const File file = File::open_for_reading(plain_);
    for (Bytes at = 0; at < bytes_; at += plain_block) file.read(at, block());
  }
  void drop() {
    drop_from_cache(plain_);
    for (const char* name : {"model", "optimizer"})
      drop_from_cache(folder_ + "/step-0/" + name + ".safetensors");
  }

  Communicator& communicator_;
  std::string folder_, plain_;
  Bytes bytes_;
  HostDevice device_;
  Model model_;
  Trainer trainer_;
  Buffer block_;
};

double best(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

/// Of the medians, and of the best rounds: others at the same disk only take time away.
void print(const char* what, const std::vector<double>& own, const std::vector<double>& plain,
           Bytes bytes) {
  const double gigabytes = static_cast<double>(bytes) * 1e-9;
  fmt::print("  {}: median {:.2f} GB/s, plain {:.2f} GB/s, share of the disk {:.2f}; ", what,
             gigabytes / median(own), gigabytes / median(plain), median(plain) / median(own));
  fmt::print("best {:.2f} GB/s, plain {:.2f} GB/s, share {:.2f}\n", gigabytes / best(own),
             gigabytes / best(plain), best(plain) / best(own));
}

void measure(const std::string& folder, Bytes bytes) {
  Times times;
  Bytes extra = 0;
  ThreadWorld(ranks).run([&](Communicator& communicator) {
    Rounds measured(communicator, folder, bytes);
    const Bytes peak = measured.extra_memory_of_save();
    if (communicator.rank() == 0) extra = peak;
    for (int round = 0; round < rounds; ++round) measured.run(times, round % 2 == 0);
  });
  fmt::print("{:.1f} GiB over {} ranks, {} rounds\n", static_cast<double>(bytes) / (1 << 30), ranks,
             rounds);
  print("save", times.save, times.plain_write, bytes);
  print("save through the page cache", times.cached_save, times.plain_write, bytes);
  print("load", times.load, times.plain_read, bytes);
  fmt::print("  extra memory of a save: {:.1f} MiB per rank\n",
             static_cast<double>(extra) / ranks / (1 << 20));
  std::fflush(stdout);
}

}  // namespace
}  // namespace flatshard_bench

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: checkpoint_bench FOLDER [GIB...]\n");
    return 2;
  }
  try {
    std::vector<double> sizes;
    for (int argument = 2; argument < argc; ++argument) sizes.push_back(std::atof(argv[argument]));
    if (sizes.empty()) sizes = {1, 4};
    for (const double gibibytes : sizes)
      flatshard_bench::measure(argv[1], static_cast<flatshard::Bytes>(gibibytes * double{1 << 30}));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "checkpoint_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
