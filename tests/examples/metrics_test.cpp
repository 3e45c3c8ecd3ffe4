#include "metrics.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "option_error.hpp"
#include "progress.hpp"
#include "random.hpp"

using namespace train_gpt;

namespace {

/// All that was written to a temporary file.
std::string contents(std::FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file))
    text.push_back(static_cast<char>(c));
  return text;
}

}  // namespace

TEST_CASE("plain decimals read back as the same number and have no exponent") {
  auto random = flatshard_test::generator();
  std::uniform_int_distribution<int> exponent{-300, 300};
  std::uniform_real_distribution<double> mantissa{-1, 1};
  for (int i = 0; i < 2000; ++i) {
    const double number = std::ldexp(mantissa(random), exponent(random));
    const std::string text = plain_decimal(number);
    CHECK(text.find_first_not_of("-.0123456789") == std::string::npos);
    CHECK(std::strtod(text.c_str(), nullptr) == number);
  }
  CHECK(plain_decimal(65536) == "65536");
  CHECK(plain_decimal(std::numeric_limits<double>::max()).size() == 309);
  CHECK(plain_decimal(-std::numeric_limits<double>::denorm_min()).size() > 320);
  CHECK(plain_decimal(std::numeric_limits<double>::infinity()) == "null");
  CHECK(plain_decimal(std::numeric_limits<double>::quiet_NaN()) == "null");
}

TEST_CASE("a step is one JSON object with every field") {
  const auto json = nlohmann::json::parse(to_json({12, 1.25, 1e-7, true, 32768, 1234.56, {}}));
  CHECK(json.size() == 6);
  CHECK(json["step"] == 12);
  CHECK(json["loss"] == 1.25);
  CHECK(json["grad_norm"] == 1e-7);
  CHECK(json["skipped"] == true);
  CHECK(json["loss_scale"] == 32768);
  CHECK(json["tokens_per_s"] == 1235);
}

TEST_CASE("a GPU adds its utilisation and its memory") {
  StepMetrics metrics{12, 1.25, 1e-7, false, 1, 1000, {}};
  metrics.device = DeviceMetrics{0.51239, 123456789012};
  const auto json = nlohmann::json::parse(to_json(metrics));
  CHECK(json.size() == 8);
  CHECK(json["mfu"] == 0.5124);
  CHECK(json["peak_device_bytes"] == 123456789012);
  metrics.device->mfu.reset();
  CHECK(nlohmann::json::parse(to_json(metrics))["mfu"].is_null());
}

TEST_CASE("a metrics file that cannot be written is refused") {
  CHECK_THROWS_AS(MetricsFile{"/nonexistent/folder/metrics"}, OptionError);
  MetricsFile none{""};
  none.write({});  // writes nothing
  none.finish(1);
}

TEST_CASE("progress: one line written over on a terminal, plain lines elsewhere") {
  for (const bool is_terminal : {false, true}) {
    std::FILE* file = std::tmpfile();
    REQUIRE(file);
    Progress progress{file, is_terminal, 45};
    StepMetrics step;
    for (step.step = 1; step.step <= 45; ++step.step) progress.show(step, 61.0);
    progress.finish(1.5, 10, 0xabc);
    const std::string text = contents(file);
    std::fclose(file);
    const auto count = [&](char c) { return std::count(text.begin(), text.end(), c); };
    CHECK(count('\r') == (is_terminal ? 45 : 0));
    CHECK(count('\n') == (is_terminal ? 2 : 4 + 1));  // steps 1, 20, 40, 45
    CHECK(text.find("1:01 left") != std::string::npos);
    CHECK(text.find("params_hash 0000000000000abc") != std::string::npos);
  }
}

TEST_CASE("the recent loss is the mean of the last 20") {
  RecentLoss recent;
  CHECK(recent.mean() == 0);
  for (int i = 0; i < 30; ++i) recent.add(i);
  CHECK(recent.mean() == doctest::Approx(19.5));
}

TEST_CASE("reports that come together are no steps made in no time") {
  const std::int64_t tokens = 1000;
  Throughput throughput{3, tokens};
  for (int step = 0; step < 3; ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    throughput.issued();
  }
  for (int step = 0; step < 3; ++step) {
    const double speed = throughput.tokens_per_s();
    CHECK(speed > 0);
    CHECK(speed <= tokens / 0.020);
  }
}
