#include <flatshard/checkpoint/manifest.hpp>
#include <flatshard/io/crc32c.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "random.hpp"
#include "scratch_folder.hpp"

using namespace flatshard;

namespace {

/// Every member filled in.
Manifest full() {
  Manifest manifest;
  manifest.library = "1.2.3";
  manifest.save_id = "0123456789abcdef";
  manifest.step = 1234;
  manifest.world = 8;
  manifest.strategy = "FullShard";
  manifest.precision = "Bf16Mixed";
  manifest.optimizer = OptimizerRecord{
      "adamw", {"exp_avg", "exp_avg_sq"}, {{{{"lr", 0.25}, {"eps", 1e-8}}}, {}}, 1230, {{"b", 7}}};
  manifest.loss_scaler = LossScaler::deepspeed();
  manifest.seed = 0xfedcba9876543210;
  manifest.ties = {{"head", "a"}};
  manifest.user = {{"position", "17"}, {"text \"quoted\"\n\t\\", "\xc3\xa4\xe2\x82\xac \x01"}};
  manifest.files = {{"model.safetensors",
                     5000,
                     4096,
                     0xdeadbeef,
                     {{"a", "F32", {2, 3}, 1}, {"b", "BF16", {}, 0}, {"c", "I64", {0, 5}, 7}}},
                    {"optimizer.safetensors", 4096, 4096, 0, {}}};
  return manifest;
}

/// The text with another digest at its end, for what must be refused for another reason.
std::string sealed(std::string text) {
  text.resize(text.rfind(",\n  \"crc32c\""));
  const std::uint32_t digest = crc32c(std::as_bytes(std::span(text)));
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", digest);
  return text + ",\n  \"crc32c\": \"" + digits + "\"\n}\n";
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, from);
  return text.substr(0, at) + to + text.substr(at + from.size());
}

/// What from_json says about the full manifest after a replacement; empty when it takes it.
std::string complaint(const std::string& from, const std::string& to,
                      const ManifestLimits& limits = {}) {
  try {
    from_json(sealed(replaced(to_json(full()), from, to)), "m", limits);
    return "";
  } catch (const ManifestError& error) {
    CHECK(error.path() == "m");
    CHECK(std::string(error.what()).starts_with("m: "));
    return error.what();
  }
}

bool complains(const std::string& from, const std::string& to, const std::string& words) {
  const std::string text = complaint(from, to);
  const bool good = text.find(words) != std::string::npos;
  if (!good) MESSAGE(from << " -> " << to << ": " << text);
  return good;
}

std::string refusal(const Manifest& manifest) {
  try {
    to_json(manifest);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

}  // namespace

TEST_CASE("a manifest comes back as it was, and its text does not vary") {
  for (Manifest manifest : {full(), Manifest{}}) {
    if (manifest.save_id.empty()) manifest.save_id = "00000000000000ff";
    const std::string text = to_json(manifest);
    CHECK(to_json(manifest) == text);
    const Manifest back = from_json(text);
    if (manifest.library.empty()) manifest.library = "0.1.0";
    CHECK(back == manifest);
    CHECK(to_json(back) == text);
  }
  CHECK(full().find_file("model.safetensors")->bytes == 5000);
  CHECK(full().find_file("none") == nullptr);
}

TEST_CASE("doubles come back bit for bit, integers in all 64") {
  auto random = flatshard_test::generator();
  Manifest manifest = full();
  std::vector<double> values{0.0,
                             -0.0,
                             1.0,
                             -1.0,
                             1e22,
                             1e300,
                             0.1,
                             1.0 / 3,
                             9007199254740993.0,
                             std::numeric_limits<double>::denorm_min(),
                             std::numeric_limits<double>::max(),
                             std::numeric_limits<double>::min()};
  while (values.size() < 2000) {
    const auto value = std::bit_cast<double>(random());
    if (std::isfinite(value)) values.push_back(value);
  }
  auto& group = manifest.optimizer->groups[0].values;
  group.clear();
  for (std::size_t k = 0; k < values.size(); ++k) group.emplace_back(std::to_string(k), values[k]);
  manifest.seed = std::numeric_limits<std::uint64_t>::max();
  manifest.step = manifest.optimizer->time = std::numeric_limits<std::int64_t>::max();
  const Manifest back = from_json(to_json(manifest));
  for (std::size_t k = 0; k < values.size(); ++k)
    CHECK(same_bits(back.optimizer->groups[0].values[k].second, values[k]));
  CHECK(back.seed == manifest.seed);
  CHECK(back.step == manifest.step);
  CHECK(back.optimizer->time == manifest.step);
}

TEST_CASE("every loss scaler comes back") {
  auto random = flatshard_test::generator();
  for (LossScaler scaler : {LossScaler::constant(1), LossScaler::torch(), LossScaler::deepspeed(),
                            LossScaler::deepspeed(1 << 20, 3, 5, 0.25, true, false)}) {
    for (int k = 0; k < 50; ++k) scaler.update(random() % 4 != 0);
    Manifest manifest = full();
    manifest.loss_scaler = scaler;
    CHECK(from_json(to_json(manifest)).loss_scaler == scaler);
  }
}

TEST_CASE("every flipped bit, every missing end and every addition is noticed") {
  const std::string text = to_json(full());
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string other = text;
    other[at] = static_cast<char>(other[at] ^ (1 << (at % 8)));
    CHECK_THROWS_AS(from_json(other), ManifestError);
  }
  for (std::size_t size = 0; size < text.size(); ++size)
    CHECK_THROWS_AS(from_json(text.substr(0, size)), ManifestError);
  for (const char* more : {" ", "\n", "x", "{}"})
    CHECK_THROWS_AS(from_json(text + more), ManifestError);
}

