#include "tiny_save.hpp"

#include <flatshard/io/crc32c.hpp>

#include <atomic>
#include <stdexcept>

#include "turn_agreement.hpp"

using namespace flatshard;

namespace tiny {
namespace {

constexpr Bytes all_bytes = tensor_bytes[0] + tensor_bytes[1] + tensor_bytes[2];

struct Part {
  Bytes begin, end;  // in the file
};

/// What a rank has of the tensor that begins at `begin`.
Part part_of(Rank rank, int ranks, Bytes begin, Bytes bytes) {
  return {begin + bytes * rank / ranks, begin + bytes * (rank + 1) / ranks};
}

std::span<const std::byte> range(const std::vector<std::byte>& bytes, Part part) {
  return std::span(bytes).subspan(static_cast<std::size_t>(part.begin),
                                  static_cast<std::size_t>(part.end - part.begin));
}

Manifest describe(std::int64_t contents_of) {
  const std::vector<std::byte> bytes = contents(contents_of);
  Manifest manifest;
  manifest.user = {{"contents", std::to_string(contents_of)}};
  manifest.files = {{data_name, all_bytes, 0, 0, {}}};
  Bytes begin = 0;
  for (const Bytes size : tensor_bytes) {
    const std::uint32_t digest = crc32c(range(bytes, {begin, begin + size}));
    manifest.files[0].tensors.push_back({std::to_string(begin), "U8", {size}, digest});
    begin += size;
  }
  return manifest;
}

void write_parts(const Folder& stage, Rank rank, int ranks, std::int64_t contents_of) {
  const std::vector<std::byte> bytes = contents(contents_of);
  File file = stage.open_for_writing(data_name);
  Bytes begin = 0;
  for (const Bytes size : tensor_bytes) {
    const Part part = part_of(rank, ranks, begin, size);
    if (part.end > part.begin) file.write(part.begin, range(bytes, part));
    begin += size;
  }
  file.synchronize();
  file.close();
}

/// What has a manifest is whole: nothing is deleted under a checkpoint's name.
void expect_no_ruins(const Folder& folder) {
  for (const std::int64_t step : list_steps(folder)) {
    const Folder checkpoint = folder.open_folder(step_folder_name(step));
    if (checkpoint.status(manifest_name)) expect_whole(checkpoint, read_manifest(checkpoint));
  }
}

void create(const Folder& stage) {
  File file = stage.create(data_name);
  file.allocate(all_bytes);
  file.close();
}

}  // namespace

std::vector<std::byte> contents(std::int64_t step) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(all_bytes));
  for (std::size_t k = 0; k < bytes.size(); ++k)
    bytes[k] = static_cast<std::byte>(static_cast<std::uint64_t>(step) * 77 + k * k / 7 + 1);
  return bytes;
}

std::string save(RankAgreement& ranks, const CommitOptions& options, std::int64_t contents_of,
                 FileOperations& operations) {
  Commit commit(ranks, options, operations);
  if (ranks.rank() == 0) commit.run(create);
  commit.agree();
  commit.run(
      [&](const Folder& stage) { write_parts(stage, ranks.rank(), ranks.size(), contents_of); });
  return commit.publish([&](const Folder&) { return describe(contents_of); });
}

bool save_by_all(const CommitOptions& options, std::int64_t contents_of,
                 const std::vector<FileOperations*>& operations) {
  std::atomic<int> told{0};
  flatshard_test::in_turns(static_cast<int>(operations.size()), [&](RankAgreement& ranks) {
    try {
      save(ranks, options, contents_of, *operations[static_cast<std::size_t>(ranks.rank())]);
      ++told;
    } catch (const Error&) {
      // Not told that it is saved.
    }
  });
  if (told != 0 && told != static_cast<int>(operations.size()))
    throw std::logic_error("some ranks were told that the step is saved, others not");
  return told > 0;
}

std::string load(const std::string& folder, FileOperations& operations) {
  expect_no_ruins(Folder::open(folder, operations));
  const auto found = find_checkpoint(folder, operations);
  if (!found) return "nothing";
  std::vector<std::byte> bytes(static_cast<std::size_t>(all_bytes));
  File::open_for_reading(found->path + "/" + data_name, operations).read(0, bytes);
  Bytes begin = 0;
  for (const TensorDigest& tensor : found->manifest.files.at(0).tensors) {
    if (crc32c(range(bytes, {begin, begin + tensor.shape.at(0)})) != tensor.crc32c)
      throw std::runtime_error("tensor " + tensor.name + " is damaged");
    begin += tensor.shape.at(0);
  }
  return "step " + std::to_string(found->manifest.step) + ": " + std::to_string(crc32c(bytes));
}

}  // namespace tiny
