#include <doctest/doctest.h>

#include <flatshard/checkpoint/safetensors.hpp>
#include <flatshard/core/error.hpp>

#include "checkpoint/frame.hpp"
#include "random.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

using namespace flatshard::safetensors;
using flatshard::Bytes;
using flatshard::UsageError;

namespace {

Header read_back(const Header& header) {
  const std::string bytes = encode(header);
  return parse_header(std::as_bytes(std::span(bytes)), header.file_bytes);
}

/// Any UTF-8, escapes and all; the number makes it unique.
std::string random_name(std::mt19937_64& random, std::size_t number) {
  static const std::vector<std::string> pieces{"h.",         "\"",   "\\",   "/",      "\n",
                                               "\x01",       "\x1f", "\x7f", "\u00e9", "\u5c64",
                                               "\U0001F600", " ",    "{",    "\\u0041"};
  std::string name;
  for (std::uint64_t i = random() % 8; i > 0; --i) name += pieces[random() % pieces.size()];
  return name + std::to_string(number);
}

std::vector<TensorSpec> random_tensors(std::mt19937_64& random) {
  std::vector<TensorSpec> tensors(random() % 12);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    TensorSpec& tensor = tensors[i];
    tensor.name = random_name(random, i);
    tensor.type = stored_type_table[random() % stored_type_table.size()].type;
    for (std::uint64_t d = random() % 4; d > 0; --d)
      tensor.shape.push_back(static_cast<std::int64_t>(random() % 5));
    if (info(tensor.type).bits % 8 != 0) tensor.shape.push_back(4);  // whole bytes
  }
  return tensors;
}

}  // namespace

TEST_CASE("what is planned and encoded is read back equal, whatever the names") {
  auto random = flatshard_test::generator();
  for (int round = 0; round < 200; ++round) {
    const std::vector<TensorSpec> tensors = random_tensors(random);
    const Metadata metadata{{random_name(random, 0), random_name(random, 1)}};
    const Header header = plan_header(tensors, metadata);
    CHECK(read_back(header) == header);
    CHECK(encode(header) == encode(plan_header(tensors, metadata)));
    CHECK(header.tensors.size() == tensors.size());
    for (const TensorSpec& tensor : tensors) {
      const TensorEntry* entry = header.find(tensor.name);
      REQUIRE(entry);
      CHECK(entry->type == tensor.type);
      CHECK(entry->shape == tensor.shape);
    }
  }
}

TEST_CASE("the data section starts at a multiple of 4096, the file with a brace") {
  for (const std::size_t name : {0u, 1u, 3950u, 3990u, 4000u, 4096u}) {
    CAPTURE(name);
    const Header header = plan_header({{std::string(name, 'n'), StoredType::F32, {3}}});
    const std::string bytes = encode(header);
    CHECK(header.data_begin % data_alignment == 0);
    CHECK(static_cast<Bytes>(bytes.size()) == header.data_begin);
    CHECK(header.file_bytes == header.data_begin + 12);
    CHECK(bytes[8] == '{');
    CHECK(bytes.find_last_not_of(' ') == bytes.rfind('}'));
    CHECK(header.data_begin - data_alignment < static_cast<Bytes>(bytes.rfind('}') + 1));
  }
}

TEST_CASE("the text is the format's plainest") {
  const Header header =
      plan_header({{"a\"\x01", StoredType::BF16, {2, 3}}, {"s", StoredType::F64, {}}});
  const std::string bytes = encode(header);
  const std::string json = bytes.substr(8, bytes.rfind('}') - 7);
  CHECK(json ==
        R"({"__metadata__":{"format":"pt"},"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
        R"("a\"\u0001":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]}})");
}

TEST_CASE("tensors keep their order among equal widths and start aligned") {
  const Header header = plan_header({{"u8", StoredType::U8, {3}},
                                     {"f32", StoredType::F32, {1}},
                                     {"bf16", StoredType::BF16, {1}},
                                     {"i32", StoredType::I32, {1}},
                                     {"f4", StoredType::F4, {2}},
                                     {"f64", StoredType::F64, {1}}});
  std::vector<std::string> names;
  for (const TensorEntry& tensor : header.tensors) {
    names.push_back(tensor.name);
    CHECK(tensor.begin % std::max(1, info(tensor.type).bits / 8) == 0);
  }
  CHECK(names == std::vector<std::string>{"f64", "f32", "i32", "bf16", "u8", "f4"});
}

