// Copies between a GPU and its host: plain, and in pieces between which a host lane stands.
#pragma once

#include <flatshard/flatshard.hpp>

#include <memory>

namespace flatshard_bench {

using namespace flatshard;  // NOLINT: a program

/// Of the model: units, parameters of each.
struct Size {
  int units;
  Elements unit;
  Elements update_part;  // Options::update_part
};

/// Gradients that come down and bf16 parameters that go up, in equal parts.
struct Link {
  Link(CudaDevice& on_device, const Size& size, Bytes gradient_bytes)
      : device(on_device),
        units(size.units),
        down_bytes(size.unit * gradient_bytes),
        up_bytes(size.unit * 2),
        on_device_(device.memory(), units * (down_bytes + up_bytes)),
        on_host_(device.host_memory(), units * (down_bytes + up_bytes)) {
    device.kernels().zero(on_device_.data(), units * (down_bytes + up_bytes), *down);
  }

  /// One copy each way at once. `ways`: 1 down, 2 up, 3 both.
  void plain(int ways) {
    if ((ways & 1) != 0) device.copy(there(0), here(0), units * down_bytes, *down);
    if ((ways & 2) != 0)
      device.copy(here(units * down_bytes), there(units * down_bytes), units * up_bytes, *up);
    finish();
  }
  void finish() {
    down->synchronize();
    up->synchronize();
  }
  /// Bytes `at` of the gradients come down, before what the lane is given next.
  void bring(Bytes at, Bytes bytes, void* to) {
    device.copy(there(at), to, bytes, *down);
    down->record(*arrived);
    lane->wait(*arrived);
  }
  /// What the lane has made goes up, to bytes `at` of the parameters.
  void send(const void* from, Bytes at, Bytes bytes) {
    lane->record(*made);
    up->wait(*made);
    device.copy(from, there(units * down_bytes + at), bytes, *up);
  }
  /// Each unit comes down; when the lane comes there, its copy goes up.
  void by_units() {
    for (int unit = 0; unit < units; ++unit) {
      bring(unit * down_bytes, down_bytes, here(unit * down_bytes));
      send(here(units * down_bytes + unit * up_bytes), unit * up_bytes, up_bytes);
    }
    finish();
  }

  CudaDevice& device;
  int units;
  Bytes down_bytes, up_bytes;
  std::unique_ptr<Stream> down = device.make_stream(), up = device.make_stream();
  std::unique_ptr<Stream> lane = device.make_host_side_stream();
  std::unique_ptr<Event> arrived = device.make_event(), made = device.make_event();

 private:
  std::byte* there(Bytes at) const { return static_cast<std::byte*>(on_device_.data()) + at; }
  std::byte* here(Bytes at) const { return static_cast<std::byte*>(on_host_.data()) + at; }
  Buffer on_device_, on_host_;
};

}  // namespace flatshard_bench
