// A disk that fails: a typed error on every rank, and no update from bad data, wherever it happens.
#include <doctest/doctest.h>
#include <flatshard/core/error.hpp>
#include <flatshard/io/faulty_transfer_queue.hpp>
#include <flatshard/io/io_error.hpp>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "offload.hpp"
#include "random.hpp"
#include "scratch_folder.hpp"

using namespace sharder_test;
using flatshard_test::ScratchFolder;

namespace {

constexpr int steps = 3;
using Slices = std::vector<std::vector<std::byte>>;  // masters and states, by flat

/// A training of two ranks of which one has a disk that fails.
struct Failing {
  StrategyName strategy = StrategyName::FullShard;
  OffloadTraits offload{Tier::Nvme, Tier::Nvme};
  IoBackend backend = IoBackend::Threads;
  StreamForm form = StreamForm::Threaded;
  bool in_backward = false;
  TransferFaults faults = {};
  int file = 0;  // 0: the first that the rank opens, 1: the second
};

/// Passes transfers on and counts them.
class CountingQueue final : public TransferQueue {
 public:
  CountingQueue(std::unique_ptr<TransferQueue> inner, std::atomic<std::int64_t>& count)
      : inner_(std::move(inner)), count_(count) {}
  IoBackend backend() const override { return inner_->backend(); }
  int depth() const override { return inner_->depth(); }
  void submit(std::span<const Transfer> transfers) noexcept override {
    count_ += static_cast<std::int64_t>(transfers.size());
    inner_->submit(transfers);
  }
  std::size_t wait(std::span<TransferResult> results) noexcept override {
    return inner_->wait(results);
  }

