// convert, merge and split: tensors of some files into new ones.
#include <fmt/format.h>
#include <flatshard/checkpoint/shard_index.hpp>
#include <flatshard/io/file.hpp>
#include <flatshard/io/folder.hpp>

#include <algorithm>
#include <filesystem>
#include <map>

#include "commands.hpp"
#include "elements.hpp"
#include "error.hpp"
#include "progress.hpp"
#include "source.hpp"

namespace flatshard_tool {
namespace {

namespace fs = std::filesystem;
using flatshard::Bytes;
using safetensors::StoredTensor;
using safetensors::TensorEntry;
using safetensors::TensorSpec;

struct Origin {
  const Part* part;
  StoredTensor tensor;
};

/// The tensors of all inputs, in the order of their files.
struct Collection {
  std::vector<Source> sources;
  std::vector<TensorSpec> tensors;  // as they will be stored
  std::map<std::string, Origin, std::less<>> origins;
  safetensors::Metadata metadata;
  std::vector<std::string> notes;
};

safetensors::StoredType new_type(safetensors::StoredType type, const RewriteRequest& request) {
  const auto dtype = safetensors::info(type).dtype;
  if (!request.dtype || !dtype || !flatshard::is_floating(*dtype)) return type;
  return safetensors::stored_type_of(*request.dtype);
}

void add_metadata(Collection& all, const safetensors::Metadata& metadata) {
  for (const auto& [key, value] : metadata) {
    const auto same =
        std::find_if(all.metadata.begin(), all.metadata.end(),
                     [&name = key](const auto& entry) { return entry.first == name; });
    if (same == all.metadata.end())
      all.metadata.emplace_back(key, value);
    else if (same->second != value)
      all.notes.push_back(fmt::format("metadata '{}': '{}' is kept, '{}' is not", printable(key),
                                      printable(same->second), printable(value)));
  }
}

void add_part(Collection& all, const Part& part, const RewriteRequest& request) {
  for (std::size_t index = 0; index < part.set.files().size(); ++index) {
    const safetensors::StoredFile& file = part.set.files()[index];
    add_metadata(all, file.header.metadata);
    for (const TensorEntry& entry : file.header.tensors) {
      const auto [place, is_new] = all.origins.emplace(entry.name, Origin{&part, {index, &entry}});
      if (!is_new)
        throw RequestError(fmt::format("tensor '{}' is in {} and in {}", printable(entry.name),
                                       place->second.part->path, part.path));
      all.tensors.push_back({entry.name, new_type(entry.type, request), entry.shape});
    }
  }
}

Collection collect(const RewriteRequest& request) {
  Collection all;
  for (const std::string& input : request.inputs) all.sources.push_back(open_source(input));
  for (const Source& source : all.sources) {
    add_part(all, source.parts[0], request);
    if (source.parts.size() > 1)
      all.notes.push_back(source.path + ": the optimizer's tensors are left out");
  }
  return all;
}

/// Copies tensors into one new file.
class Writer {
 public:
  Writer(const Collection& all, Progress& progress) : all_(all), progress_(progress) {}

  /// Synchronized when it returns.
  void write(const std::string& path, const std::vector<TensorSpec>& tensors) {
    const safetensors::Header header = safetensors::plan_header(tensors, all_.metadata);
    flatshard::File file = flatshard::File::create(path);
    file.allocate(header.file_bytes);
    const std::string text = safetensors::encode(header);
    file.write(0, std::as_bytes(std::span(text)));
    for (const TensorEntry& entry : header.tensors)
      copy(entry, header.data_begin + entry.begin, file);
    file.synchronize();
    file.close();
  }

  std::int64_t overflows() const { return overflows_; }

 private:
  static constexpr Bytes part_bytes = Bytes{8} << 20;

  void copy(const TensorEntry& entry, Bytes place, flatshard::File& file) {
    const Origin& origin = all_.origins.find(entry.name)->second;
    const TensorEntry& from = *origin.tensor.entry;
    const Bytes bytes = from.end - from.begin;
    for (Bytes done = 0; done < bytes;) {
      const Bytes step = std::min(part_bytes, bytes - done);  // whole elements: 8 MiB divides by 8
      from_.resize(static_cast<std::size_t>(step));
      origin.part->set.read(origin.tensor, done, from_);
      const std::span<const std::byte> result = converted(from, entry);
      file.write(place, result);
      place += static_cast<Bytes>(result.size());
      done += step;
      progress_.add(step);
    }
  }

