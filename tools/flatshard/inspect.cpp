#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "commands.hpp"
#include "source.hpp"
#include "value.hpp"

namespace flatshard_tool {
namespace {

using safetensors::TensorEntry;
using Text = std::back_insert_iterator<std::string>;

Value checkpoint_value(const flatshard::FoundCheckpoint& found) {
  const flatshard::Manifest& manifest = found.manifest;
  Map map = map_of({{"step", manifest.step},
                    {"save_id", manifest.save_id},
                    {"library", manifest.library},
                    {"world", manifest.world},
                    {"strategy", manifest.strategy},
                    {"precision", manifest.precision}});
  if (manifest.optimizer)
    map.emplace_back("optimizer", map_of({{"name", manifest.optimizer->name},
                                          {"updates", manifest.optimizer->time}}));
  Map user, ties;
  for (const auto& [key, value] : manifest.user) user.emplace_back(key, value);
  for (const auto& [alias, owner] : manifest.ties) ties.emplace_back(alias, owner);
  map.emplace_back("user", std::move(user));
  map.emplace_back("ties", std::move(ties));
  return map;
}

Value tensor_value(const TensorEntry& entry, flatshard::Bytes data_begin) {
  List shape(entry.shape.begin(), entry.shape.end());
  return map_of({{"name", entry.name},
                 {"dtype", safetensors::name_of(entry.type)},
                 {"shape", std::move(shape)},
                 {"elements", safetensors::elements_of(entry.shape)},
                 {"bytes", entry.end - entry.begin},
                 {"offset", data_begin + entry.begin}});
}

Value file_value(const Part& part, const safetensors::StoredFile& file) {
  Map metadata;
  for (const auto& [key, value] : file.header.metadata) metadata.emplace_back(key, value);
  List tensors;
  for (const TensorEntry& entry : file.header.tensors)
    tensors.push_back(tensor_value(entry, file.header.data_begin));
  return map_of({{"part", part.name},
                 {"name", file.name},
                 {"bytes", file.header.file_bytes},
                 {"header_bytes", file.header.data_begin},
                 {"metadata", std::move(metadata)},
                 {"tensors", std::move(tensors)}});
}

std::string json_text(const Source& source) {
  List files, warnings;
  std::int64_t tensors = 0;
  for (const Part& part : source.parts) {
    tensors += static_cast<std::int64_t>(part.set.tensors().size());
    for (const safetensors::StoredFile& file : part.set.files())
      files.push_back(file_value(part, file));
  }
  for (const std::string& warning : source.warnings()) warnings.emplace_back(warning);
  return write_json(
      map_of({{"path", source.path},
              {"checkpoint", source.checkpoint ? checkpoint_value(*source.checkpoint) : Value()},
              {"files", std::move(files)},
              {"tensors", tensors},
              {"bytes", source.bytes()},
              {"warnings", std::move(warnings)}}));
}

void print_checkpoint(Text out, const flatshard::FoundCheckpoint& found) {
  const flatshard::Manifest& manifest = found.manifest;
  fmt::format_to(out, "checkpoint {}\nstep {}, saved by {} ranks ({}, {}), flatshard {}\n",
                 found.path, manifest.step, manifest.world, printable(manifest.strategy),
                 printable(manifest.precision), printable(manifest.library));
  if (manifest.optimizer)
    fmt::format_to(out, "optimizer {}, {} updates\n", printable(manifest.optimizer->name),
                   manifest.optimizer->time);
  for (const auto& [alias, owner] : manifest.ties)
    fmt::format_to(out, "tie {} -> {}\n", printable(alias), printable(owner));
  for (const auto& [key, value] : manifest.user)
    fmt::format_to(out, "user {} = {}\n", printable(key), printable(value));
  fmt::format_to(out, "\n");
}

/// Columns as wide as their widest entry, up to a limit.
void print_tensors(Text out, const std::vector<TensorEntry>& tensors) {
  std::size_t name_width = 6, shape_width = 5;
  for (const TensorEntry& entry : tensors) {
    name_width = std::max(name_width, std::min<std::size_t>(printable(entry.name).size(), 70));
    shape_width = std::max(shape_width, std::min<std::size_t>(shape_text(entry.shape).size(), 30));
  }
  for (const TensorEntry& entry : tensors)
    fmt::format_to(out, "  {:<{}}  {:<11}  {:<{}}  {:>14}\n", printable(entry.name), name_width,
                   safetensors::name_of(entry.type), shape_text(entry.shape), shape_width,
                   entry.end - entry.begin);
}

void print_part(Text out, const Part& part) {
  for (const safetensors::StoredFile& file : part.set.files()) {
    const safetensors::Header& header = file.header;
    fmt::format_to(out, "{}: {} tensors, {} bytes, of which {} are header\n", printable(file.name),
                   header.tensors.size(), header.file_bytes, header.data_begin);
    for (const auto& [key, value] : header.metadata)
      fmt::format_to(out, "  metadata {} = {}\n", printable(key), printable(value));
    print_tensors(out, header.tensors);
    fmt::format_to(out, "\n");
  }
}

std::string table_text(const Source& source) {
  std::string text;
  const Text out = std::back_inserter(text);
  if (source.checkpoint) print_checkpoint(out, *source.checkpoint);
  std::int64_t tensors = 0, elements = 0;
  for (const Part& part : source.parts) {
    print_part(out, part);
    for (const auto& [name, tensor] : part.set.tensors()) {
      ++tensors;
      elements += safetensors::elements_of(tensor.entry->shape);
    }
  }
  fmt::format_to(out, "{} tensors, {} elements, {} bytes ({})\n", tensors, elements, source.bytes(),
                 human_bytes(source.bytes()));
  for (const std::string& warning : source.warnings())
    fmt::format_to(out, "warning: {}\n", printable(warning));
  return text;
}

}  // namespace

Outcome run_inspect(const InspectRequest& request) {
  const Source source = open_source(request.path);
  return {request.json ? json_text(source) : table_text(source), success};
}

}  // namespace flatshard_tool