 private:
  std::unique_ptr<TransferQueue> inner_;
  std::atomic<std::int64_t>& count_;
};

/// What one rank saw.
struct Seen {
  std::string error;          // what() of what ended it; empty: nothing did
  bool is_typed = false;      // of the disk
  bool stays_broken = true;   // a rank whose own disk failed says so again
  int done = 0;               // steps that returned
  std::vector<Slices> after;  // at the end, or, of rank 0, once what failed was discarded
};

Slices slices_of(Engine& engine) {
  Slices slices;
  engine.begin_state_read("slices_of()");
  for (std::size_t index = 0; index < engine.plan().flats.size(); ++index) {
    const Flat& flat = engine.plan().flats[index];
    const FlatState state = engine.flat_state(static_cast<int>(index));
    std::vector<std::byte>& bytes = slices.emplace_back();
    if (flat.is_empty() || !flat.requires_grad) continue;
    const auto append = [&](const std::byte* data, DType dtype) {
      bytes.insert(bytes.end(), data, data + flat.partition.slice() * size_of(dtype));
    };
    append(state.master, flat.master);
    for (const std::byte* values : state.states) append(values, flat.state);
  }
  return slices;
}

Options options_of(const Failing& failing, const std::string& folder, HostDevice& device) {
  Options options;
  options.device = &device;
  options.groups = {{}, {}};
  options.offload = failing.offload;
  options.max_micro_steps = 2;
  options.max_grad_norm = failing.in_backward ? 0 : 0.5;
  options.step_in_backward = failing.in_backward;
  options.nvme.folder = folder;
  options.nvme.backend = failing.backend;
  options.nvme.block_bytes = 4096;
  options.nvme.queue_depth = 3;
  return options;
}

void run_step(Trainer& trainer, const TestModel& test, int step) {
  for (int index = 0; index < 2; ++index) {
    trainer.micro_step(index == 1);
    run_micro_step(trainer, test, step, trainer.micro_batch(index, 2));
  }
  trainer.step();
}

void run_steps(Trainer& trainer, const TestModel& test, Seen& seen) {
  trainer.initialize(init::normal{0.5, 1});
  for (; seen.done < steps; ++seen.done) run_step(trainer, test, seen.done);
  trainer.engine().synchronize();
  seen.after.push_back(slices_of(trainer.engine()));  // what was written last is read, too
}

/// Does the engine refuse to go on with what the disk failed with?
bool says_so_again(Engine& engine) {
  try {
    engine.prefetch(0);
  } catch (const IoError&) {
    return true;
  }
  return false;
}

void run_rank(const Failing& failing, Communicator& communicator, const std::string& folder,
              Seen& seen, std::array<std::atomic<std::int64_t>, 2>* counts) {
  const TestModel test;
  HostDevice device({.form = failing.form});
  Options options = options_of(failing, folder, device);
  int files = 0;
  if (communicator.rank() == 1)
    options.nvme.decorate = [&](std::unique_ptr<TransferQueue> queue) {
      const int file = files++;
      if (counts != nullptr)
        queue = std::make_unique<CountingQueue>(std::move(queue),
                                                (*counts)[static_cast<std::size_t>(file)]);
      if (file != failing.file) return queue;
      return std::unique_ptr<TransferQueue>(
          std::make_unique<FaultyTransferQueue>(std::move(queue), failing.faults));
    };
  const auto trainer = make_trainer(failing.strategy, PrecisionName::Bf16Mixed, communicator,
                                    test.model, AdamW{.lr = 1e-2}, options);
  try {
    run_steps(*trainer, test, seen);
    communicator.synchronize();  // a rank that is done hears of the others too
    return;
  } catch (const IoError& error) {  // an IntegrityError is one
    seen.error = error.what();
    seen.is_typed = true;
  } catch (const std::exception& error) {
    seen.error = error.what();
  }
  if (seen.is_typed) seen.stays_broken = says_so_again(trainer->engine());
  for (int attempt = 0; communicator.rank() == 0 && seen.after.empty() && attempt < 8; ++attempt) {
    try {
      trainer->discard_step();
      seen.after.push_back(slices_of(trainer->engine()));
    } catch (const Error&) {  // of a stream, which throws it once
    }
  }
  throw Error(seen.error);
}

std::array<Seen, 2> run(const Failing& failing,
                        std::array<std::atomic<std::int64_t>, 2>* counts = nullptr) {
  const ScratchFolder folder;
  std::array<Seen, 2> seen;
  try {
    ThreadWorld(2, {.patience = std::chrono::seconds(20)}).run([&](Communicator& communicator) {
      run_rank(failing, communicator, folder.path(),
               seen[static_cast<std::size_t>(communicator.rank())], counts);
    });
  } catch (const Error&) {  // what the ranks saw
  }
  return seen;
}

std::vector<IoBackend> backends() {
  std::vector<IoBackend> found{IoBackend::Threads};
  if (make_transfer_queue({}, 1).queue->backend() == IoBackend::Uring)
    found.push_back(IoBackend::Uring);
  return found;
}

/// Masters and states after 0, 1, ... steps on each rank, without a disk; and how many transfers
/// rank 1 makes of each file.
struct Expected {
  std::array<std::vector<Slices>, 2> states;
  std::array<std::int64_t, 2> transfers;
};

/// Units are updated in one order, so a step that failed was made by the first of them, if by any.
bool is_at(const Slices& found, const std::vector<Slices>& states, int made) {
  const auto before = static_cast<std::size_t>(made);
  const std::size_t after = std::min(before + 1, states.size() - 1);
  for (std::size_t flat = 0; flat < found.size(); ++flat)
    if (found[flat] != states[before][flat] && found[flat] != states[after][flat]) return false;
  return true;
}

/// Rank 0 has what its finished steps made, and perhaps a part of the next. Streams with threads
/// let step() return before what it issued has run: of the last that returned, which then failed,
/// it may have a part only. An earlier one has ended: step() waits for that.
void check_updates(const Seen& seen, const std::vector<Slices>& states, StreamForm form) {
  REQUIRE(seen.after.size() == 1);
  const int least = form == StreamForm::Inline ? seen.done : std::max(0, seen.done - 1);
  bool is_right = false;
  for (int made = least; made <= seen.done; ++made)
    is_right = is_right || is_at(seen.after[0], states, made);
  CHECK_MESSAGE(is_right, "after " << seen.done << " steps");
}

std::array<std::vector<Slices>, 2> states_without_disk(const Failing& failing) {
  std::array<std::vector<Slices>, 2> states;
  ThreadWorld(2).run([&](Communicator& communicator) {
    std::vector<Slices>& mine = states[static_cast<std::size_t>(communicator.rank())];
    const TestModel test;
    HostDevice device;
    Options options = options_of(failing, {}, device);
    options.offload = none;
    const auto trainer = make_trainer(failing.strategy, PrecisionName::Bf16Mixed, communicator,
                                      test.model, AdamW{.lr = 1e-2}, options);
    trainer->initialize(init::normal{0.5, 1});
    mine.push_back(slices_of(trainer->engine()));
    for (int step = 0; step < steps; ++step) {
      run_step(*trainer, test, step);
      trainer->engine().synchronize();
      mine.push_back(slices_of(trainer->engine()));
    }
  });
  return states;
}

/// Both ranks ended with the bits of all steps.
void check_final(const std::array<Seen, 2>& seen, const Expected& expected) {
  for (std::size_t rank = 0; rank < seen.size(); ++rank) {
    INFO("rank ", rank);
    REQUIRE(seen[rank].after.size() == 1);
    CHECK(seen[rank].after[0] == expected.states[rank].back());
  }
}

Expected expected_of(Failing failing) {
  failing.faults = {};
  std::array<std::atomic<std::int64_t>, 2> counts{};
  const auto seen = run(failing, &counts);
  Expected expected{states_without_disk(failing), {counts[0], counts[1]}};
  REQUIRE(seen[0].error.empty());
  check_final(seen, expected);
  for (const std::vector<Slices>& states : expected.states)
    for (std::size_t step = 1; step < states.size(); ++step)
      CHECK(states[step] != states[step - 1]);
  return expected;
}

/// A fault that the store repairs, or that hits what is never read again, changes nothing: both
/// ranks then end with the bits of a run without it.
void check(const Failing& failing, const Expected& expected) {
  const auto seen = run(failing);
  INFO(name_of(failing.strategy), " ", to_string(failing.offload), " ",
       std::string(to_string(failing.backend)),
       std::string(failing.in_backward ? " in backward" : ""), " file ", failing.file, " transfer ",
       failing.faults.transfer, " kind ", static_cast<int>(failing.faults.kind));
  INFO("rank 0: ", seen[0].error);
  INFO("rank 1: ", seen[1].error);
  const bool failed = !seen[1].error.empty();
  CHECK(seen[0].error.empty() == !failed);
  if (!failed) return check_final(seen, expected);
  CHECK(seen[1].is_typed);
  CHECK(seen[1].stays_broken);
  CHECK(contains(seen[0].error, "rank 1"));
  CHECK(contains(seen[0].error, "flatshard-slots-"));  // the same message
  check_updates(seen[0], expected.states[0], failing.form);
}

constexpr std::array kinds{TransferFaults::Kind::Error, TransferFaults::Kind::ShortCount,
                           TransferFaults::Kind::Nothing, TransferFaults::Kind::FlippedBit,
                           TransferFaults::Kind::Lost};

}  // namespace

