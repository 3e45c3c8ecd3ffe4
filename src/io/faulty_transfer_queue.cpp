#include <flatshard/io/faulty_transfer_queue.hpp>

#include <algorithm>

namespace flatshard {
namespace {

void flip_bit(const Transfer& transfer) { *transfer.data ^= std::byte{1}; }

bool is_write(const Transfer& transfer) { return transfer.kind == Transfer::Kind::Write; }

}  // namespace

FaultyTransferQueue::FaultyTransferQueue(std::unique_ptr<TransferQueue> inner,
                                         TransferFaults faults)
    : inner_(std::move(inner)), faults_(faults) {}

bool FaultyTransferQueue::goes_wrong() {
  const std::int64_t number = ++transfers_;
  if (faults_.transfer == 0) return false;
  return number == faults_.transfer || (faults_.sticky && number > faults_.transfer);
}

void FaultyTransferQueue::submit(std::span<const Transfer> transfers) noexcept {
  for (const Transfer& transfer : transfers) {
    if (goes_wrong())
      submit_faulty(transfer);
    else
      inner_->submit({&transfer, 1});
  }
}

void FaultyTransferQueue::submit_faulty(const Transfer& transfer) {
  using Kind = TransferFaults::Kind;
  if (faults_.kind == Kind::Error) {
    made_up_.push_back({transfer.id, -faults_.code});
  } else if (faults_.kind == Kind::Nothing) {
    made_up_.push_back({transfer.id, 0});
  } else if (faults_.kind == Kind::Lost) {
    made_up_.push_back({transfer.id, transfer.bytes});
  } else if (faults_.kind == Kind::ShortCount) {
    Transfer half = transfer;
    half.bytes = std::max<Bytes>(transfer.bytes / 2, 1);
    inner_->submit({&half, 1});
  } else {
    if (is_write(transfer)) flip_bit(transfer);
    to_flip_.push_back(transfer);
    inner_->submit({&transfer, 1});
  }
}

// The memory of a write gets its bit back.
void FaultyTransferQueue::settle(const TransferResult& result) {
  const auto found = std::find_if(to_flip_.begin(), to_flip_.end(),
                                  [&](const Transfer& t) { return t.id == result.id; });
  if (found == to_flip_.end()) return;
  if (is_write(*found) || result.moved > 0) flip_bit(*found);
  to_flip_.erase(found);
}

std::size_t FaultyTransferQueue::wait(std::span<TransferResult> results) noexcept {
  if (!made_up_.empty()) {
    results[0] = made_up_.back();
    made_up_.pop_back();
    return 1;
  }
  const std::size_t count = inner_->wait(results);
  for (const TransferResult& result : results.first(count)) settle(result);
  return count;
}

}  // namespace flatshard
