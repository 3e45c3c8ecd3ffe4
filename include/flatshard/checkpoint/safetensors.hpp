// The safetensors file format: [8 bytes: N, little-endian][N bytes: JSON header][data section].
// The reader is stricter than the format's reference implementation: what it returns is safe to
// use.
#pragma once

#include <flatshard/checkpoint/format_error.hpp>
#include <flatshard/checkpoint/stored_type.hpp>
#include <flatshard/core/types.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace flatshard {
class File;
}

namespace flatshard::safetensors {

/// The data section of every file that we write starts at a multiple of this many bytes.
inline constexpr Bytes data_alignment = 4096;

/// One tensor of a file: row-major, little-endian, bytes [begin, end) of the data section.
struct TensorEntry {
  std::string name;                 // unique in the file
  StoredType type{};                // of its elements
  std::vector<std::int64_t> shape;  // empty: one element
  Bytes begin = 0;                  // in the data section
  Bytes end = 0;                    // in the data section

  friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

/// Elements of a shape (1 when empty). Requires that they fit, as they do in what the reader
/// returns.
std::int64_t elements_of(std::span<const std::int64_t> shape);

/// Strings in the order of the file; keys are unique.
using Metadata = std::vector<std::pair<std::string, std::string>>;

/// A checked header. Tensors are in the order of their bytes and cover the data section exactly:
/// tensors[0].begin == 0, tensors[i].begin == tensors[i-1].end,
/// data_begin + tensors.back().end == file_bytes, and end - begin == elements * bits / 8.
struct Header {
  Metadata metadata;                  // "__metadata__"
  std::vector<TensorEntry> tensors;   // in the order of their bytes
  std::vector<std::size_t> by_name;   // positions in tensors, names ascending
  Bytes data_begin = 0;               // of the data section in the file: 8 + N
  Bytes file_bytes = 0;               // of the whole file
  std::vector<std::string> warnings;  // what Mode::Compatible tolerated

  /// nullptr when there is no tensor of that name. Logarithmic.
  const TensorEntry* find(std::string_view name) const;

  friend bool operator==(const Header&, const Header&) = default;
};

/// Bounds on what a file may ask of its reader. The header's bytes bound everything else.
struct ReadLimits {
  Bytes header_bytes = 100'000'000;  // the reference implementation's limit
  std::int64_t tensors = 1'000'000;  // of a file
  std::int64_t name_bytes = 4096;    // of a tensor
  std::int64_t dimensions = 64;      // torch.Tensor's limit
  std::int64_t depth = 8;            // of nested JSON, in fields that Mode::Compatible skips
  Bytes index_bytes = 100'000'000;   // of a sharded set's index
};

/// How much a reader tolerates.
enum class Mode : std::uint8_t {
  Strict,     // every deviation is an error
  Compatible  // unknown fields of a tensor are skipped with a warning; all else as Strict
};

/// Reads and checks the header of a whole file of `file_bytes` bytes, of which `bytes` are the
/// first (the header at least; data need not be there). `path` is for messages. Throws FormatError.
/// Memory is a small multiple of the header's bytes that are really there.
Header parse_header(std::span<const std::byte> bytes, Bytes file_bytes,
                    const ReadLimits& limits = {}, Mode mode = Mode::Strict,
                    std::string_view path = {});

/// The same from an open file. Throws FormatError, IoError.
Header read_header(const File& file, const ReadLimits& limits = {}, Mode mode = Mode::Strict);

/// A tensor that is to be stored.
struct TensorSpec {
  std::string name;                 // unique in the file
  StoredType type{};                // of its elements
  std::vector<std::int64_t> shape;  // empty: one element
};

/// The header of a file with these tensors: the same on every rank that gives the same arguments.
/// Bytes are laid out in the given order, but wider element types first, so that each tensor starts
/// at a multiple of its element's size. data_begin % data_alignment == 0. `metadata` gets
/// {"format", "pt"} when it has no format. Throws UsageError on what no strict reader would take
/// back: a name twice, "__metadata__" as a tensor, NUL or invalid UTF-8 in a name, sizes that
/// overflow, a header above the limits.
Header plan_header(const std::vector<TensorSpec>& tensors, const Metadata& metadata = {});

/// The bytes [0, data_begin) of the file, padded with spaces behind the JSON object:
/// parse_header(encode(h), h.file_bytes) == h. Throws UsageError when the JSON text does not fit
/// into header.data_begin.
std::string encode(const Header& header);

}  // namespace flatshard::safetensors
