#pragma once

#include <flatshard/checkpoint/find_checkpoint.hpp>
#include <flatshard/checkpoint/tensor_set.hpp>

#include <optional>
#include <string>
#include <vector>

#include "printable.hpp"

namespace flatshard_tool {

namespace safetensors = flatshard::safetensors;

/// A set of tensors that belong together.
struct Part {
  std::string name;  // "model", "optimizer"; of plain files: "model"
  std::string path;  // what was opened
  safetensors::TensorSet set;
};

/// What a path stands for: a checkpoint of flatshard, a sharded set, or one safetensors file.
struct Source {
  std::string path;
  std::optional<flatshard::FoundCheckpoint> checkpoint;
  std::vector<Part> parts;  // at least one

  flatshard::Bytes bytes() const;  // of all tensors
  std::vector<std::string> warnings() const;
};

/// A folder is: a checkpoint; a folder of checkpoints, of which the newest whole one is taken; or a
/// folder that holds model.safetensors, its index, or any other single safetensors file or index.
/// Throws FileError when there is none, or what opening throws.
Source open_source(const std::string& path, safetensors::Mode mode = safetensors::Mode::Compatible);
/// The same for a checkpoint that was found.
Source open_checkpoint(flatshard::FoundCheckpoint found, safetensors::Mode mode);

/// "1.50 GB".
std::string human_bytes(flatshard::Bytes bytes);
/// "[2, 3]".
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace flatshard_tool