TEST_CASE("metadata of the caller stays; a format of the caller's own too") {
  CHECK(plan_header({}).metadata == Metadata{{"format", "pt"}});
  CHECK(plan_header({}, {{"a", "b"}}).metadata == Metadata{{"format", "pt"}, {"a", "b"}});
  CHECK(plan_header({}, {{"a", "b"}, {"format", "np"}}).metadata ==
        Metadata{{"a", "b"}, {"format", "np"}});
  CHECK(read_back(plan_header({})) == plan_header({}));
}

TEST_CASE("what no strict reader would take back is refused") {
  const auto plan = [](const std::string& name, StoredType type = StoredType::U8,
                       std::vector<std::int64_t> shape = {1}) {
    return plan_header({{name, type, std::move(shape)}});
  };
  CHECK_THROWS_AS(plan("__metadata__"), UsageError);
  CHECK_THROWS_AS(plan(std::string("a\0b", 3)), UsageError);
  CHECK_THROWS_AS(plan(std::string(4097, 'n')), UsageError);
  CHECK_NOTHROW(plan(std::string(4096, 'n')));
  for (const char* bad :
       {"\xff", "\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
        "\xf8\x88\x80\x80\x80", "\x80", "a\xe2\x82", "\xf0\x80\x80\xaf", "\xc3("})
    CHECK_THROWS_AS(plan(bad), UsageError);
  CHECK_THROWS_AS(plan("a", StoredType::U8, {-1}), UsageError);
  CHECK_THROWS_AS(plan("a", StoredType::F4, {3}), UsageError);
  CHECK_THROWS_AS(plan("a", StoredType::U8, std::vector<std::int64_t>(65, 1)), UsageError);
  CHECK_NOTHROW(plan("a", StoredType::U8, std::vector<std::int64_t>(64, 1)));
  constexpr std::int64_t large = std::int64_t{1} << 32;
  CHECK_THROWS_AS(plan("a", StoredType::U8, {large, large}), UsageError);
  CHECK_THROWS_AS(plan("a", StoredType::F32, {large, large / 16}), UsageError);
  CHECK_THROWS_AS(plan_header({{"a", StoredType::U8, {}}, {"a", StoredType::I8, {}}}), UsageError);
  CHECK_THROWS_AS(plan_header({}, {{"k", "1"}, {"k", "2"}}), UsageError);
  CHECK_THROWS_AS(plan_header({}, {{"k", "\xff"}}), UsageError);
}

TEST_CASE("sizes that overflow a file and headers above the limit are refused") {
  constexpr std::int64_t largest = (std::int64_t{1} << 60) - 1;  // bytes: 2^63 bits less a few
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < 8; ++i) tensors.push_back({std::to_string(i), StoredType::U8, {largest}});
  CHECK_NOTHROW(plan_header({tensors.begin(), tensors.end() - 1}));
  CHECK_THROWS_AS(plan_header(tensors), UsageError);  // the data would fit, not with the header
  tensors.push_back({"8", StoredType::U8, {largest}});
  CHECK_THROWS_AS(plan_header(tensors), UsageError);
  CHECK_THROWS_WITH_AS(plan_header(std::vector<TensorSpec>(1'000'001)),
                       "plan_header: more tensors than 1000000", UsageError);
  const auto room = static_cast<std::size_t>(ReadLimits{}.header_bytes);
  CHECK_THROWS_AS(plan_header({}, {{"k", std::string(room, 'v')}}), UsageError);
}

TEST_CASE("a header is encoded into the room that it has, or not at all") {
  Header header = plan_header({{"a", StoredType::U8, {4}}});
  header.data_begin = 8 + 89;
  header.file_bytes = header.data_begin + 4;
  CHECK(read_back(header) == header);
  header.data_begin = 8 + 70;
  CHECK_THROWS_AS(encode(header), UsageError);
}
