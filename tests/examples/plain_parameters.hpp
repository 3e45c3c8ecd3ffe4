#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "micro_step.hpp"
#include "shape.hpp"

namespace train_gpt_test {

/// A model's weights and gradients in plain arrays of any compute type, shifted by one element from
/// the allocation's alignment if asked. Gradients begin as `poison`: backward overwrites all of
/// them.
template <class ComputeType>
class PlainParameters {
 public:
  using Compute = ComputeType;

  PlainParameters(const train_gpt::ModelShape& shape, Compute poison, std::size_t shift = 0)
      : shift_{shift}, modules_{train_gpt::model_modules(shape)} {
    for (const train_gpt::ModuleSpec& module : modules_) {
      first_.push_back(begin_.size());
      for (const train_gpt::ParameterSpec& parameter : module.parameters) {
        begin_.push_back(count_);
        names_.push_back(module.name + "." + parameter.name);
        count_ += static_cast<std::size_t>(parameter.numel());
      }
    }
    begin_.push_back(count_);
    weights_.resize(count_ + shift);
    gradients_.assign(count_ + shift, poison);
  }

  std::size_t tensors() const { return names_.size(); }
  const std::string& name(std::size_t tensor) const { return names_[tensor]; }
  std::size_t begin(std::size_t tensor) const { return begin_[tensor]; }  // and the end of the last
  std::size_t count() const { return count_; }
  Compute* weights() { return weights_.data() + shift_; }
  Compute* gradients() { return gradients_.data() + shift_; }

  template <class Use>
  void forward_root(Use use) {
    use(root<const Compute>(weights()));
  }
  template <class Use>
  void forward_block(std::int64_t layer, Use use) {
    use(block<const Compute>(weights(), layer));
  }
  template <class Use>
  void backward_root(Use use) {
    use(root<const Compute>(weights()), root<Compute>(gradients()));
  }
  template <class Use>
  void backward_block(std::int64_t layer, Use use) {
    use(block<const Compute>(weights(), layer), block<Compute>(gradients(), layer));
  }
  const float* loss_scale() const { return &scale; }

  float scale = 1.0f;

 private:
  template <class T>
  train_gpt::RootTensors<T> root(T* base) const {
    return pointers<train_gpt::RootTensors<T>>(base, 0);
  }
  template <class T>
  train_gpt::BlockTensors<T> block(T* base, std::int64_t layer) const {
    return pointers<train_gpt::BlockTensors<T>>(base, static_cast<std::size_t>(layer) + 1);
  }
  template <class Tensors, class T>
  Tensors pointers(T* base, std::size_t module) const {
    Tensors out;
    for (std::size_t i = 0; i < modules_[module].parameters.size(); ++i)
      out.pointer[i] = base + begin_[first_[module] + i];
    return out;
  }

  std::size_t shift_, count_ = 0;
  std::vector<train_gpt::ModuleSpec> modules_;
  std::vector<std::size_t> first_, begin_;
  std::vector<std::string> names_;
  std::vector<Compute> weights_, gradients_;
};

/// Weights that let every term of every gradient matter: norms around 1, the rest normal(0, 0.3).
template <class Compute, class Convert>
void fill_weights(PlainParameters<Compute>& parameters, std::mt19937_64& random, Convert convert) {
  std::normal_distribution<double> normal{0, 0.3};
  for (std::size_t tensor = 0; tensor < parameters.tensors(); ++tensor) {
    const std::string& name = parameters.name(tensor);
    const bool is_norm = name.find("ln_") != std::string::npos && name.ends_with("weight");
    for (std::size_t i = parameters.begin(tensor); i < parameters.begin(tensor + 1); ++i)
      parameters.weights()[i] = convert((is_norm ? 1.0 : 0.0) + normal(random));
  }
}

struct Batch {
  std::vector<std::int32_t> tokens, targets;
};

inline Batch random_batch(const train_gpt::ModelShape& shape, std::int64_t sequences,
                          std::mt19937_64& random) {
  std::uniform_int_distribution<std::int32_t> token{
      0, static_cast<std::int32_t>(shape.vocabulary) - 1};
  Batch batch;
  for (std::int64_t i = 0; i < sequences * shape.context; ++i) {
    batch.tokens.push_back(token(random));
    batch.targets.push_back(token(random));
  }
  return batch;
}

}  // namespace train_gpt_test
