#include "value.hpp"

#include <doctest/doctest.h>

#include <random>

#include "error.hpp"
#include "random.hpp"

namespace flatshard_tool {
namespace {

const char* const words[] = {
    "",     "no",  "null",  "~",     "1e5", "0x10", "a b",  "a: b",  "- a",
    "#no",  "'q'", "\"q\"", "on",    "12",  "-3.5", "x\ny", "é",     "{a}",
    "[a]",  "&a",  "*a",    "!t",    "%d",  "@a",   "a,b",  "/path", "LlamaDecoderLayer",
    "true", "Off", ".5",    "1_000", "+1",  "inf",  "1:30", "=",     "<<"};

class Maker {
 public:
  explicit Maker(std::mt19937_64 generator) : generator_(generator) {}

  Value value(int level) {
    switch (below(level > 3 ? 5 : 7)) {
      case 0:
        return {};
      case 1:
        return below(2) == 0;
      case 2:
        return static_cast<std::int64_t>(generator_()) >> below(63);
      case 3:
        return std::uniform_real_distribution<double>(-1e6, 1e6)(generator_);
      case 4:
        return word();
      case 5:
        return list(level);
      default:
        return map(level);
    }
  }
  Value map(int level) {
    Map map;
    for (std::uint64_t i = below(4); i > 0; --i)
      map.emplace_back(word() + std::to_string(i), value(level + 1));
    return map;
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return generator_() % bound; }
  std::string word() { return words[below(std::size(words))]; }
  Value list(int level) {
    List list;
    for (std::uint64_t i = below(4); i > 0; --i) list.push_back(value(level + 1));
    return list;
  }

  std::mt19937_64 generator_;
};

TEST_CASE("what is written as JSON is read back") {
  Maker maker(flatshard_test::generator(1));
  for (int i = 0; i < 300; ++i) {
    const Value value = maker.value(0);
    CAPTURE(to_string(value));
    CHECK(parse_json(write_json(value), "written") == value);
    CHECK(parse_json(to_string(value), "written") == value);
  }
}

#ifdef FLATSHARD_TOOL_YAML
TEST_CASE("what is written as YAML is read back, and JSON is YAML") {
  Maker maker(flatshard_test::generator(2));
  for (int i = 0; i < 300; ++i) {
    const Value value = maker.map(0);
    CAPTURE(write_yaml(value));
    CHECK(parse_yaml(write_yaml(value), "written") == value);
    CHECK(parse_yaml(write_json(value), "written") == value);
  }
}

TEST_CASE("plain YAML words are what Accelerate takes them for, quoted ones are words") {
  CHECK(parse_yaml("no", "f") == Value(false));
  CHECK(parse_yaml("'no'", "f") == Value("no"));
  CHECK(parse_yaml("\"12\"", "f") == Value("12"));
  CHECK(parse_yaml("+12", "f") == Value(12));
  CHECK(parse_yaml("1e8", "f") == Value(1e8));
  CHECK(parse_yaml("", "f").is_null());
}
#endif

TEST_CASE("whole JSON numbers stay whole, larger ones do not wrap") {
  CHECK(parse_json("9223372036854775807", "f") == Value(std::int64_t{9223372036854775807}));
  CHECK(parse_json("9223372036854775808", "f") == Value(9223372036854775808.0));
  CHECK_THROWS_AS(parse_json("1e999", "f"), RequestError);
  CHECK_THROWS_AS(parse_json("{\"a\": 1, \"\\u0061\": 2}", "f"), RequestError);
}

}  // namespace
}  // namespace flatshard_tool
