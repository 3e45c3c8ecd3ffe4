#pragma once

#include <flatshard/layout/model.hpp>

#include <cstdint>
#include <string>

namespace flatshard_tool {

/// A GPT-2-like transformer with tied embedding and head: the model of examples/train_gpt.
struct GptShape {
  std::int64_t layers = 0, width = 0, vocabulary = 0, context = 1024;
};

/// "L,W,V" or "L,W,V,T"; throws RequestError.
GptShape parse_gpt(const std::string& text);

/// Modules, names and hyper-parameter groups as examples/train_gpt has them: root (embeddings and
/// last norm, used at both ends), then a module per block.
flatshard::Model gpt_model(const GptShape& shape);

/// From a JSON list of shapes ([[3, 4], [4]]), a map from names to shapes, or a list of
/// {"name", "shape", "trainable"}. Throws RequestError, FileError.
flatshard::Model model_of_shapes(const std::string& path);

/// From whatever open_source takes. Floating-point tensors are parameters, others registered
/// buffers. Throws RequestError for types that flatshard cannot hold.
flatshard::Model model_of_file(const std::string& path);

/// The module that a tensor's name puts it in: up to the first component that is a number
/// ("model.layers.3" of "model.layers.3.mlp.weight"); "" without one.
std::string module_of_name(const std::string& name);

}  // namespace flatshard_tool
