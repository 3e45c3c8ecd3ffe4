#include <flatshard/checkpoint/manifest.hpp>

#include <fmt/format.h>

#include <algorithm>

#include "manifest_handler.hpp"
#include "manifest_rules.hpp"

namespace flatshard {
namespace {

constexpr std::int64_t deepest = 6;  // text, files, file, tensors, tensor, shape

std::string message_of(const std::string& path, Bytes offset, const std::string& message) {
  return offset < 0 ? path + ": " + message
                    : fmt::format("{}: {}, at byte {}", path, message, offset);
}

void expect_digest(std::string_view text, const std::string& path) {
  const std::size_t tail = detail::digest_tail_bytes;
  const bool fits =
      text.size() > tail &&
      text.substr(text.size() - tail) == detail::digest_tail(text.substr(0, text.size() - tail));
  if (!fits)
    throw ManifestError(path, static_cast<Bytes>(text.size()),
                        "the CRC32C at the end is not that of the text: it was cut or changed");
}

Manifest parse(std::string_view text, const std::string& path, const ManifestLimits& limits) {
  detail::ManifestHandler handler(path, limits);
  try {
    detail::parse_json(text, deepest, handler);
  } catch (const detail::JsonError& error) {
    throw ManifestError(path, error.offset(), error.what());
  }
  return std::move(handler.manifest());
}

void expect_size(Bytes bytes, const std::string& path, const ManifestLimits& limits) {
  if (bytes > limits.bytes)
    throw ManifestError(path, -1, fmt::format("{} bytes, more than {}", bytes, limits.bytes));
}

}  // namespace

ManifestError::ManifestError(const std::string& path, Bytes offset, const std::string& message)
    : Error(message_of(path, offset, message)), path_(path), offset_(offset) {}

const FileDigest* Manifest::find_file(const std::string& name) const {
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const FileDigest& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

// The digest comes last: of another version, or of another program's file, the first fault is that.
Manifest from_json(std::string_view text, const std::string& path, const ManifestLimits& limits) {
  expect_size(static_cast<Bytes>(text.size()), path, limits);
  Manifest manifest = parse(text, path, limits);
  expect_digest(text, path);
  const std::string fault = detail::contradiction_in(manifest);
  if (!fault.empty()) throw ManifestError(path, -1, fault);
  return manifest;
}

Manifest read_manifest(const Folder& checkpoint, const ManifestLimits& limits) {
  const File file = checkpoint.open_for_reading(manifest_name);
  const Bytes bytes = file.size();
  expect_size(bytes, file.path(), limits);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return from_json(text, file.path(), limits);
}

Manifest read_manifest(const std::string& checkpoint, FileOperations& operations,
                       const ManifestLimits& limits) {
  return read_manifest(Folder::open(checkpoint, operations), limits);
}

}  // namespace flatshard
