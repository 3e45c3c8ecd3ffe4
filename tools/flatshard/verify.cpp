#include <fmt/format.h>
#include <flatshard/io/crc32c.hpp>
#include <flatshard/io/file.hpp>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "commands.hpp"
#include "progress.hpp"
#include "source.hpp"

namespace flatshard_tool {
namespace {

using flatshard::Bytes;

/// What is wrong, one line each; empty: nothing.
using Faults = std::vector<std::string>;

/// The digest of bytes [first, first + count) of a file.
std::uint32_t digest_of(const flatshard::File& file, Bytes first, Bytes count, Progress& progress) {
  static std::vector<std::byte> part(std::size_t{4} << 20);
  std::uint32_t digest = 0;
  for (Bytes done = 0; done < count;) {
    const Bytes step = std::min(count - done, static_cast<Bytes>(part.size()));
    const std::span<std::byte> bytes(part.data(), static_cast<std::size_t>(step));
    file.read(first + done, bytes);
    digest = flatshard::crc32c(bytes, digest);
    done += step;
    progress.add(step);
  }
  return digest;
}

void compare(Faults& faults, const std::string& what, std::uint32_t stated, std::uint32_t found) {
  if (stated != found)
    faults.push_back(
        fmt::format("{}: CRC32C is {:08x}, the manifest says {:08x}", what, found, stated));
}

bool same_kind(const flatshard::TensorDigest& stated, const safetensors::TensorEntry& entry) {
  return stated.dtype == safetensors::name_of(entry.type) && stated.shape == entry.shape;
}

void check_file(Faults& faults, const std::string& folder, const flatshard::FileDigest& stated,
                Progress& progress) {
  const std::string path = folder + "/" + stated.name;
  const flatshard::File file = flatshard::File::open_for_reading(path);
  const safetensors::Header header = safetensors::read_header(file);
  if (header.data_begin != stated.header_bytes || header.tensors.size() != stated.tensors.size()) {
    faults.push_back(path + ": its header is not the one that the manifest describes");
    return;
  }
  compare(faults, path + ": header", stated.header_crc32c,
          digest_of(file, 0, header.data_begin, progress));
  for (const flatshard::TensorDigest& tensor : stated.tensors) {
    const safetensors::TensorEntry* entry = header.find(tensor.name);
    const std::string what = fmt::format("{}: tensor '{}'", path, printable(tensor.name));
    if (entry == nullptr || !same_kind(tensor, *entry)) {
      faults.push_back(what + " is missing or of another dtype or shape than the manifest says");
      continue;
    }
    compare(faults, what, tensor.crc32c,
            digest_of(file, header.data_begin + entry->begin, entry->end - entry->begin, progress));
  }
}

/// A checkpoint: structure, files and digests.
void check_checkpoint(Faults& faults, const std::string& path) {
  const flatshard::Manifest manifest = flatshard::read_manifest(path);
  flatshard::expect_whole(flatshard::Folder::open(path), manifest);
  Bytes total = 0;
  for (const flatshard::FileDigest& file : manifest.files) total += file.bytes;
  Progress progress("verify", total);
  for (const flatshard::FileDigest& file : manifest.files) check_file(faults, path, file, progress);
  static_cast<void>(open_checkpoint({path, manifest, {}}, safetensors::Mode::Strict));
}

/// What cannot be opened is no fault of the file's contents: it is thrown.
template <class Function>
void collect(Faults& faults, bool is_checkpoint, const Function& check) {
  try {
    check();
  } catch (const safetensors::FormatError& error) {
    faults.emplace_back(error.what());
  } catch (const flatshard::ManifestError& error) {
    faults.emplace_back(error.what());
  } catch (const flatshard::IoError& error) {
    const bool ends_early = error.code() == 0;
    const bool lacks_a_file = is_checkpoint && error.code() == ENOENT;
    if (!ends_early && !lacks_a_file) throw;
    faults.emplace_back(error.what());
  }
}

/// The checkpoints that a path stands for; none: plain files.
std::vector<std::string> checkpoints_at(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(path)) return {};
  if (fs::exists(path + "/" + flatshard::manifest_name)) return {path};
  std::vector<std::string> all;
  for (const std::int64_t step : flatshard::list_steps(flatshard::Folder::open(path)))
    all.push_back(path + "/" + flatshard::step_folder_name(step));
  return all;
}

}  // namespace

Outcome run_verify(const VerifyRequest& request) {
  Faults faults;
  const std::vector<std::string> checkpoints = checkpoints_at(request.path);
  std::string text;
  for (const std::string& path : checkpoints) {
    const std::size_t before = faults.size();
    collect(faults, true, [&] { check_checkpoint(faults, path); });
    if (faults.size() == before) text += path + ": valid, digests match\n";
  }
  if (checkpoints.empty())
    collect(faults, false, [&] {
      const Source source = open_source(request.path, safetensors::Mode::Strict);
      for (const std::string& warning : source.warnings())
        text += "warning: " + printable(warning) + "\n";
      text += fmt::format("{}: valid, {} tensors (no manifest, so no digests)\n", request.path,
                          source.parts[0].set.tensors().size());
    });
  for (const std::string& fault : faults) text += "invalid: " + printable(fault) + "\n";
  return {text, faults.empty() ? success : differs};
}

}  // namespace flatshard_tool
