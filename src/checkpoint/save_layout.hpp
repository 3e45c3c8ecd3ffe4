// Which file holds which tensor where: a pure function of what is saved, the same on every rank.
#pragma once

#include <flatshard/checkpoint/safetensors.hpp>
#include <flatshard/checkpoint/save.hpp>
#include <flatshard/sharder/shard_map.hpp>

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard::detail {

inline constexpr const char* model_stem = "model";
inline constexpr const char* optimizer_stem = "optimizer";

/// The name of a tensor in its file.
std::string name_of_tensor(const Model& model, const StateTensor& tensor,
                           std::span<const std::string_view> state_names);
std::string master_name(const std::string& parameter);

/// Where one tensor goes.
struct Placement {
  int file = 0;      // of SaveLayout::files
  int position = 0;  // of the tensor in the file's header
  Bytes begin = 0;   // of its first byte in the file
  DType dtype = DType::Float32;
  friend bool operator==(const Placement&, const Placement&) = default;
};

struct SaveLayout {
  struct PlannedFile {
    std::string name;
    safetensors::Header header;
    std::string head;  // what stands before the data section
  };
  struct Index {  // of a set of several files
    std::string name;
    std::string text;
  };
  std::vector<PlannedFile> files;
  std::vector<Index> indexes;
  std::map<StateTensor, std::vector<Placement>> placements;
  Bytes bytes() const;  // of all files
};

SaveLayout plan_save(const Plan& plan, const Model& model,
                     std::span<const std::string_view> state_names, const SaveOptions& options);

/// One contiguous range of a file, of elements that one rank has.
struct WriteJob {
  ShardPiece piece;
  Placement into;
  Bytes first_byte() const { return piece.first * size_of(into.dtype); }  // within the tensor
  Bytes offset() const { return into.begin + first_byte(); }              // within the file
  Bytes bytes() const { return piece.count * size_of(into.dtype); }
};

/// What `rank` writes, in the order of files and bytes.
std::vector<WriteJob> jobs_of(const SaveLayout& layout, const Plan& plan, const Model& model,
                              Rank rank);

}  // namespace flatshard::detail
