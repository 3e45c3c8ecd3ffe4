// Any optimizer functor behind one type: what the engine needs of it, and the table of its steps.
#pragma once

#include <flatshard/fwd.hpp>
#include <flatshard/ops/adagrad.hpp>
#include <flatshard/ops/adamw.hpp>
#include <flatshard/ops/lion.hpp>
#include <flatshard/ops/sgd.hpp>
#include <flatshard/ops/step_rows.hpp>

#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

namespace flatshard {

/// How the hyper-parameters of a parameter group differ from the optimizer's.
struct GroupOptions {
  double lr_factor = 1.0;    // multiplies lr
  bool weight_decay = true;  // false: none in this group
  friend constexpr bool operator==(const GroupOptions&, const GroupOptions&) = default;
};

/// A hyper-parameter by name; flags are 0 or 1.
struct HyperParameter {
  std::string name;  // as the functor publishes it
  double value = 0;  // as applied
  friend bool operator==(const HyperParameter&, const HyperParameter&) = default;
};

/// "master float32, gradient float32, state float32, copy bfloat16", for messages.
std::string to_string(const StepRow& row);

/// Types of functors, in an order.
template <class... Functors>
struct OptimizerList {};

/// The functors whose steps the library builds for every instruction set.
using BuiltinOptimizers = OptimizerList<AdamW, SGD, Lion, Adagrad, Adam, AMSGrad, NAdam, RMSProp,
                                        RMSPropMomentum, CenteredRMSProp, CenteredRMSPropMomentum>;

namespace detail {

/// Where a functor stands in a list; the list's length when it does not.
template <class Functor, class... Functors>
constexpr std::size_t place_of(OptimizerList<Functors...>) {
  std::size_t place = 0;
  static_cast<void>(((!std::is_same_v<Functor, Functors> && ++place != 0) && ...));
  return place;
}
template <class... Functors>
constexpr std::size_t length_of(OptimizerList<Functors...>) {
  return sizeof...(Functors);
}

/// Of the functor at a place of BuiltinOptimizers. Defined in kernels/host.
HostStep builtin_host_step(std::size_t place, const StepRow& row);

}  // namespace detail

/// True for functors whose steps the library builds for every instruction set.
template <class Functor>
inline constexpr bool is_builtin_optimizer =
    detail::place_of<Functor>(BuiltinOptimizers{}) < detail::length_of(BuiltinOptimizers{});

/// The step of a functor that the library itself builds, for the best instruction set of this
/// processor; nullptr when the row is not in StepRows.
template <class Functor>
HostStep builtin_host_step(const StepRow& row) {
  static_assert(is_builtin_optimizer<Functor>);
  return detail::builtin_host_step(detail::place_of<Functor>(BuiltinOptimizers{}), row);
}

namespace detail {

using FunctorBytes = std::array<std::byte, max_functor_bytes>;

/// What Optimizer knows about a functor's type.
struct OptimizerType {
  const std::type_info* type;
  std::string_view name;
  std::span<const std::string_view> state_names;
  HostStep (*host_step)(const StepRow& row);
  FunctorBytes (*adjusted)(const FunctorBytes& functor, const GroupOptions& options);
  std::vector<HyperParameter> (*hyper_parameters)(const FunctorBytes& functor);
  FunctorBytes (*with)(const FunctorBytes& functor, std::span<const HyperParameter> values);
};

template <class Functor>
Functor functor_from(const FunctorBytes& bytes) {
  Functor functor;
  std::memcpy(&functor, bytes.data(), sizeof(Functor));
  return functor;
}

template <class Functor>
FunctorBytes bytes_of(const Functor& functor) {
  FunctorBytes bytes{};
  std::memcpy(bytes.data(), &functor, sizeof(Functor));
  return bytes;
}

struct UserCode;  // the "instruction set" of functors that the user's own file instantiates

template <class Functor>
HostStep host_step_of(const StepRow& row) {
  if constexpr (is_builtin_optimizer<Functor>)
    return builtin_host_step<Functor>(row);
  else
    return find_host_step<UserCode, Functor>(row);
}

[[noreturn]] void throw_no_learning_rate(std::string_view optimizer);

template <class Functor>
constexpr std::string_view optimizer_name() {
  if constexpr (requires { std::string_view{Functor::name}; })
    return Functor::name;
  else
    return "custom";
}

template <class Functor>
FunctorBytes adjust(const FunctorBytes& bytes, const GroupOptions& options) {
  auto functor = functor_from<Functor>(bytes);
  if constexpr (requires { functor.lr *= options.lr_factor; })
    functor.lr *= options.lr_factor;
  else if (options.lr_factor != 1.0)
    throw_no_learning_rate(optimizer_name<Functor>());
  if constexpr (requires { functor.weight_decay = 0; })
    functor.weight_decay = options.weight_decay ? functor.weight_decay : 0;
  if constexpr (requires { validate(functor); }) validate(functor);
  return bytes_of(functor);
}

[[noreturn]] void throw_no_hyper_parameter(std::string_view optimizer, std::string_view name);

/// Calls visit(name, member) for what the functor publishes; nothing where it publishes nothing.
template <class Functor, class Visit>
void visit_hyper_parameters(Functor& functor, Visit&& visit) {
  if constexpr (requires { std::remove_const_t<Functor>::visit_hyper_parameters(functor, visit); })
    std::remove_const_t<Functor>::visit_hyper_parameters(functor, visit);
}

template <class Functor>
std::vector<HyperParameter> hyper_parameters_of(const FunctorBytes& bytes) {
  const auto functor = functor_from<Functor>(bytes);
  std::vector<HyperParameter> values;
  visit_hyper_parameters(functor, [&](std::string_view name, const auto& member) {
    values.push_back({std::string(name), static_cast<double>(member)});
  });
  return values;
}

template <class Functor>
FunctorBytes with_hyper_parameters(const FunctorBytes& bytes,
                                   std::span<const HyperParameter> values) {
  auto functor = functor_from<Functor>(bytes);
  for (const HyperParameter& value : values) {
    bool found = false;
    visit_hyper_parameters(functor, [&](std::string_view name, auto& member) {
      if (name != value.name) return;
      member = static_cast<std::remove_reference_t<decltype(member)>>(value.value);
      found = true;
    });
    if (!found) throw_no_hyper_parameter(optimizer_name<Functor>(), value.name);
  }
  if constexpr (requires { validate(functor); }) validate(functor);
  return bytes_of(functor);
}

template <class Functor>
inline constexpr OptimizerType optimizer_type{&typeid(Functor),
                                              optimizer_name<Functor>(),
                                              Functor::state_names,
                                              host_step_of<Functor>,
                                              adjust<Functor>,
                                              hyper_parameters_of<Functor>,
                                              with_hyper_parameters<Functor>};

/// All zeros stay zeros, at the first and at a later update, in the precision Real?
template <class Real, class Functor>
bool keeps_zeros(const Functor& functor) {
  for (const std::int64_t time : {1, 2, 1000}) {
    Real parameter = 0;
    Real states[max_optimizer_states] = {};
    Functor::update(functor.template coefficients<Real>(time), parameter, Real{0}, states);
    bool zero = parameter == 0;
    for (const Real state : states) zero = zero && state == 0;
    if (!zero) return false;
  }
  return true;
}

void expect_keeps_zeros(bool keeps, std::string_view optimizer);

}  // namespace detail

/// An optimizer with its hyper-parameters. A plain value. Throws UsageError for hyper-parameters
/// out of range (a free function validate(functor), when there is one, says which) and for a
/// functor that moves zeros, because padding must stay zero.
class Optimizer {
 public:
  /// Erases a functor; implicit, so that a Sharder takes AdamW{...} as it is.
  template <ElementwiseOptimizer Functor>
  Optimizer(const Functor& functor)  // NOLINT: implicit by design
      : type_(&detail::optimizer_type<Functor>), functor_(detail::bytes_of(functor)) {
    if constexpr (requires { validate(functor); }) validate(functor);
    detail::expect_keeps_zeros(detail::keeps_zeros<float>(functor), type_->name);
  }

