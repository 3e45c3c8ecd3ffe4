// Copies between a GPU and its host: plain, and by units as the engine makes them.
#pragma once

#include <flatshard/flatshard.hpp>

#include <memory>

namespace flatshard_bench {

using namespace flatshard;  // NOLINT: a program

inline constexpr int units = 32;

/// Gradients that come down and bf16 parameters that go up, in equal parts.
struct Link {
  Link(CudaDevice& on_device, Elements unit_size, Bytes gradient_bytes)
      : device(on_device),
        down_bytes(unit_size * gradient_bytes),
        up_bytes(unit_size * 2),
        on_device_(device.memory(), units * (down_bytes + up_bytes)),
        on_host_(device.host_memory(), units * (down_bytes + up_bytes)) {}

  /// One copy each way at once. `ways`: 1 down, 2 up, 3 both.
  void start(int ways) {
    if ((ways & 1) != 0) device.copy(there(0), here(0), units * down_bytes, *down);
    if ((ways & 2) != 0)
      device.copy(here(units * down_bytes), there(units * down_bytes), units * up_bytes, *up);
  }
  void finish() {
    down->synchronize();
    up->synchronize();
  }
  void plain(int ways) {
    start(ways);
    finish();
  }
  /// As the engine does: each part comes down, the lane looks at it, its copy goes up.
  void by_units() {
    for (int unit = 0; unit < units; ++unit) {
      device.copy(there(unit * down_bytes), here(unit * down_bytes), down_bytes, *down);
      down->record(*arrived);
      lane->wait(*arrived);
      lane->record(*made);
      up->wait(*made);
      const Bytes place = units * down_bytes + unit * up_bytes;
      device.copy(here(place), there(place), up_bytes, *up);
    }
    finish();
  }

  CudaDevice& device;
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
