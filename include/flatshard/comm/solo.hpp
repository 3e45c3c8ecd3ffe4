// One rank alone: collectives without anybody to talk to.
#pragma once

#include <flatshard/comm/communicator.hpp>
#include <flatshard/core/device.hpp>
#include <flatshard/ops/kernel_table.hpp>

#include <array>
#include <string>

namespace flatshard {

/// A communicator of size 1 on any device: every collective is a copy or a cast by `kernels` on the
/// given stream, and nothing at all in place. `kernels` must outlive it and its parts.
class Solo final : public Communicator {
 public:
  /// Copies and casts by `kernels`.
  explicit Solo(const KernelTable& kernels) : kernels_(kernels) {}
  /// On this device, which Sharders then take for their own.
  explicit Solo(Device& device) : kernels_(device.kernels()), device_(&device) {}

  Rank rank() const override { return 0; }
  int size() const override { return 1; }
  std::span<const Rank> members() const override { return members_; }
  bool canonical_reduction() const override { return true; }
  Device* device() const override { return device_; }
  bool any_thread() const override { return true; }
  void all_gather(std::string_view label, const void* send, void* receive, Elements count,
                  DType dtype, StreamRef stream) override;
  void reduce_scatter(std::string_view label, const void* send, void* receive, Elements count,
                      DType contribution, DType result, StreamRef stream) override;
  void all_reduce(std::string_view label, const void* send, void* receive, Elements count,
                  DType contribution, DType result, StreamRef stream) override;
  void broadcast(std::string_view label, void* data, Elements count, DType dtype, Rank root,
                 StreamRef stream) override;
  /// A Solo again. It shares no failure with this one.
  std::unique_ptr<Communicator> split(int color, int key) override;
  void synchronize() override;
  void abort(std::string_view message) noexcept override;

 private:
  void check() const;
  void move(const void* send, void* receive, Elements count, DType from, DType to,
            StreamRef stream);

  const KernelTable& kernels_;
  Device* device_ = nullptr;
  std::array<Rank, 1> members_{0};
  bool aborted_ = false;
  std::string abort_message_;
};

}  // namespace flatshard
