// A CUDA runtime for tests, on the host: streams are queues with threads of their own, device
// memory is host memory, NCCL's ranks are threads that meet in memory. The functions are those that
// the CUDA runtime's and NCCL's headers declare, in a shared library that takes the place of both;
// the kernels are replaced by host code (launchers.cpp, launch_steps.cpp). So the host code of the
// CUDA back end runs without a GPU, under the tests of tests/gpu. Whether the kernels and CUDA
// itself do what this takes for granted is for a GPU to say.
//
//   FLATSHARD_EMULATED_DEVICES  how many devices there are (2)
//   FLATSHARD_EMULATED_DELAYS   a seed: work begins late now and then (0: never)
//   FLATSHARD_EMULATED_QUEUES   queues that a device's streams share (0: each has its own)
//
// A stream that waits holds up those that share its queue, as streams of a GPU may.
//
// Here: a piece of a stream's work. Nothing uses operator new, whose calls tests count.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace emulated {

/// Memory by malloc.
template <class T>
struct Malloc {
  using value_type = T;
  Malloc() = default;
  template <class Other>
  Malloc(const Malloc<Other>&) {}  // NOLINT: implicit by design
  T* allocate(std::size_t count) {
    static_assert(alignof(T) <= alignof(std::max_align_t));
    void* const memory = std::malloc(count * sizeof(T));
    if (memory == nullptr) throw std::bad_alloc{};
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) { std::free(memory); }
  friend bool operator==(const Malloc&, const Malloc&) { return true; }
};

template <class T>
using Array = std::vector<T, Malloc<T>>;

template <class T, class... Arguments>
std::shared_ptr<T> make_shared(Arguments&&... arguments) {
  return std::allocate_shared<T>(Malloc<T>{}, std::forward<Arguments>(arguments)...);
}

/// A callable without arguments; copies share it. A graph calls it as often as it is launched.
class Work {
 public:
  template <class Function>
  explicit Work(Function function) : held_(make_shared<Holder<Function>>(std::move(function))) {}
  void run() const { held_->run(); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual void run() = 0;
  };
  template <class Function>
  struct Holder final : Base {
    explicit Holder(Function held) : function(std::move(held)) {}
    void run() override { function(); }
    Function function;
  };
  std::shared_ptr<Base> held_;
};

}  // namespace emulated
