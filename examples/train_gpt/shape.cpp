#include "shape.hpp"

#include <algorithm>
#include <cmath>

namespace train_gpt {
namespace {

ParameterSpec matrix(std::string name, std::int64_t rows, std::int64_t columns, double deviation) {
  return {std::move(name), {rows, columns}, Start::normal, deviation, true};
}

ParameterSpec vector(std::string name, std::int64_t count, double value) {
  return {std::move(name), {count}, Start::constant, value, false};
}

ModuleSpec root_module(const ModelShape& s) {
  ModuleSpec root{"",
                  {matrix("wte.weight", s.vocabulary, s.width, 0.02),
                   matrix("wpe.weight", s.context, s.width, 0.02),
                   vector("ln_f.weight", s.width, 1), vector("ln_f.bias", s.width, 0)}};
  if (s.untied_head)
    root.parameters.push_back(matrix("lm_head.weight", s.vocabulary, s.width, 0.02));
  return root;
}

ModuleSpec block_module(const ModelShape& s, std::int64_t layer) {
  const std::int64_t c = s.width;
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(s.layers));
  return {"h." + std::to_string(layer),
          {vector("ln_1.weight", c, 1), vector("ln_1.bias", c, 0),
           matrix("attn.c_attn.weight", 3 * c, c, 0.02), vector("attn.c_attn.bias", 3 * c, 0),
           matrix("attn.c_proj.weight", c, c, residual), vector("attn.c_proj.bias", c, 0),
           vector("ln_2.weight", c, 1), vector("ln_2.bias", c, 0),
           matrix("mlp.c_fc.weight", 4 * c, c, 0.02), vector("mlp.c_fc.bias", 4 * c, 0),
           matrix("mlp.c_proj.weight", c, 4 * c, residual), vector("mlp.c_proj.bias", c, 0)}};
}

}  // namespace

std::int64_t ParameterSpec::numel() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::vector<ModuleSpec> model_modules(const ModelShape& shape) {
  std::vector<ModuleSpec> modules{root_module(shape)};
  for (std::int64_t layer = 0; layer < shape.layers; ++layer)
    modules.push_back(block_module(shape, layer));
  return modules;
}

std::int64_t parameter_count(const ModelShape& shape) {
  std::int64_t sum = 0;
  for (const ModuleSpec& module : model_modules(shape))
    for (const ParameterSpec& parameter : module.parameters) sum += parameter.numel();
  return sum;
}

std::int64_t largest_module(const ModelShape& shape) {
  std::int64_t most = 0;
  for (const ModuleSpec& module : model_modules(shape)) {
    std::int64_t sum = 0;
    for (const ParameterSpec& parameter : module.parameters)
      sum += (parameter.numel() + 15) / 16 * 16;
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace train_gpt
