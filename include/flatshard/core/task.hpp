// A move-only callable that never allocates: captures live inside it.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace flatshard {

/// Holds any callable `void()` of at most `capacity` bytes; a larger one does not compile.
class Task {
 public:
  static constexpr std::size_t capacity = 256;  // bytes of captures

  Task() = default;
  /// Moves or copies the callable into the task.
  template <class Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, Task>)
      Task(Callable&& callable) {  // NOLINT: implicit by design
    using Stored = std::remove_cvref_t<Callable>;
    static_assert(sizeof(Stored) <= capacity, "Task: captures exceed Task::capacity bytes");
    static_assert(alignof(Stored) <= alignof(std::max_align_t), "Task: over-aligned captures");
    ::new (static_cast<void*>(storage_)) Stored(std::forward<Callable>(callable));
    operate_ = [](Operation operation, void* self, void* other) {
      auto* stored = static_cast<Stored*>(self);
      if (operation == Operation::Run) (*stored)();
      if (operation == Operation::MoveTo) ::new (other) Stored(std::move(*stored));
      if (operation != Operation::Run) stored->~Stored();
    };
  }
  Task(Task&& other) noexcept { take(other); }  // leaves the other empty
  /// Destroys what it held.
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      clear();
      take(other);
    }
    return *this;
  }
  ~Task() { clear(); }

  /// False: empty.
  explicit operator bool() const { return operate_ != nullptr; }
  /// Calls what it holds; not to be called when empty.
  void operator()() { operate_(Operation::Run, storage_, nullptr); }

 private:
  enum class Operation { Run, MoveTo, Destroy };

  void take(Task& other) noexcept {
    if (other.operate_ == nullptr) return;
    other.operate_(Operation::MoveTo, other.storage_, storage_);
    operate_ = std::exchange(other.operate_, nullptr);
  }
  void clear() noexcept {
    if (operate_ != nullptr)
      std::exchange(operate_, nullptr)(Operation::Destroy, storage_, nullptr);
  }

  alignas(std::max_align_t) std::byte storage_[capacity];
  void (*operate_)(Operation, void*, void*) = nullptr;
};

}  // namespace flatshard
