#include "range_writer.hpp"

#include <flatshard/io/crc32c.hpp>

#include <algorithm>

namespace flatshard::detail {

namespace {

constexpr Bytes longest_block = Bytes{1} << 20;

std::span<const std::byte> bytes_of(const std::string& head) {
  return std::as_bytes(std::span(head));
}

}  // namespace

RangeWriter::RangeWriter(const SaveLayout& layout, MemoryResource& memory,
                         const SaveOptions& options)
    : layout_(layout),
      files_(layout.files.size()),
      behind_(memory, {.block_bytes = std::min(options.block_bytes, longest_block),
                       .page_cache = options.page_cache,
                       .operations = options.operations}) {}

void RangeWriter::create(const Folder& stage) {
  for (std::size_t index = 0; index < layout_.files.size(); ++index) {
    const SaveLayout::PlannedFile& planned = layout_.files[index];
    File& created = files_[index].emplace(stage.create(planned.name));
    created.allocate(planned.header.file_bytes);
    created.write(0, bytes_of(planned.head));
  }
  for (const SaveLayout::Index& index : layout_.indexes) {
    File created = stage.create(index.name);
    created.write(0, bytes_of(index.text));
    created.synchronize();
    created.close();
  }
}

File& RangeWriter::file(const Folder& stage, int index) {
  const auto at = static_cast<std::size_t>(index);
  if (!files_[at]) files_[at].emplace(stage.open_for_writing(layout_.files[at].name));
  return *files_[at];
}

/// In parts that are still in the processor's cache when they are copied.
void RangeWriter::write(const Folder& stage, const WriteJob& job, Elements first,
                        std::span<const std::byte> bytes) {
  constexpr auto part_bytes = static_cast<std::size_t>(longest_block);
  Bytes skipped = first * size_of(job.into.dtype);
  File& into = file(stage, job.into.file);
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), part_bytes));
    count(job, job.first_byte() + skipped, part);
    behind_.write(into, job.offset() + skipped, part);
    skipped += static_cast<Bytes>(part.size());
    bytes = bytes.subspan(part.size());
  }
}

void RangeWriter::count(const WriteJob& job, Bytes first, std::span<const std::byte> bytes) {
  const auto size = static_cast<Bytes>(bytes.size());
  if (!digests_.empty()) {
    RangeDigest& last = digests_.back();
    if (last.file == job.into.file && last.position == job.into.position &&
        last.first + last.bytes == first) {
      last.crc = crc32c(bytes, last.crc);
      last.bytes += size;
      return;
    }
  }
  digests_.push_back({job.into.file, job.into.position, first, size, crc32c(bytes), 0});
}

void RangeWriter::finish() {
  behind_.wait();
  for (std::optional<File>& file : files_) {
    if (!file) continue;
    file->synchronize();
    file->close();
    file.reset();
  }
}

}  // namespace flatshard::detail