  std::string_view name() const { return type_->name; }  // of the functor
  /// States of one element.
  int states() const { return static_cast<int>(type_->state_names.size()); }
  /// In the order of the functor.
  std::span<const std::string_view> state_names() const { return type_->state_names; }
  /// For StepArguments::functor.
  const detail::FunctorBytes& functor() const { return functor_; }

  /// The same functor for a parameter group. Throws UsageError when the learning rate should change
  /// and the functor has no member lr, or when it leaves its range.
  Optimizer adjusted(const GroupOptions& options) const {
    return Optimizer(*type_, type_->adjusted(functor_, options));
  }
  /// What the functor publishes by a static member template visit_hyper_parameters(self, visit),
  /// which calls visit(name, self.member) for each; nothing where it has none.
  std::vector<HyperParameter> hyper_parameters() const { return type_->hyper_parameters(functor_); }
  /// The same functor with these values. Throws UsageError for a name that it does not publish and
  /// for a value out of range.
  Optimizer with(std::span<const HyperParameter> values) const {
    return Optimizer(*type_, type_->with(functor_, values));
  }
  /// The step for these storage types. Throws UsageError naming the row when it is not built.
  HostStep host_step(const StepRow& row) const;
  /// The same on a CUDA device: the library's own once a CudaDevice was made, a user's functor's
  /// where its .cu file registered it (<flatshard/cuda/step.cuh>).
  CudaStep cuda_step(const StepRow& row) const;
  /// True when `other` may take this one's place from one step to the next: same functor type, so
  /// the same states mean the same.
  bool has_type_of(const Optimizer& other) const { return *type_->type == *other.type_->type; }

 private:
  Optimizer(const detail::OptimizerType& type, const detail::FunctorBytes& functor)
      : type_(&type), functor_(functor) {}

  const detail::OptimizerType* type_;
  detail::FunctorBytes functor_;
};

}  // namespace flatshard