TEST_CASE("what is no manifest of this version is refused by name") {
  CHECK(complains("\"version\": 1", "\"version\": 2", "\"version\": 1, the one version known"));
  CHECK(complains("\"version\": 1", "\"version\": 1.0", "the one version known"));
  CHECK(complains("\"version\": 1", "\"version\": 2, \"news\": 1", "the one version known"));
  CHECK(
      complains("flatshard checkpoint", "something else", "\"flatshard checkpoint\" was expected"));
  CHECK(complains("\"version\": 1", "\"step\": 1", "the first members"));
  for (const char* text : {"", "[]", "1", "null", "\"x\"", "{", "{}", "{\"format\": []}"})
    CHECK_THROWS_AS(from_json(text), ManifestError);
  for (const char* text : {"null", "true", "a number", "a string"}) {
    const std::string given = std::string(text) == "a number"   ? "17"
                              : std::string(text) == "a string" ? "\"x\""
                                                                : text;
    CHECK_THROWS_WITH(from_json(given, "m"),
                      doctest::Contains((std::string("expected, not ") + text).c_str()));
  }
}

TEST_CASE("unknown, repeated and missing members are refused") {
  CHECK(complains("\"step\": 1234", "\"step\": 1234, \"epoch\": 1", "unknown key \"epoch\""));
  CHECK(complains("\"step\": 1234", "\"step\": 1234, \"step\": 1234", "step"));
  CHECK(complains("\"step\": 1234", "\"step\": 1234, \"\\u0073tep\": 1234", "step"));
  CHECK(complains("\"step\": 1234,", "", "a member is missing"));
  CHECK(complains("\"dtype\": \"F32\", ", "", "a member is missing"));
  CHECK(complains("\"dtype\": \"F32\"", "\"type\": \"F32\"", "unknown key \"type\""));
  CHECK(complains("\"good_steps\": 0, ", "", "a member is missing"));
  CHECK(complains("\"b\": 7", "\"b\": 7, \"b\": 7", "b"));
  CHECK(
      complains("\"position\": \"17\"", "\"position\": \"17\", \"position\": \"18\"", "position"));
}

TEST_CASE("members of another kind are refused") {
  for (const char* value : {"\"1\"", "1.0", "1e3", "true", "null", "[]", "{}",
                            "9223372036854775808", "-1", "01", "0x1"})
    CHECK(complaint("\"step\": 1234", std::string("\"step\": ") + value) != "");
  for (const char* value : {"-1", "18446744073709551616", "1.0", "\"1\""})
    CHECK(complaint("\"seed\": 18364758544493064720", std::string("\"seed\": ") + value) != "");
  for (const char* value : {"1", "\"DEADBEEF\"", "\"deadbee\"", "\"deadbeef0\"", "\"0xadbeef\""})
    CHECK(complaint("\"deadbeef\"", value) != "");
  CHECK(complaint("[2, 3]", "[2, -3]") != "");
  CHECK(complaint("[2, 3]", "[2, 3.0]") != "");
  CHECK(complaint("[2, 3]", "[2, [3]]") != "");
  CHECK(complaint("[2, 3]", "{}") != "");
  CHECK(complaint("[2, 3]", "6") != "");
  CHECK(complaint("\"position\": \"17\"", "\"position\": 17") != "");
  CHECK(complaint("\"position\": \"17\"", "\"position\": {}") != "");
  CHECK(complaint("\"lr\": 0.25", "\"lr\": \"x\"") != "");
  CHECK(complaint("\"lr\": 0.25", "\"lr\": 9007199254740993") != "");
  CHECK(complaint("\"lr\": 0.25", "\"lr\": 1e400") != "");
  CHECK(complaint("\"lr\": 0.25", "\"lr\": 3") == "");
  CHECK(complaint("\"lr\": 0.25", "\"lr\": -3") == "");
  CHECK(complaint("\"scale\": 65536.0", "\"scale\": 0.1") != "");  // no float
  CHECK(complaint("\"rule\": \"deepspeed\"", "\"rule\": \"other\"") != "");
  CHECK(complaint("\"consecutive\": false", "\"consecutive\": 0") != "");
  CHECK(complaint("\"F32\"", "\"F\xff\"") != "");
}

