#include <flatshard/checkpoint/tensor_set.hpp>

#include "json_text.hpp"
#include "set_opener.hpp"

#include <flatshard/core/error.hpp>
#include <flatshard/io/read_ahead.hpp>
#include <flatshard/layout/nearest_names.hpp>

namespace flatshard::safetensors {

using flatshard::detail::in_quotes;

TensorSet::TensorSet() = default;
TensorSet::~TensorSet() = default;
TensorSet::TensorSet(TensorSet&&) noexcept = default;
TensorSet& TensorSet::operator=(TensorSet&&) noexcept = default;

TensorSet TensorSet::open(const std::filesystem::path& path, const ReadLimits& limits, Mode mode) {
  return open(path, limits, mode, posix_file_operations());
}

TensorSet TensorSet::open(const std::filesystem::path& path, const ReadLimits& limits, Mode mode,
                          FileOperations& operations) {
  SetOpener opener(limits, mode, operations);
  opener.open(path);
  TensorSet set;
  set.files_ = std::move(opener.files);
  set.opened_ = std::move(opener.opened);
  set.warnings_ = std::move(opener.warnings);
  for (std::size_t file = 0; file < set.files_.size(); ++file) {
    for (const TensorEntry& entry : set.files_[file].header.tensors)
      set.tensors_.emplace(entry.name, StoredTensor{file, &entry});
  }
  return set;
}

const StoredTensor& TensorSet::at(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [other, tensor] : tensors_) names.push_back(other);
  std::string message = "TensorSet: there is no tensor " + in_quotes(name) + "; nearest:";
  for (const std::string& near : nearest_names(name, std::move(names)))
    message.append(" ").append(in_quotes(near));
  throw UsageError(message, {__FILE__, __LINE__});
}

void TensorSet::read(std::string_view name, Bytes first, std::span<std::byte> into) const {
  read(at(name), first, into);
}

void TensorSet::read(const StoredTensor& tensor, Bytes first, std::span<std::byte> into) const {
  const FileRange from = range(tensor, first, static_cast<Bytes>(into.size()));
  if (!into.empty()) from.file->read(from.offset, into);
}

FileRange TensorSet::range(const StoredTensor& tensor, Bytes first, Bytes bytes) const {
  const TensorEntry& entry = *tensor.entry;
  const Bytes all = entry.end - entry.begin;
  FLATSHARD_EXPECTS(0 <= first && first <= all && 0 <= bytes && bytes <= all - first,
                    "TensorSet::read: " + std::to_string(bytes) + " bytes from " +
                        std::to_string(first) + " on of tensor " + in_quotes(entry.name) +
                        ", which has " + std::to_string(all));
  return {&opened_[tensor.file], files_[tensor.file].header.data_begin + entry.begin + first,
          bytes};
}

}  // namespace flatshard::safetensors