  std::span<const std::byte> converted(const TensorEntry& from, const TensorEntry& to) {
    if (from.type == to.type) return from_;
    const flatshard::DType before = *safetensors::info(from.type).dtype;
    const flatshard::DType after = *safetensors::info(to.type).dtype;
    const auto count = from_.size() / static_cast<std::size_t>(flatshard::size_of(before));
    to_.resize(count * static_cast<std::size_t>(flatshard::size_of(after)));
    overflows_ += convert(before, from_, after, to_);
    return to_;
  }

  const Collection& all_;
  Progress& progress_;
  std::vector<std::byte> from_, to_;
  std::int64_t overflows_ = 0;
};

/// Removes what was begun unless it was finished.
class Stage {
 public:
  explicit Stage(std::string path) : path_(std::move(path)) {}
  ~Stage() {
    std::error_code unused;
    if (!path_.empty()) fs::remove_all(path_, unused);
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  const std::string& path() const { return path_; }
  /// Gives it its final name; the folder that holds it is synchronized.
  void publish(const std::string& output) {
    const fs::path target(output);
    const std::string parent = target.has_parent_path() ? target.parent_path().string() : ".";
    const flatshard::Folder folder = flatshard::Folder::open(parent);
    folder.rename(fs::path(path_).filename(), target.filename(), flatshard::Existing::Refuse);
    path_.clear();
    folder.synchronize();
  }

 private:
  std::string path_;
};

Bytes bytes_of(const std::vector<std::vector<TensorSpec>>& files) {
  Bytes sum = 0;
  for (const std::vector<TensorSpec>& file : files)
    for (const TensorSpec& tensor : file)
      sum += safetensors::elements_of(tensor.shape) * safetensors::info(tensor.type).bits / 8;
  return sum;
}

void write_set(const std::string& folder, const std::vector<std::vector<TensorSpec>>& files,
               Writer& writer) {
  const auto count = static_cast<std::int64_t>(files.size());
  safetensors::ShardIndex index;
  index.total_size = bytes_of(files);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string name = safetensors::shard_file_name("model", i, count);
    const auto& tensors = files[static_cast<std::size_t>(i)];
    writer.write(folder + "/" + name, tensors);
    for (const TensorSpec& tensor : tensors) index.weight_map.emplace_back(tensor.name, name);
  }
  if (count == 1) return;
  const std::string text = safetensors::encode(index);
  flatshard::File file = flatshard::File::create(folder + "/model.safetensors.index.json");
  file.write(0, std::as_bytes(std::span(text)));
  file.synchronize();
  file.close();
}

/// The name to write under until all is there.
std::string stage_name(const std::string& output) {
  std::string name = output + ".partial";
  if (fs::exists(fs::symlink_status(output))) throw FileError(output + " exists already");
  if (fs::exists(fs::symlink_status(name)))
    throw FileError(name + " is left from a run that did not end; remove it first");
  return name;
}

std::vector<std::vector<TensorSpec>> files_of(const RewriteRequest& request,
                                              const Collection& all) {
  if (request.shard_bytes == 0) return {all.tensors};
  return safetensors::split_into_files(all.tensors, request.shard_bytes);
}

/// One file where the output is named as one, else a folder. The number of files.
std::size_t write_output(const RewriteRequest& request, const Collection& all, Writer& writer) {
  std::string output = request.output;
  while (output.size() > 1 && output.ends_with('/')) output.pop_back();
  const bool is_file = output.ends_with(".safetensors");
  if (is_file && request.shard_bytes > 0)
    throw RequestError(output + ": several files need a folder; give a name without .safetensors");
  const auto files = files_of(request, all);
  Stage stage(stage_name(output));
  if (is_file) {
    writer.write(stage.path(), all.tensors);
  } else {
    fs::create_directory(stage.path());
    write_set(stage.path(), files, writer);
    flatshard::Folder::open(stage.path()).synchronize();
  }
  stage.publish(output);
  return files.size();
}

}  // namespace

Outcome run_rewrite(const RewriteRequest& request) {
  const Collection all = collect(request);
  Bytes total = 0;
  for (const auto& [name, origin] : all.origins)
    total += origin.tensor.entry->end - origin.tensor.entry->begin;
  std::size_t files = 0;
  std::int64_t overflows = 0;
  {
    Progress progress("write", total);
    Writer writer(all, progress);
    files = write_output(request, all, writer);
    overflows = writer.overflows();
  }
  std::string text;
  for (const std::string& note : all.notes) text += "note: " + note + "\n";
  if (overflows > 0)
    text += fmt::format("note: {} finite elements became infinite or NaN\n", overflows);
  return {text + fmt::format("{}: {} tensors in {} file{}\n", request.output, all.tensors.size(),
                             files, files == 1 ? "" : "s"),
          success};
}

}  // namespace flatshard_tool