TEST_CASE("a manifest that contradicts itself is neither read nor written") {
  CHECK(complains("\"name\": \"b\"", "\"name\": \"a\"", "tensor \"a\" twice"));
  CHECK(
      complains("optimizer.safetensors", "model.safetensors", "file \"model.safetensors\" twice"));
  CHECK(complains("optimizer.safetensors", "../x", "cannot be part"));
  CHECK(complains("optimizer.safetensors", "/etc/passwd", "cannot be part"));
  CHECK(complains("optimizer.safetensors", "manifest.json", "cannot be part"));
  CHECK(complains("\"bytes\": 5000", "\"bytes\": 4095", "4096 bytes of header in 4095"));
  CHECK(complains("\"head\": \"a\"", "\"head\": \"z\"", "\"z\", which is no tensor"));
  CHECK(complains("\"head\": \"a\"", "\"b\": \"a\"", "alias \"b\" is a tensor of its own"));
  CHECK(complains("\"world\": 8", "\"world\": 0", "world of 0 ranks"));
  CHECK(complains("0123456789abcdef", "0123456789abcdeg", "save_id"));
  CHECK(complains("\"step\": 1234", "\"step\": -1234", "negative"));
  CHECK(complains("\"growth\": 2.0", "\"growth\": 0.5", "loss scaler"));
  CHECK(complains("\"time\": 1230", "\"time\": -1", "time -1 is negative"));

  Manifest manifest = full();
  CHECK(refusal(manifest) == "");
  manifest.user.push_back(manifest.user[0]);
  CHECK(refusal(manifest).find("user data \"position\" twice") != std::string::npos);
  manifest = full(), manifest.files[0].tensors[0].shape[0] = -1;
  CHECK(refusal(manifest).find("negative dimension") != std::string::npos);
  manifest = full(), manifest.optimizer->groups[0].values[0].second = INFINITY;
  CHECK(refusal(manifest).find("cannot be written") != std::string::npos);
  manifest = full(), manifest.optimizer->groups[0].values[1].first = "lr";
  CHECK(refusal(manifest).find("hyper-parameter \"lr\" twice") != std::string::npos);
  manifest = full(), manifest.optimizer->times = {{"a", 1}, {"a", 2}};
  CHECK(refusal(manifest).find("\"a\" twice") != std::string::npos);
  manifest = full(), manifest.optimizer->times = {{"a", -1}};
  CHECK(refusal(manifest).find("negative") != std::string::npos);
  manifest = full(), manifest.ties.push_back(manifest.ties[0]);
  CHECK(refusal(manifest).find("alias \"head\" twice") != std::string::npos);
  manifest = full(), manifest.strategy = "\xff";
  CHECK(refusal(manifest).find("UTF-8") != std::string::npos);
  manifest = full(), manifest.version = 2;
  CHECK(refusal(manifest).find("version 2") != std::string::npos);
}

TEST_CASE("limits hold before anything is stored") {
  const std::string text = to_json(full());
  const auto refuses = [&](const ManifestLimits& limits) {
    try {
      from_json(text, "m", limits);
      return false;
    } catch (const ManifestError&) {
      return true;
    }
  };
  CHECK_FALSE(refuses({}));
  CHECK_FALSE(refuses({.bytes = static_cast<Bytes>(text.size()),
                       .tensors = 3,
                       .entries = 2,
                       .string_bytes = 24,
                       .dimensions = 2}));
  CHECK(refuses({.bytes = static_cast<Bytes>(text.size()) - 1}));
  CHECK(refuses({.tensors = 2}));
  CHECK(refuses({.entries = 1}));
  CHECK(refuses({.string_bytes = 20}));
  CHECK(refuses({.dimensions = 1}));
  const std::string deep = "{\"format\": " + std::string(1000000, '[');
  CHECK_THROWS_AS(from_json(deep), ManifestError);
}

TEST_CASE("the error says where") {
  const std::string text = replaced(to_json(full()), "\"step\": 1234", "\"step\": true");
  try {
    from_json(text, "m");
    FAIL("was taken");
  } catch (const ManifestError& error) {
    CHECK(error.offset() == static_cast<Bytes>(text.find("true") + 4));
    CHECK(std::string(error.what()) ==
          "m: member \"step\": an integer was expected, at byte " + std::to_string(error.offset()));
  }
}

TEST_CASE("a manifest is read from its folder") {
  const flatshard_test::ScratchFolder scratch;
  CHECK_THROWS_AS(read_manifest(scratch.path()), IoError);
  const std::string text = to_json(full());
  File file = File::create(scratch / manifest_name);
  file.write(0, std::as_bytes(std::span(text)));
  CHECK(read_manifest(scratch.path()) == full());
  CHECK_THROWS_AS(read_manifest(scratch.path(), posix_file_operations(), {.bytes = 10}),
                  ManifestError);
}
