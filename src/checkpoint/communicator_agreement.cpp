#include "communicator_agreement.hpp"

#include <flatshard/core/buffer.hpp>

#include <algorithm>
#include <cstring>

namespace flatshard::detail {

std::string CommunicatorAgreement::gather_equal(const char* data, Bytes bytes) {
  const auto total = static_cast<std::size_t>(bytes) * static_cast<std::size_t>(size());
  std::string all(total, '\0');
  const Buffer buffer(device_.memory(), static_cast<Bytes>(total));
  auto* own = static_cast<std::byte*>(buffer.data()) + rank() * bytes;
  device_.copy(data, own, bytes, *stream_);
  communicator_.all_gather("checkpoint", own, buffer.data(), bytes, DType::UInt8, *stream_);
  device_.copy(buffer.data(), all.data(), static_cast<Bytes>(total), *stream_);
  stream_->synchronize();
  return all;
}

std::vector<std::string> CommunicatorAgreement::all_gather(const std::string& text) {
  const auto own = static_cast<std::int64_t>(text.size());
  const std::string lengths = gather_equal(reinterpret_cast<const char*>(&own), sizeof own);
  std::vector<std::int64_t> length(static_cast<std::size_t>(size()));
  std::memcpy(length.data(), lengths.data(), lengths.size());
  const std::int64_t longest = *std::max_element(length.begin(), length.end());
  std::string padded = text;
  padded.resize(static_cast<std::size_t>(longest));
  const std::string all = gather_equal(padded.data(), longest);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < length.size(); ++rank)
    texts.push_back(all.substr(rank * static_cast<std::size_t>(longest),
                               static_cast<std::size_t>(length[rank])));
  return texts;
}

std::string CommunicatorAgreement::from_rank_0(const std::string& text) {
  return all_gather(rank() == 0 ? text : std::string()).front();
}

namespace {

// Before a message that names its rank already, and before one that does not.
constexpr char complete = '=', local = '-';

}  // namespace

void SharedFailure::run(const std::function<void()>& work) noexcept {
  if (failure_) return;
  try {
    work();
  } catch (const CheckpointError& error) {
    failure_ = complete + std::string(error.what());
  } catch (const std::exception& error) {
    failure_ = local + std::string(error.what());
  } catch (...) {
    failure_ = local + std::string("an exception that is no std::exception");
  }
}

void SharedFailure::agree() {
  const std::vector<std::string> all = ranks_.all_gather(failure_.value_or(""));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const std::string message = all[rank].substr(1);
    if (all[rank][0] == complete) throw CheckpointError(message);
    throw CheckpointError(call_ + ": rank " + std::to_string(rank) + ": " + message);
  }
}

}  // namespace flatshard::detail
