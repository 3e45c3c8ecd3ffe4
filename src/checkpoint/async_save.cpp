#include <flatshard/checkpoint/async_save.hpp>
#include <flatshard/core/error.hpp>

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

#include "save_parts.hpp"

namespace flatshard {

namespace detail {

/// A thread that does one thing and keeps what it throws. join() rethrows it.
class Background {
 public:
  ~Background() {
    if (thread_.joinable()) thread_.join();
  }
  void start(std::function<void()> work) {
    done_ = false;
    thread_ = std::thread([this, work = std::move(work)] {
      try {
        work();
      } catch (...) {
        error_ = std::current_exception();
      }
      done_ = true;
    });
  }
  bool is_done() const { return done_; }
  void join() {
    if (thread_.joinable()) thread_.join();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  std::atomic<bool> done_{true};
  std::exception_ptr error_;  // of the thread, read after join
  std::thread thread_;
};

}  // namespace detail

namespace {

using detail::SaveLayout;
using detail::WriteJob;

constexpr Elements block_of(const WriteJob& job, Bytes block_bytes) {
  return std::max<Elements>(1, block_bytes / size_of(job.into.dtype));
}

Bytes sum_of(const std::vector<WriteJob>& jobs) {
  Bytes sum = 0;
  for (const WriteJob& job : jobs) sum += job.bytes();
  return sum;
}

}  // namespace

Bytes snapshot_bytes(const Plan& plan, const Model& model, const Optimizer& optimizer, Rank rank,
                     const SaveOptions& options) {
  const auto names = optimizer.state_names();
  const std::vector<std::string_view> views{names.begin(), names.end()};
  return sum_of(detail::jobs_of(detail::plan_save(plan, model, views, options), plan, model, rank));
}

class AsyncSaver::Parts {
 public:
  Parts(Engine& engine, const SaveOptions& options)
      : engine_(engine),
        options_(options),
        layout_(detail::plan_save(engine, options)),
        jobs_(
            detail::jobs_of(layout_, engine.plan(), engine.model(), engine.communicator().rank())),
        communicator_(engine.communicator().split(0, engine.communicator().rank())),
        training_(engine.communicator(), engine.device()),
        agreement_(*communicator_, engine.device()),
        staging_(engine.device(), options.block_bytes),
        snapshot_(engine.device().host_memory(), sum_of(jobs_)) {}

  void begin(const std::vector<std::pair<std::string, std::string>>& user);
  std::optional<SaveReport> finish();
  bool in_flight() const { return save_ != nullptr; }
  /// Collective.
  bool is_written_everywhere();

 private:
  /// What belongs to the save in flight.
  struct Save {
    Save(const SaveLayout& layout, Manifest described, MemoryResource& memory,
         const SaveOptions& options)
        : manifest(std::move(described)), writer(layout, memory, options) {
      writer.reserve();  // not while training goes on
    }
    Manifest manifest;
    detail::RangeWriter writer;
    std::unique_ptr<Commit> commit;
    std::string path;
  };

  bool agrees_in_background() const { return communicator_->any_thread(); }
  void copy();
  void write(Save& save);
  void publish(Save& save);

  Engine& engine_;
  SaveOptions options_;
  SaveLayout layout_;
  std::vector<WriteJob> jobs_;
  std::unique_ptr<Communicator> communicator_;
  detail::CommunicatorAgreement training_;   // for the training thread alone
  detail::CommunicatorAgreement agreement_;  // for whoever has the save in hand
  detail::Staging staging_;
  Buffer snapshot_;
  std::unique_ptr<Save> save_;
  detail::Background background_;  // last: it ends before what it uses
};

void AsyncSaver::Parts::begin(const std::vector<std::pair<std::string, std::string>>& user) {
  engine_.begin_state_read("AsyncSaver::save()");
  if (!user.empty()) options_.user = user;
  auto save = std::make_unique<Save>(layout_, detail::describe(engine_, options_),
                                     engine_.device().host_memory(), options_);
  save->commit = std::make_unique<Commit>(
      agreement_, detail::commit_options(options_, layout_, save->manifest.step),
      detail::operations_of(options_));
  save->commit->run([&](const Folder& stage) {
    if (agreement_.rank() == 0) save->writer.create(stage);
    copy();
  });
  save->commit->agree();
  save_ = std::move(save);
  background_.start([this, running = save_.get()] {
    write(*running);
    if (agrees_in_background()) publish(*running);
  });
}

void AsyncSaver::Parts::copy() {
  auto* into = static_cast<std::byte*>(snapshot_.data());
  for (const WriteJob& job : jobs_) {
    const DType from = job.piece.dtype, to = job.into.dtype;
    const std::byte* source = detail::address_of(engine_, job.piece);
    const Elements most = from == to ? job.piece.count : staging_.block_elements(from, to);
    detail::for_each_block(job.piece.count, most, [&](Elements first, Elements count) {
      staging_.fetch_into(source + first * size_of(from), from, into + first * size_of(to), to,
                          count);
    });
    into += job.bytes();
  }
}

void AsyncSaver::Parts::write(Save& save) {
  save.commit->run([&](const Folder& stage) {
    const auto* from = static_cast<const std::byte*>(snapshot_.data());
    for (const WriteJob& job : jobs_) {
      const Bytes size = size_of(job.into.dtype);
      detail::for_each_block(job.piece.count, block_of(job, options_.block_bytes),
                             [&](Elements first, Elements count) {
                               save.writer.write(
                                   stage, job, first,
                                   {from + first * size, static_cast<std::size_t>(count * size)});
                             });
      from += job.bytes();
    }
    save.writer.finish();
  });
}

void AsyncSaver::Parts::publish(Save& save) {
  save.path = save.commit->publish([&](const Folder&) {
    const auto texts = agreement_.all_gather(detail::to_text(save.writer.digests()));
    return detail::with_files(save.manifest, layout_, detail::digests_from(texts));
  });
}

bool AsyncSaver::Parts::is_written_everywhere() {
  const std::string own = background_.is_done() ? "1" : "0";
  for (const std::string& other : training_.all_gather(own))
    if (other != "1") return false;
  return true;
}

std::optional<SaveReport> AsyncSaver::Parts::finish() {
  if (!in_flight()) return std::nullopt;
  const std::unique_ptr<Save> save = std::move(save_);
  background_.join();
  if (!agrees_in_background()) publish(*save);
  return SaveReport{save->path, save->commit->warnings()};
}

AsyncSaver::AsyncSaver(Engine& engine, const SaveOptions& options) {
  FLATSHARD_EXPECTS(options.writers == Writers::EveryRank,
                    "AsyncSaver: Writers::RankZero would need collectives for every block, which a "
                    "background thread cannot issue beside training");
  parts_ = std::make_unique<Parts>(engine, options);
}

AsyncSaver::~AsyncSaver() = default;

void AsyncSaver::save(const std::vector<std::pair<std::string, std::string>>& user) {
  wait();
  parts_->begin(user);
}

std::optional<SaveReport> AsyncSaver::poll() {
  if (!parts_->in_flight() || !parts_->is_written_everywhere()) return std::nullopt;
  return wait();
}

std::optional<SaveReport> AsyncSaver::wait() { return parts_->finish(); }

}  // namespace flatshard
