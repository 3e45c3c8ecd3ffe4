#include <flatshard/io/faulty_transfer_queue.hpp>

#include <algorithm>

namespace flatshard {
namespace {

void flip_bit(const Transfer& transfer) { *transfer.data ^= std::byte{1}; }

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
    submit_flipped(transfer);
  }
}

void FaultyTransferQueue::submit_flipped(const Transfer& transfer) {
  Flipping& flipping = to_flip_.emplace_back(Flipping{transfer, {}});
  if (transfer.kind == Transfer::Kind::Write) {
    flipping.copy = Buffer(memory_, transfer.bytes);
    auto* const copy = static_cast<std::byte*>(flipping.copy.data());
    std::copy_n(transfer.data, transfer.bytes, copy);
    flipping.transfer.data = copy;
    flip_bit(flipping.transfer);
  }
  inner_->submit({&flipping.transfer, 1});
}

void FaultyTransferQueue::settle(const TransferResult& result) {
  const auto found = std::find_if(to_flip_.begin(), to_flip_.end(),
                                  [&](const Flipping& f) { return f.transfer.id == result.id; });
  if (found == to_flip_.end()) return;
  if (found->transfer.kind == Transfer::Kind::Read && result.moved > 0) flip_bit(found->transfer);
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
