#include "plan_model.hpp"

#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <vector>

#include "error.hpp"
#include "files.hpp"
#include "section.hpp"
#include "source.hpp"
#include "value.hpp"

namespace flatshard_tool {
namespace {

using flatshard::Model;
using flatshard::Module;
using flatshard::Shape;

constexpr int decaying = 0;      // hyper-parameter group of matrices
constexpr int not_decaying = 1;  // of biases and norms
constexpr std::int64_t most_layers = 100000, most_extent = std::int64_t{1} << 31;

void add(Module module, const char* name, const Shape& shape) {
  module.add(name, shape, {.group = shape.size() > 1 ? decaying : not_decaying});
}

void add_block(Model& model, std::int64_t layer, std::int64_t c) {
  Module block = model.module("h." + std::to_string(layer), {.backward_overwrites = true});
  add(block, "ln_1.weight", {c});
  add(block, "ln_1.bias", {c});
  add(block, "attn.c_attn.weight", {3 * c, c});
  add(block, "attn.c_attn.bias", {3 * c});
  add(block, "attn.c_proj.weight", {c, c});
  add(block, "attn.c_proj.bias", {c});
  add(block, "ln_2.weight", {c});
  add(block, "ln_2.bias", {c});
  add(block, "mlp.c_fc.weight", {4 * c, c});
  add(block, "mlp.c_fc.bias", {4 * c});
  add(block, "mlp.c_proj.weight", {c, 4 * c});
  add(block, "mlp.c_proj.bias", {c});
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Adds tensors to a model, each to the module of its name. A root beside blocks is used at both
/// ends: embedding and head.
class Builder {
 public:
  explicit Builder(const std::vector<std::string>& names) {
    for (const std::string& name : names)
      has_blocks_ = has_blocks_ || !module_of_name(name).empty();
  }
  Module module(const std::string& name) {
    const std::string home = module_of_name(name);
    if (home.empty()) return model_.root({.uses = has_blocks_ ? 2 : 1});
    return model_.module(home);
  }
  static std::string within(const std::string& name) {
    const std::string home = module_of_name(name);
    return home.empty() ? name : name.substr(home.size() + 1);
  }
  Model take() { return std::move(model_); }

 private:
  Model model_;
  bool has_blocks_ = false;
};

struct Named {
  std::string name;
  Shape shape;
  bool trainable = true;
};

Shape shape_of(const Value& value, const std::string& source, const std::string& name) {
  const List* list = value.list();
  if (list == nullptr)
    throw RequestError(fmt::format("{}: the shape of '{}' must be a list of numbers, not {}",
                                   source, name, to_string(value)));
  Shape shape;
  for (const Value& extent : *list) {
    const std::int64_t* number = extent.integer();
    if (number == nullptr || *number < 0)
      throw RequestError(
          fmt::format("{}: the shape of '{}' must be whole numbers of at least 0, not {}", source,
                      name, to_string(value)));
    shape.push_back(*number);
  }
  return shape;
}

Named entry_of(const Value& entry, const std::string& source, std::size_t index) {
  std::string name = "tensor_" + std::to_string(index);
  if (entry.map() == nullptr) return {name, shape_of(entry, source, name), true};
  Section section(entry, source, "entry " + std::to_string(index));
  name = section.text("name").value_or(name);
  const Value* shape = section.value("shape");
  if (shape == nullptr) section.fail("shape", "is missing");
  const bool trainable = section.boolean("trainable").value_or(true);
  section.expect_all_read();
  return {name, shape_of(*shape, source, name), trainable};
}

std::vector<Named> named_shapes(const std::string& path) {
  const Value value = parse_json(read_text(path), path);
  std::vector<Named> all;
  if (const Map* map = value.map()) {
    for (const auto& [name, shape] : *map) all.push_back({name, shape_of(shape, path, name), true});
  } else if (const List* list = value.list()) {
    for (const Value& entry : *list) all.push_back(entry_of(entry, path, all.size()));
  } else {
    throw RequestError(path + ": must be a list of shapes, or a map from names to shapes");
  }
  return all;
}

}  // namespace

GptShape parse_gpt(const std::string& text) {
  std::vector<std::int64_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    std::int64_t number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc{} || number < 1 || number > most_extent || (stop != end && *stop != ','))
      throw RequestError(
          "--gpt takes layers,width,vocabulary or layers,width,vocabulary,context, each "
          "a whole number of at least 1, not '" +
          text + "'");
    numbers.push_back(number);
    if (stop == end) break;
    at = stop + 1;
  }
  if (numbers.size() < 3 || numbers.size() > 4)
    throw RequestError(fmt::format("--gpt takes three or four numbers, not {}", numbers.size()));
  if (numbers[0] > most_layers)
    throw RequestError(
        fmt::format("--gpt takes at most {} layers, not {}", most_layers, numbers[0]));
  GptShape shape{numbers[0], numbers[1], numbers[2]};
  if (numbers.size() == 4) shape.context = numbers[3];
  return shape;
}

Model gpt_model(const GptShape& shape) {
  Model model;
  Module root = model.module("", {.uses = 2});
  add(root, "wte.weight", {shape.vocabulary, shape.width});
  add(root, "wpe.weight", {shape.context, shape.width});
  add(root, "ln_f.weight", {shape.width});
  add(root, "ln_f.bias", {shape.width});
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) add_block(model, layer, shape.width);
  return model;
}

std::string module_of_name(const std::string& name) {
  for (std::size_t start = 0; start < name.size();) {
    const std::size_t dot = name.find('.', start);
    if (dot == std::string::npos) break;
    if (is_number(std::string_view(name).substr(start, dot - start)) && start > 0)
      return name.substr(0, dot);
    start = dot + 1;
  }
  return "";
}

Model model_of_shapes(const std::string& path) {
  const std::vector<Named> all = named_shapes(path);
  std::vector<std::string> names;
  for (const Named& entry : all) names.push_back(entry.name);
  Builder builder(names);
  for (const Named& entry : all)
    builder.module(entry.name)
        .add(Builder::within(entry.name), entry.shape, {.requires_grad = entry.trainable});
  return builder.take();
}

Model model_of_file(const std::string& path) {
  const Source source = open_source(path);
  const Part& part = source.parts[0];
  std::vector<std::string> names;
  for (const auto& [name, tensor] : part.set.tensors()) names.push_back(name);
  Builder builder(names);
  for (const safetensors::StoredFile& file : part.set.files())
    for (const safetensors::TensorEntry& entry : file.header.tensors) {
      const auto dtype = safetensors::info(entry.type).dtype;
      if (!dtype)
        throw RequestError(fmt::format("{}: tensor '{}' is {}, which flatshard cannot hold", path,
                                       printable(entry.name), safetensors::name_of(entry.type)));
      Module module = builder.module(entry.name);
      if (flatshard::is_floating(*dtype))
        module.add(Builder::within(entry.name), entry.shape);
      else
        module.add_buffer(Builder::within(entry.name), entry.shape, *dtype);
    }
  return builder.take();
}

}  // namespace flatshard_tool
