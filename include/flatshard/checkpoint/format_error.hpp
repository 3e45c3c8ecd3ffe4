// What is wrong with a safetensors file, an index of shards, or a set of them.
#pragma once

#include <flatshard/core/error.hpp>
#include <flatshard/core/types.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace flatshard::safetensors {

/// What is wrong; each with its own test cases.
enum class Fault : std::uint8_t {
  // the frame of a file
  HeaderTooSmall,       // fewer than the 8 bytes of the header's length
  HeaderTooLarge,       // a length above the limit
  InvalidHeaderLength,  // a length past the end of the file
  // its JSON
  InvalidJson,   // not JSON: syntax, UTF-8, byte-order mark, NUL or anything else behind the object
  WrongType,     // JSON, but of another type than the format asks for here
  TooDeep,       // nested deeper than the limit
  DuplicateKey,  // the same key twice in one object, compared after decoding escapes
  MissingField,  // a tensor without dtype, shape or data_offsets; an index without weight_map
  UnknownField,  // a field that the format does not have
  InvalidNumber,  // anything but digits, without leading zeros, up to 2^63 - 1
  InvalidName,    // a name with a NUL, or above the limit
  // its tensors
  TooManyTensors,
  TooManyDimensions,
  UnknownType,       // a dtype that the format does not have
  ShapeOverflow,     // more elements or bits than 2^63 - 1, zeros in the shape aside
  Misaligned,        // elements of less than a byte that do not fill whole bytes
  SizeMismatch,      // data_offsets span other bytes than dtype and shape need
  InvalidOffset,     // overlap, hole, or end before begin
  IncompleteBuffer,  // the data section ends before or after the last tensor
  // sets of files
  IndexTooLarge,
  InvalidFileName,    // a shard's name that is not one plain component
  NotARegularFile,    // folder, FIFO, device, or a symbolic link where none may be
  MissingFile,        // the index names a file that is not there
  FileCountMismatch,  // a name says -of-N and the index has another number of files
  MissingTensor,      // the index maps a tensor to a file that lacks it
  UnmappedTensor,     // a file holds a tensor that the index does not map to it
};

/// "DuplicateKey" and so on.
std::string_view name_of(Fault fault);

/// what() names the path, the byte, the tensor (each where known), what was found, and the fault.
class FormatError : public Error {
 public:
  /// What is known about the place of a fault.
  struct Where {
    std::string path;      // empty: bytes in memory
    Bytes offset = -1;     // in that file: at, or just behind, the offending token; -1: none
    std::string tensor{};  // decoded name; empty: none
  };

  /// `message` says what was found.
  FormatError(Fault fault, const std::string& message, Where where, SourcePlace place = {});

  Fault kind() const noexcept { return fault_; }                        // which
  const std::string& path() const noexcept { return where_.path; }      // Where::path
  Bytes offset() const noexcept { return where_.offset; }               // Where::offset
  const std::string& tensor() const noexcept { return where_.tensor; }  // Where::tensor

 private:
  Fault fault_;
  Where where_;
};

}  // namespace flatshard::safetensors
