// Texts between ranks over a Communicator, whose collectives need device memory.
#pragma once

#include <flatshard/checkpoint/commit.hpp>
#include <flatshard/comm/communicator.hpp>
#include <flatshard/core/device.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace flatshard::detail {

/// Communicator and device must outlive it. Calls block; one thread at a time.
class CommunicatorAgreement final : public RankAgreement {
 public:
  CommunicatorAgreement(Communicator& communicator, Device& device)
      : communicator_(communicator), device_(device), stream_(device.make_stream()) {}

  Rank rank() const override { return communicator_.rank(); }
  int size() const override { return communicator_.size(); }
  std::vector<std::string> all_gather(const std::string& text) override;
  /// Rank 0's text, on every rank.
  std::string from_rank_0(const std::string& text);

 private:
  /// (size) equal parts, one of each rank.
  std::string gather_equal(const char* data, Bytes bytes);

  Communicator& communicator_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
};

/// Local work whose failure all ranks must hear of before they go on.
class SharedFailure {
 public:
  /// Messages begin with "<call>: rank r: ".
  SharedFailure(RankAgreement& ranks, std::string call) : ranks_(ranks), call_(std::move(call)) {}
  /// Calls `work` unless an earlier one failed; keeps what it throws.
  void run(const std::function<void()>& work) noexcept;
  bool failed() const { return failure_.has_value(); }
  /// Collective. Throws CheckpointError, alike on all ranks, if any failed.
  void agree();

 private:
  RankAgreement& ranks_;
  std::string call_;
  std::optional<std::string> failure_;
};

}  // namespace flatshard::detail
