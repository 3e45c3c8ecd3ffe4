// A communicator around another one: passes everything on. Decorators override what they add to.
#pragma once

#include <flatshard/comm/communicator.hpp>

#include <memory>
#include <utility>

namespace flatshard {

/// Either borrows the communicator within, which must outlive it, or owns it.
class CommunicatorDecorator : public Communicator {
 public:
  /// Borrows.
  explicit CommunicatorDecorator(Communicator& inner) : inner_(inner) {}
  /// Owns.
  explicit CommunicatorDecorator(std::unique_ptr<Communicator> inner)
      : owned_(std::move(inner)), inner_(*owned_) {}

  Rank rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::span<const Rank> members() const override { return inner_.members(); }
  bool canonical_reduction() const override { return inner_.canonical_reduction(); }
  bool any_thread() const override { return inner_.any_thread(); }
  Device* device() const override { return inner_.device(); }
  bool needs_scratch() const override { return inner_.needs_scratch(); }
  void lend_scratch(void* memory, Bytes bytes) override { inner_.lend_scratch(memory, bytes); }
  void all_gather(std::string_view label, const void* send, void* receive, Elements count,
                  DType dtype, StreamRef stream) override {
    inner_.all_gather(label, send, receive, count, dtype, stream);
  }
  void reduce_scatter(std::string_view label, const void* send, void* receive, Elements count,
                      DType contribution, DType result, StreamRef stream) override {
    inner_.reduce_scatter(label, send, receive, count, contribution, result, stream);
  }
  void all_reduce(std::string_view label, const void* send, void* receive, Elements count,
                  DType contribution, DType result, StreamRef stream) override {
    inner_.all_reduce(label, send, receive, count, contribution, result, stream);
  }
  void broadcast(std::string_view label, void* data, Elements count, DType dtype, Rank root,
                 StreamRef stream) override {
    inner_.broadcast(label, data, count, dtype, root, stream);
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return inner_.split(color, key);
  }
  void synchronize() override { inner_.synchronize(); }
  void abort(std::string_view message) noexcept override { inner_.abort(message); }

 protected:
  Communicator& inner() const { return inner_; }  // the one within
  /// Of the caller, in the world.
  Rank world_rank() const { return members()[static_cast<std::size_t>(rank())]; }

 private:
  std::unique_ptr<Communicator> owned_;  // null when borrowed
  Communicator& inner_;
};

}  // namespace flatshard
