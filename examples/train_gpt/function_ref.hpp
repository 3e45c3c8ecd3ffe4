#pragma once

#include <memory>
#include <type_traits>

namespace train_gpt {

template <class Signature>
class FunctionRef;

/// A callable that somebody else owns and that outlives this; never allocates.
template <class... Arguments>
class FunctionRef<void(Arguments...)> {
 public:
  template <class Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef>)
      FunctionRef(Callable& callable)  // NOLINT: implicit by design
      : callable_(std::addressof(callable)), call_([](const void* stored, Arguments... arguments) {
          (*static_cast<const Callable*>(stored))(arguments...);
        }) {}
  void operator()(Arguments... arguments) const { call_(callable_, arguments...); }

 private:
  const void* callable_;
  void (*call_)(const void*, Arguments...);
};

}  // namespace train_gpt
