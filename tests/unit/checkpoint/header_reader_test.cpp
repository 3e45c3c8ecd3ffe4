#include <doctest/doctest.h>

#include <flatshard/checkpoint/safetensors.hpp>
#include <flatshard/core/error.hpp>
#include <flatshard/io/file.hpp>

#include "checkpoint/frame.hpp"
#include "scratch_folder.hpp"

#include <string>

using namespace flatshard::safetensors;
using flatshard::Bytes;
using flatshard_test::entry_json;
using flatshard_test::fault_of;
using flatshard_test::file_of;
using flatshard_test::parse_whole;
using flatshard_test::ScratchFolder;
using flatshard_test::write_file;

TEST_CASE("a header is read as it is written, tensors in the order of their bytes") {
  const std::string json = R"({"__metadata__":{"format":"pt","k\u0041":"v\n"},)"
                           R"("late":{"dtype":"F16","shape":[1,3],"data_offsets":[8,14]},)"
                           R"("early":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} )";
  const std::string file = file_of(json, std::string(14, 'x'));
  const Header header = parse_whole(file);
  CHECK(header.metadata == Metadata{{"format", "pt"}, {"kA", "v\n"}});
  REQUIRE(header.tensors.size() == 2);
  CHECK(header.tensors[0] == TensorEntry{"early", StoredType::F32, {2}, 0, 8});
  CHECK(header.tensors[1] == TensorEntry{"late", StoredType::F16, {1, 3}, 8, 14});
  CHECK(header.data_begin == static_cast<Bytes>(8 + json.size()));
  CHECK(header.file_bytes == static_cast<Bytes>(file.size()));
  CHECK(header.find("late") == &header.tensors[1]);
  CHECK(header.find("early") == &header.tensors[0]);
  CHECK(header.find("lat") == nullptr);
  CHECK(header.find("") == nullptr);
  CHECK(header.find("zzz") == nullptr);
}

TEST_CASE("numbers that no double holds stay exact") {
  const std::string shape = "9007199254740993,0";
  const Header header = parse_whole(file_of("{" + entry_json("a", "U8", shape, "0,0") + "}"));
  CHECK(header.tensors.at(0).shape == std::vector<std::int64_t>{9007199254740993, 0});
}

TEST_CASE("data need not be in memory, the header must") {
  const std::string file = file_of("{" + entry_json("a", "U8", "4", "0,4") + "}", "abcd");
  const auto bytes = std::as_bytes(std::span(file));
  const auto size = static_cast<Bytes>(file.size());
  CHECK(parse_header(bytes.first(file.size() - 4), size) == parse_whole(file));
  CHECK_THROWS_AS(parse_header(bytes.first(file.size() - 5), size), flatshard::UsageError);
  CHECK_THROWS_WITH_AS(parse_header(bytes.first(7), size), "parse_header: fewer than 8 bytes given",
                       flatshard::UsageError);
}

TEST_CASE("an error names the path, the byte, the tensor and the fault") {
  const std::string good = entry_json("a", "U8", "4", "0,4");
  const std::string json = "{" + good + "," + entry_json("b\\u0001", "U8", "-4", "4,8") + "}";
  const std::string file = file_of(json, "abcdefgh");
  try {
    parse_header(std::as_bytes(std::span(file)), static_cast<Bytes>(file.size()), {}, Mode::Strict,
                 "dir/x.safetensors");
    FAIL("accepted");
  } catch (const FormatError& error) {
    CHECK(error.kind() == Fault::InvalidNumber);
    CHECK(error.path() == "dir/x.safetensors");
    CHECK(error.tensor() == "b\x01");
    CHECK(error.offset() == static_cast<Bytes>(8 + json.find("-4") + 2));
    const std::string what = error.what();
    CHECK(what.find("dir/x.safetensors: byte ") == 0);
    CHECK(what.find("tensor \"b\\u0001\"") != what.npos);
    CHECK(what.find("(InvalidNumber)") != what.npos);
    CHECK(error.place().line > 0);
  }
}

TEST_CASE("the byte of an error is at or just behind what is wrong") {
  struct Case {
    std::string json;
    std::string up_to;  // the error is told at the end of this prefix
  };
  const std::string a = entry_json("a", "U8", "4", "0,4");
  for (const Case& c : {
           Case{"{" + a + ",\"a\":1}", "{" + a + ",\"a\""},              // duplicate
           Case{R"({"a":{"dtype":"X"}})", R"({"a":{"dtype":"X")"},       // unknown type
           Case{R"({"a":{"shape":[1,-2]}})", R"({"a":{"shape":[1,-2)"},  // number
           Case{R"({"a":{"y":1}})", R"({"a":{"y")"},                     // field
           Case{R"({"a":{}})", R"({"a":{})"},                            // missing
           Case{R"({"a":5})", R"({"a":5)"},                              // type
           Case{"{" + a + "}x", "{" + a + "}x"},                         // syntax
       }) {
    CAPTURE(c.json);
    const auto fault = fault_of(file_of(c.json, "abcd"));
    REQUIRE(fault);
    CHECK(fault->offset() == static_cast<Bytes>(8 + c.up_to.size()));
  }
}