TEST_CASE("NVMe: a fault at any transfer is a typed error on all ranks and no wrong update") {
  auto random = flatshard_test::generator(44);
  const char* every = std::getenv("FLATSHARD_TEST_EVERY");
  const std::int64_t stride = every == nullptr ? 0 : std::max(1, std::atoi(every));
  for (const IoBackend backend : backends())
    for (const OffloadTraits& offload : nvme_offloads)
      for (const bool in_backward : {false, true}) {
        Failing failing;
        failing.backend = backend;
        failing.offload = offload;
        failing.in_backward = in_backward;
        failing.strategy =
            random() % 2 == 0 ? StrategyName::FullShard : StrategyName::ShardOptimizer;
        failing.form = random() % 3 == 0 ? StreamForm::Inline : StreamForm::Threaded;
        const Expected expected = expected_of(failing);
        CHECK(expected.transfers[0] > 0);
        const int files = expected.transfers[1] > 0 ? 2 : 1;
        const auto check_at = [&](int file, TransferFaults::Kind kind, std::int64_t transfer) {
          failing.file = file;
          failing.faults = {.transfer = transfer,
                            .kind = kind,
                            .code = random() % 2 == 0 ? EIO : ENOSPC,
                            .sticky = random() % 4 == 0};
          check(failing, expected);
        };
        for (int file = 0; file < files; ++file) {
          const std::int64_t transfers = expected.transfers[static_cast<std::size_t>(file)];
          if (every == nullptr)
            check_at(
                file, kinds[random() % kinds.size()],
                1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(transfers)));
          for (const TransferFaults::Kind kind : kinds)
            for (std::int64_t at = 1; stride > 0 && at <= transfers; at += stride)
              check_at(file, kind, at);
        }
      }
}
