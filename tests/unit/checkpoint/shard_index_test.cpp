#include <doctest/doctest.h>

#include <flatshard/checkpoint/shard_index.hpp>
#include <flatshard/core/error.hpp>

#include "random.hpp"

#include <algorithm>
#include <string>
#include <vector>

using namespace flatshard::safetensors;
using flatshard::Bytes;
using flatshard::UsageError;

namespace {

ShardIndex parse(const std::string& text, const ReadLimits& limits = {}) {
  return parse_index(std::as_bytes(std::span(text)), limits, "dir/index.json");
}

TensorSpec tensor_of(const std::string& name, std::int64_t bytes) {
  return {name, StoredType::U8, {bytes}};
}

std::vector<TensorSpec> tensors_of(const std::vector<std::int64_t>& sizes) {
  std::vector<TensorSpec> tensors;
  for (const std::int64_t size : sizes)
    tensors.push_back(tensor_of(std::to_string(tensors.size()), size));
  return tensors;
}

/// "0 1|2": names of each file's tensors.
std::string split(const std::vector<std::int64_t>& sizes, Bytes max_bytes) {
  std::string text;
  for (const auto& file : split_into_files(tensors_of(sizes), max_bytes)) {
    if (!text.empty()) text += '|';
    for (const TensorSpec& tensor : file) text += tensor.name;
  }
  return text;
}

}  // namespace

TEST_CASE("an index is read as it is written") {
  const ShardIndex index{12, {{"b\"", "model-00001-of-00002.safetensors"}, {"a", "x"}}};
  const std::string text = encode(index);
  CHECK(parse(text) == index);
  CHECK(text ==
        "{\n  \"metadata\": {\n    \"total_size\": 12\n  },\n  \"weight_map\": {\n"
        "    \"b\\\"\": \"model-00001-of-00002.safetensors\",\n    \"a\": \"x\"\n  }\n}\n");
  const ShardIndex bare{std::nullopt, {}};
  CHECK(parse(encode(bare)) == bare);
}

TEST_CASE("what parse_index would refuse is not encoded") {
  CHECK_THROWS_AS(encode(ShardIndex{-1, {}}), UsageError);
  CHECK_THROWS_AS(encode(ShardIndex{1, {{"a", "../x"}}}), UsageError);
  CHECK_THROWS_AS(encode(ShardIndex{1, {{"a", "x"}, {"a", "y"}}}), UsageError);
  CHECK_THROWS_AS(encode(ShardIndex{1, {{std::string("\0", 1), "x"}}}), UsageError);
  CHECK_THROWS_AS(encode(ShardIndex{1, {{"\xff", "x"}}}), UsageError);
}

TEST_CASE("an error of an index names path, byte, tensor and fault") {
  const std::string text = R"({"weight_map":{"a":"x","b":"../x"}})";
  try {
    parse(text);
    FAIL("accepted");
  } catch (const FormatError& error) {
    CHECK(error.kind() == Fault::InvalidFileName);
    CHECK(error.path() == "dir/index.json");
    CHECK(error.tensor() == "b");
    CHECK(error.offset() == static_cast<Bytes>(text.find("../x") + 5));
  }
  try {
    parse(R"({"weight_map":{"a":"x"},"weight_map":{}})");
    FAIL("accepted");
  } catch (const FormatError& error) {
    CHECK(error.kind() == Fault::DuplicateKey);
    CHECK(error.tensor() == "");
    CHECK(error.offset() == 36);
  }
}

TEST_CASE("limits of an index are the caller's") {
  const std::string text = R"({"weight_map":{"aa":"x","bb":"x"}})";
  const auto size = static_cast<Bytes>(text.size());
  const ReadLimits exact{.tensors = 2, .name_bytes = 2, .depth = 2, .index_bytes = size};
  CHECK(parse(text, exact).weight_map.size() == 2);
  const auto fault_with = [&](auto tighten) {
    ReadLimits limits = exact;
    tighten(limits);
    try {
      parse(text, limits);
    } catch (const FormatError& error) {
      return std::string(name_of(error.kind()));
    }
    return std::string("accept");
  };
  CHECK(fault_with([](ReadLimits& l) { --l.tensors; }) == "TooManyTensors");
  CHECK(fault_with([](ReadLimits& l) { --l.name_bytes; }) == "InvalidName");
  CHECK(fault_with([](ReadLimits& l) { --l.depth; }) == "TooDeep");
  CHECK(fault_with([](ReadLimits& l) { --l.index_bytes; }) == "IndexTooLarge");
}

TEST_CASE("files are named as Hugging Face's libraries name them") {
  CHECK(shard_file_name("model", 0, 1) == "model.safetensors");
  CHECK(shard_file_name("model", 0, 2) == "model-00001-of-00002.safetensors");
  CHECK(shard_file_name("optimizer", 99998, 99999) == "optimizer-99999-of-99999.safetensors");
  CHECK_THROWS_AS(shard_file_name("model", 1, 1), UsageError);
  CHECK_THROWS_AS(shard_file_name("model", -1, 1), UsageError);
  CHECK_THROWS_AS(shard_file_name("model", 0, 100000), UsageError);
}

TEST_CASE("tensors are split greedily in their order") {
  CHECK(split({}, 10) == "");
  CHECK(split({10}, 10) == "0");
  CHECK(split({11}, 10) == "0");
  CHECK(split({4, 6, 1}, 10) == "01|2");
  CHECK(split({4, 7, 3}, 10) == "0|12");
  CHECK(split({4, 11, 6}, 10) == "1|02");  // the large one alone; the open file stays open
  CHECK(split({11, 12}, 10) == "0|1");
  CHECK(split({0, 10, 0}, 10) == "012");
  CHECK(split_into_files({}, 1).size() == 1);
  CHECK_THROWS_AS(split_into_files({}, 0), UsageError);
  CHECK_THROWS_AS(split_into_files({tensor_of("a", std::int64_t{1} << 62)}, 1), UsageError);
}

TEST_CASE("a split loses nothing and keeps the limit") {
  auto random = flatshard_test::generator();
  for (int round = 0; round < 300; ++round) {
    std::vector<std::int64_t> sizes(random() % 20);
    for (std::int64_t& size : sizes) size = static_cast<std::int64_t>(random() % 12);
    const Bytes limit = 1 + static_cast<Bytes>(random() % 15);
    std::vector<std::string> names, expected;
    for (const auto& file : split_into_files(tensors_of(sizes), limit)) {
      Bytes total = 0;
      for (const TensorSpec& tensor : file) {
        total += tensor.shape.at(0);
        names.push_back(tensor.name);
      }
      CHECK((total <= limit || file.size() == 1));
    }
    for (const TensorSpec& tensor : tensors_of(sizes)) expected.push_back(tensor.name);
    std::sort(names.begin(), names.end());
    std::sort(expected.begin(), expected.end());
    CHECK(names == expected);
  }
}
