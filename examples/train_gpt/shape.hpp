#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace train_gpt {

/// A decoder-only transformer: pre-norm blocks of causal attention and a GELU MLP four times as
/// wide; the token embedding is also the head, unless that is a matrix of its own.
struct ModelShape {
  std::int64_t layers = 4;
  std::int64_t width = 128;       // C
  std::int64_t heads = 4;         // H, divides width
  std::int64_t context = 64;      // T
  std::int64_t vocabulary = 256;  // V
  bool untied_head = false;

  std::int64_t head_width() const { return width / heads; }
  friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

/// The parameters of one block, in the order in which they are declared.
enum class BlockTensor {
  ln_1_weight,     // (C)
  ln_1_bias,       // (C)
  attn_weight,     // (3C, C)
  attn_bias,       // (3C)
  proj_weight,     // (C, C)
  proj_bias,       // (C)
  ln_2_weight,     // (C)
  ln_2_bias,       // (C)
  fc_weight,       // (4C, C)
  fc_bias,         // (4C)
  fc_proj_weight,  // (C, 4C)
  fc_proj_bias,    // (C)
};
inline constexpr std::size_t block_tensor_count = 12;

/// The parameters outside the blocks. Without a head, wte is used at both ends.
enum class RootTensor {
  wte,          // (V, C)
  wpe,          // (T, C)
  ln_f_weight,  // (C)
  ln_f_bias,    // (C)
  head,         // (V, C), null when tied
};
inline constexpr std::size_t root_tensor_count = 5;  // 4 when tied

/// One pointer per parameter of a module.
template <class T, class Name, std::size_t count>
struct ModuleTensors {
  std::array<T*, count> pointer{};
  T* operator[](Name name) const { return pointer[static_cast<std::size_t>(name)]; }
  T*& operator[](Name name) { return pointer[static_cast<std::size_t>(name)]; }
};

template <class T>
using BlockTensors = ModuleTensors<T, BlockTensor, block_tensor_count>;
template <class T>
using RootTensors = ModuleTensors<T, RootTensor, root_tensor_count>;

/// The matrix that makes logits: the head's own, or the embedding.
template <class T>
T* head_of(const RootTensors<T>& root) {
  return root[RootTensor::head] != nullptr ? root[RootTensor::head] : root[RootTensor::wte];
}

/// How a parameter starts: normal(0, value), or the constant `value` everywhere.
enum class Start { normal, constant };

struct ParameterSpec {
  std::string name;  // within its module: "attn.c_attn.weight"
  std::vector<std::int64_t> shape;
  Start start;
  double value;
  bool decays;  // weight decay is for matrices, not for biases and norms

  std::int64_t numel() const;
};

struct ModuleSpec {
  std::string name;  // "" for the root, "h.0", "h.1", ...
  std::vector<ParameterSpec> parameters;
};

/// Root first, then one module per block; GPT-2's names and initialisation: matrices normal(0,
/// 0.02), those that write into the residual stream divided by sqrt(2 layers), norms one, biases
/// zero.
std::vector<ModuleSpec> model_modules(const ModelShape& shape);

std::int64_t parameter_count(const ModelShape& shape);

/// Elements of the largest module, each parameter rounded up to a cache line (16 elements).
std::int64_t largest_module(const ModelShape& shape);

}  // namespace train_gpt