TEST_CASE("an error outside of tensors names none") {
  const std::string a = entry_json("a", "U8", "4", "0,4");
  CHECK(fault_of(file_of("{" + a + R"(,"__metadata__":{"k":1}})", "abcd"))->tensor() == "");
  CHECK(fault_of(file_of("{" + a + R"(,"__metadata__":5})", "abcd"))->tensor() == "");
  CHECK(fault_of(file_of("{" + a + "} x", "abcd"))->tensor() == "");
  CHECK(fault_of(file_of("{" + a + "}", "abcde"))->tensor() == "");
  CHECK(fault_of(file_of("{" + a + ",\"b\":5}", "abcd"))->tensor() == "b");
  CHECK(fault_of(file_of("{" + a + "," + a + "}", "abcd"))->tensor() == "a");
  const std::string hole = entry_json("b", "U8", "4", "5,9");
  CHECK(fault_of(file_of("{" + a + "," + hole + "}", "abcdefghi"))->tensor() == "b");
}

TEST_CASE("limits are the caller's") {
  const std::string a = entry_json("a", "U8", "2,2", "0,4");
  const std::string b = entry_json("bb", "U8", "4", "4,8");
  const std::string file = file_of("{" + a + "," + b + "}", "abcdefgh");
  const auto header_bytes = static_cast<Bytes>(file.size()) - 16;
  const ReadLimits exact{
      .header_bytes = header_bytes, .tensors = 2, .name_bytes = 2, .dimensions = 2};
  CHECK_FALSE(fault_of(file, exact));
  const auto fault_with = [&](auto tighten) {
    ReadLimits limits = exact;
    tighten(limits);
    return fault_of(file, limits)->kind();
  };
  CHECK(fault_with([](ReadLimits& l) { --l.header_bytes; }) == Fault::HeaderTooLarge);
  CHECK(fault_with([](ReadLimits& l) { --l.tensors; }) == Fault::TooManyTensors);
  CHECK(fault_with([](ReadLimits& l) { --l.name_bytes; }) == Fault::InvalidName);
  CHECK(fault_with([](ReadLimits& l) { --l.dimensions; }) == Fault::TooManyDimensions);
  CHECK(fault_with([](ReadLimits& l) { l.depth = 2; }) == Fault::TooDeep);
  CHECK_FALSE(fault_of(file, {.depth = 3}));
}

TEST_CASE("a deep header is refused in bounded time and stack") {
  const std::string deep(300'000, '[');
  CHECK(fault_of(file_of(deep))->kind() == Fault::WrongType);
  const std::string in_field = R"({"a":{"x":)" + deep;
  CHECK(fault_of(file_of(in_field), {}, Mode::Compatible)->kind() == Fault::TooDeep);
  CHECK(fault_of(file_of(in_field), {.depth = 5'000'000}, Mode::Compatible)->kind() ==
        Fault::InvalidJson);
}

TEST_CASE("one long string or name is refused and the message stays short") {
  const std::string text(300'000, 'x');
  for (const std::string& json :
       {"{\"" + text, "{\"" + text + "\":1}", "{\"a\":{\"" + text + "\":1}}",
        "{\"a\":{\"dtype\":\"" + text + "\"}}", text}) {
    const auto fault = fault_of(file_of(json));
    REQUIRE(fault);
    CHECK(std::string(fault->what()).size() < 1000);
  }
}

TEST_CASE("many unknown fields give a bounded number of warnings") {
  std::string json = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4])";
  for (int i = 0; i < 250; ++i) json += ",\"x" + std::to_string(i) + "\":0";
  const std::string file = file_of(json + "}}", "abcd");
  const Header header = parse_header(std::as_bytes(std::span(file)),
                                     static_cast<Bytes>(file.size()), {}, Mode::Compatible);
  REQUIRE(header.warnings.size() == 101);
  CHECK(header.warnings.front().find("\"x0\"") != std::string::npos);
  CHECK(header.warnings.back().find("250") != std::string::npos);
}

TEST_CASE("a length that lies about a file reads nothing of it") {
  const ScratchFolder folder;
  const std::string path = folder / "lies.safetensors";
  write_file(path, file_of("{}", "", 90'000'000));
  const flatshard::File file = flatshard::File::open_for_reading(path);
  CHECK_THROWS_AS(read_header(file), FormatError);
  write_file(path, "1234567");
  CHECK_THROWS_AS(read_header(flatshard::File::open_for_reading(path)), FormatError);
}

TEST_CASE("a header of several pieces is read whole") {
  const ScratchFolder folder;
  const std::string path = folder / "long.safetensors";
  std::string json = "{\"__metadata__\":{\"k\":\"" + std::string(1'500'000, 'v') + "\"},";
  const std::string file = file_of(json + entry_json("a", "U8", "4", "0,4") + "}", "abcd");
  write_file(path, file);
  CHECK(read_header(flatshard::File::open_for_reading(path)) == parse_whole(file));
}
