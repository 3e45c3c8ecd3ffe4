#include "targets.hpp"

#include <flatshard/checkpoint/manifest.hpp>
#include <flatshard/checkpoint/safetensors.hpp>
#include <flatshard/checkpoint/shard_index.hpp>
#include <flatshard/io/crc32c.hpp>
#include <flatshard/io/folder.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace flatshard_test {
namespace {

using namespace flatshard::safetensors;
using flatshard::Bytes;

void require(bool holds, const char* promise) {
  if (!holds) throw std::logic_error(promise);
}

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::optional<Header> parsed(std::span<const std::byte> bytes, Mode mode) {
  try {
    return parse_header(bytes, static_cast<Bytes>(bytes.size()), {}, mode);
  } catch (const FormatError&) {
    return std::nullopt;
  }
}

void check_tensors(const Header& header, std::span<const std::byte> bytes) {
  const auto data = bytes.subspan(static_cast<std::size_t>(header.data_begin));
  Bytes end = 0;
  unsigned touched = 0;
  for (const TensorEntry& tensor : header.tensors) {
    require(tensor.begin == end, "tensors follow each other");
    end = tensor.end;
    const Bytes size = end - tensor.begin;
    require(size * 8 == elements_of(tensor.shape) * info(tensor.type).bits, "bytes fit the shape");
    require(header.find(tensor.name) == &tensor, "a tensor is found by its name");
    for (const std::byte byte :
         data.subspan(static_cast<std::size_t>(tensor.begin), static_cast<std::size_t>(size)))
      touched |= std::to_integer<unsigned>(byte);
  }
  require(touched < 256 && end == static_cast<Bytes>(data.size()), "tensors cover the data");
}

void check_header(std::span<const std::byte> bytes) {
  const auto strict = parsed(bytes, Mode::Strict);
  const auto compatible = parsed(bytes, Mode::Compatible);
  if (compatible) check_tensors(*compatible, bytes);
  if (!strict) return;
  require(compatible == strict, "the compatible mode accepts what the strict one does");
  Header written = *strict;
  const Bytes room = 6 * written.data_begin + 4096;  // an escape is at most six times its byte
  written.data_begin += room;
  written.file_bytes += room;
  const std::string text = encode(written);
  require(parse_header(as_bytes(text), written.file_bytes) == written, "encode is undone");
}

/// The same bytes as a file whose header's length is right: it ends behind the last brace.
std::string framed(std::span<const std::byte> bytes) {
  std::string file = text_of(bytes);
  const std::size_t brace = file.rfind('}');
  const std::uint64_t length = brace == file.npos || brace < 8 ? file.size() - 8 : brace + 1 - 8;
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i) & 0xFF);
  return file;
}

/// A manifest's text with the digest that it ought to have.
std::string with_digest(const std::string& text) {
  char digest[40];
  std::snprintf(digest, sizeof digest, ",\n  \"crc32c\": \"%08x\"\n}\n",
                static_cast<unsigned>(flatshard::crc32c(as_bytes(text))));
  return text + digest;
}

bool check_manifest(const std::string& text) {
  try {
    const flatshard::Manifest manifest = flatshard::from_json(text);
    require(flatshard::from_json(flatshard::to_json(manifest)) == manifest, "to_json is undone");
    return true;
  } catch (const flatshard::ManifestError&) {
    return false;
  }
}

}  // namespace

void fuzz_header(std::span<const std::byte> bytes) {
  check_header(bytes);
  if (bytes.size() >= 8) check_header(as_bytes(framed(bytes)));
}

void fuzz_index(std::span<const std::byte> bytes) {
  try {
    const ShardIndex index = parse_index(bytes);
    for (const auto& [tensor, file] : index.weight_map)
      require(flatshard::is_plain_name(file), "files lie beside the index");
    require(parse_index(as_bytes(encode(index))) == index, "encode is undone");
  } catch (const FormatError&) {
  }
}

void fuzz_manifest(std::span<const std::byte> bytes) {
  const std::string text = text_of(bytes);
  check_manifest(text);
  check_manifest(with_digest(text.substr(0, text.rfind(",\n  \"crc32c\""))));
}

}  // namespace flatshard_test
