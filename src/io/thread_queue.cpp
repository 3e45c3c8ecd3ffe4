#include <flatshard/io/io_error.hpp>

#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "fixed_ring.hpp"
#include "transfer_queues.hpp"

namespace flatshard::detail {
namespace {

class ThreadQueue final : public TransferQueue {
 public:
  ThreadQueue(int depth, FileOperations& operations)
      : operations_(operations),
        depth_(depth),
        pending_(static_cast<std::size_t>(depth)),
        results_(static_cast<std::size_t>(depth)) {
    threads_.reserve(static_cast<std::size_t>(depth));
    start();
  }
  ~ThreadQueue() override { stop(); }

  IoBackend backend() const override { return IoBackend::Threads; }
  int depth() const override { return depth_; }

  void submit(std::span<const Transfer> transfers) noexcept override {
    {
      const std::lock_guard hold(mutex_);
      for (const Transfer& transfer : transfers) pending_.push(transfer);
    }
    for (std::size_t n = 0; n < transfers.size(); ++n) has_work_.notify_one();
  }

  std::size_t wait(std::span<TransferResult> results) noexcept override {
    std::unique_lock hold(mutex_);
    has_results_.wait(hold, [this] { return !results_.empty(); });
    std::size_t count = 0;
    while (count < results.size() && !results_.empty()) results[count++] = results_.pop();
    return count;
  }

 private:
  void start() try {
    for (int n = 0; n < depth_; ++n) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    const std::size_t started = threads_.size();
    stop();
    throw IoError("start threads", "transfer queue", -1, error.code().value(),
                  std::to_string(started) + " of " + std::to_string(depth_));
  }

  /// What is pending is done before the threads end.
  void stop() noexcept {
    {
      const std::lock_guard hold(mutex_);
      stopped_ = true;
    }
    has_work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  void work() noexcept {
    std::unique_lock hold(mutex_);
    for (;;) {
      has_work_.wait(hold, [this] { return stopped_ || !pending_.empty(); });
      if (pending_.empty()) return;
      const Transfer transfer = pending_.pop();
      hold.unlock();
      const TransferResult result{transfer.id, move(transfer)};
      hold.lock();
      results_.push(result);
      has_results_.notify_one();
    }
  }

  std::int64_t move(const Transfer& transfer) {
    const auto bytes = static_cast<std::size_t>(transfer.bytes);
    if (transfer.kind == Transfer::Kind::Read)
      return operations_.pread(transfer.file, transfer.data, bytes, transfer.offset);
    return operations_.pwrite(transfer.file, transfer.data, bytes, transfer.offset);
  }

  FileOperations& operations_;
  int depth_;
  std::mutex mutex_;  // of all below, but the list of threads
  std::condition_variable has_work_, has_results_;
  FixedRing<Transfer> pending_;
  FixedRing<TransferResult> results_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<TransferQueue> make_thread_queue(int depth, FileOperations& operations) {
  return std::make_unique<ThreadQueue>(depth, operations);
}

}  // namespace flatshard::detail
