#include <doctest/doctest.h>

#include <flatshard/checkpoint/safetensors.hpp>
#include <flatshard/checkpoint/shard_index.hpp>
#include <flatshard/checkpoint/tensor_set.hpp>
#include <flatshard/io/file.hpp>

#include "checkpoint/corpus.hpp"

#include <cstddef>
#include <span>
#include <string>

using namespace flatshard::safetensors;
using flatshard::Bytes;
using flatshard::File;
using flatshard_test::bytes_of;
using flatshard_test::corpus;
using flatshard_test::CorpusCase;

namespace {

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Header parse(const std::string& bytes, Mode mode) {
  return parse_header(as_bytes(bytes), static_cast<Bytes>(bytes.size()), {}, mode);
}

/// "accept" or the name of the fault that `read` throws.
template <class Read>
std::string verdict_of(Read read) {
  try {
    read();
    return "accept";
  } catch (const FormatError& error) {
    return std::string(name_of(error.kind()));
  }
}

}  // namespace

TEST_CASE("every file of the corpus gets its verdict, in both modes") {
  const auto cases = corpus("file");
  CHECK(cases.size() > 200);
  for (const CorpusCase& row : cases) {
    CAPTURE(row.path);
    const std::string bytes = bytes_of(row.path);
    Header header;
    CHECK(verdict_of([&] { header = parse(bytes, Mode::Strict); }) == row.strict);
    CHECK(header.warnings.empty());
    CHECK(verdict_of([&] { header = parse(bytes, Mode::Compatible); }) == row.compatible);
    CHECK(header.warnings.size() == row.warnings);
  }
}

TEST_CASE("reading a file gives what parsing its bytes gives; errors name the path") {
  for (const CorpusCase& row : corpus("file")) {
    CAPTURE(row.path);
    const std::string bytes = bytes_of(row.path);
    const File file = File::open_for_reading(row.path);
    Header header;
    try {
      header = read_header(file);
      CHECK(header == parse(bytes, Mode::Strict));
    } catch (const FormatError& error) {
      CHECK(name_of(error.kind()) == row.strict);
      CHECK(error.path() == row.path);
      CHECK(error.offset() >= 0);
      CHECK(error.offset() <= static_cast<Bytes>(bytes.size()));
    }
  }
}

TEST_CASE("an accepted header keeps the promises of its fields and survives being written") {
  for (const CorpusCase& row : corpus("file")) {
    if (row.strict != "accept") continue;
    CAPTURE(row.path);
    const std::string bytes = bytes_of(row.path);
    Header header = parse(bytes, Mode::Strict);
    CHECK(header.file_bytes == static_cast<Bytes>(bytes.size()));
    Bytes end = 0;
    for (const TensorEntry& tensor : header.tensors) {
      CHECK(tensor.begin == end);
      end = tensor.end;
      CHECK(header.find(tensor.name) == &tensor);
      CHECK((end - tensor.begin) * 8 == elements_of(tensor.shape) * info(tensor.type).bits);
    }
    CHECK(header.data_begin + end == header.file_bytes);
    header.data_begin += 1 << 16;  // room for a longer text of the same meaning
    header.file_bytes += 1 << 16;
    CHECK(parse_header(as_bytes(encode(header)), header.file_bytes) == header);
  }
}

TEST_CASE("no proper prefix of an accepted file is accepted") {
  for (const CorpusCase& row : corpus("file")) {
    const std::string bytes = bytes_of(row.path);
    if (row.strict != "accept" || bytes.size() > 1000) continue;
    CAPTURE(row.path);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      CAPTURE(size);
      CHECK_THROWS_AS(parse(bytes.substr(0, size), Mode::Compatible), FormatError);
    }
  }
}

TEST_CASE("every index of the corpus gets its verdict") {
  const auto cases = corpus("index");
  CHECK(cases.size() > 40);
  for (const CorpusCase& row : cases) {
    CAPTURE(row.path);
    const std::string text = bytes_of(row.path);
    ShardIndex index;
    CHECK(verdict_of([&] { index = parse_index(as_bytes(text)); }) == row.strict);
    if (row.strict == "accept") CHECK(parse_index(as_bytes(encode(index))) == index);
  }
}

TEST_CASE("every set of files of the corpus gets its verdict") {
  const auto cases = corpus("set");
  CHECK(cases.size() > 10);
  for (const CorpusCase& row : cases) {
    CAPTURE(row.path);
    std::size_t warnings = 0;
    CHECK(verdict_of([&] { warnings = TensorSet::open(row.path).warnings().size(); }) ==
          row.strict);
    CHECK(warnings == row.warnings);
  }
}
