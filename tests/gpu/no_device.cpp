// Linked into GPU tests: where there is no device, the program ends before main with the status
// that Meson takes for "skipped".
#include <flatshard/core/cuda_device.hpp>

#include <cstdio>
#include <cstdlib>

namespace {

struct SkipWithoutDevice {
  SkipWithoutDevice() {
    if (flatshard::cuda_device_count() > 0) return;
    std::puts("skipped: this process can use no CUDA device");
    std::fflush(stdout);
    std::_Exit(77);
  }
};

const SkipWithoutDevice skip;

}  // namespace
