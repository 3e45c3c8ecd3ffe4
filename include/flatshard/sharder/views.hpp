// What a user's forward and backward see: whole parameters and gradients, by handle.
#pragma once

#include <flatshard/core/error.hpp>
#include <flatshard/sharder/engine.hpp>
#include <flatshard/tensor/tensor_ref.hpp>

namespace flatshard {

namespace detail {

/// View of parameter memory that has `actual` elements; throws UsageError when asked for others.
template <class Element>
TensorRef<Element> typed_view(std::byte* data, const ParameterSpec& parameter, DType actual) {
  FLATSHARD_EXPECTS(actual == TensorRef<Element>::dtype(),
                    "parameter '" + parameter.name + "' is " + std::string(name_of(actual)) +
                        ", not " + std::string(name_of(TensorRef<Element>::dtype())) +
                        ": ask for it with get<Element>(parameter)");
  return {reinterpret_cast<Element*>(data), parameter.shape};
}

}  // namespace detail

/// Whole parameters in the compute dtype. Valid until the user's function returns (or the handle
/// that made it is destroyed); memory is the device's, ready in the order of the compute stream.
template <class Compute>
class Weights {
 public:
  /// Made by the Sharder.
  Weights(const Engine& engine, int module) : engine_(&engine), module_(module) {}

  /// The parameter, row-major, in its declared shape. Throws UsageError when it is not part of the
  /// called module or has another dtype.
  TensorRef<const Compute> operator[](Parameter parameter) const { return get<Compute>(parameter); }
  /// The same for a parameter whose compute dtype differs from the policy's.
  template <class Element>
  TensorRef<const Element> get(Parameter parameter) const {
    std::byte* data = engine_->weights(parameter.index, module_);
    const ParameterSpec& spec = engine_->parameter_spec(parameter.index);
    return detail::typed_view<const Element>(data, spec, engine_->compute_dtype(parameter.index));
  }

 private:
  const Engine* engine_;
  int module_;
};

/// Whole gradients in the compute dtype, to be added to: zero at first, then what earlier uses in
/// this micro-step left. Where backward promised to overwrite them
/// (ModuleOptions::backward_overwrites) they hold anything. Validity as Weights.
template <class Compute>
class Gradients {
 public:
  /// Made by the Sharder.
  Gradients(const Engine& engine, int module) : engine_(&engine), module_(module) {}

  /// The gradient in its parameter's shape. Throws UsageError as Weights does, and for a frozen
  /// one.
  TensorRef<Compute> operator[](Parameter parameter) const { return get<Compute>(parameter); }
  /// The same for a parameter whose compute dtype differs from the policy's.
  template <class Element>
  TensorRef<Element> get(Parameter parameter) const {
    std::byte* data = engine_->gradient(parameter.index, module_);
    const ParameterSpec& spec = engine_->parameter_spec(parameter.index);
    return detail::typed_view<Element>(data, spec, engine_->compute_dtype(parameter.index));
  }

 private:
  const Engine* engine_;
  int module_;
};

/// Whole parameters in master precision (frozen ones in the compute dtype), in memory of their own.
template <class Master>
class FullParameters {
 public:
  /// Made by the Sharder.
  FullParameters(const Engine& engine, const Summoned& summoned)
      : engine_(&engine), summoned_(&summoned) {}

  /// The parameter, row-major, in its declared shape. Throws UsageError when it was not summoned or
  /// has another master dtype.
  TensorRef<Master> operator[](Parameter parameter) const { return get<Master>(parameter); }
  /// The same for a parameter whose master dtype differs from the policy's.
  template <class Element>
  TensorRef<Element> get(Parameter parameter) const {
    const ParameterSpec& spec = engine_->parameter_spec(parameter.index);
    std::byte* data = summoned_->data(parameter.index);
    FLATSHARD_EXPECTS(data != nullptr,
                      "parameter '" + spec.name + "' is not part of the summoned module");
    return detail::typed_view<Element>(data, spec, engine_->master_dtype(parameter.index));
  }

 private:
  const Engine* engine_;
  const Summoned* summoned_;
};

/// Holds the parameters of a module whole; the destructor releases them. Move-only; the Sharder
/// must outlive it.
template <class Compute>
class Gathered {
 public:
  /// Made by Sharder::gather.
  Gathered(Engine& engine, int module) : engine_(&engine), module_(module) { engine.hold(module); }
  /// Leaves the other empty.
  Gathered(Gathered&& other) noexcept
      : engine_(std::exchange(other.engine_, nullptr)), module_(other.module_) {}
  /// Releases what it held.
  Gathered& operator=(Gathered&& other) noexcept {
    if (this != &other) {
      release();
      engine_ = std::exchange(other.engine_, nullptr);
      module_ = other.module_;
    }
    return *this;
  }
  ~Gathered() { release(); }

  /// All parameters of the module.
  Weights<Compute> weights() const { return {*engine_, module_}; }
  /// One of them.
  TensorRef<const Compute> operator[](Parameter parameter) const { return weights()[parameter]; }
  /// Lets go before the destructor would.
  void release() noexcept {
    if (engine_ != nullptr) std::exchange(engine_, nullptr)->release(module_);
  }

 private:
  Engine* engine_;
  int module_;
};

/// The report of a step that may still be running. Reports of the four latest steps are kept; the
/// Sharder must outlive this.
class PendingReport {
 public:
  /// Made by Sharder::step.
  PendingReport(Engine& engine, std::int64_t step) : engine_(&engine), step_(step) {}
  std::int64_t step() const { return step_; }  // its number, 1 for the first
  /// Blocks the host until the step is done on this rank. Throws what was an error in it, once
  /// (NonFiniteError; UsageError for a bad divisor), what made a stream fail, and UsageError when
  /// the report is no longer kept.
  StepReport wait() const { return engine_->wait(step_); }

 private:
  Engine* engine_;
  std::int64_t step_;
};

}  // namespace flatshard
