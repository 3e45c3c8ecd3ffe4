#include "metrics.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "option_error.hpp"

namespace train_gpt {

std::string plain_decimal(double number) {
  if (!std::isfinite(number)) return "null";
  char digits[400];  // a double has at most 309 digits before the point, or 324 zeros after it
  const auto [end, error] =
      std::to_chars(digits, digits + sizeof digits, number, std::chars_format::fixed);
  return {digits, end};
}

namespace {

std::string device_part(const DeviceMetrics& m) {
  return fmt::format(R"(, "mfu": {}, "peak_device_bytes": {})",
                     m.mfu ? plain_decimal(std::round(*m.mfu * 1e4) / 1e4) : "null",
                     m.peak_device_bytes);
}

}  // namespace

std::string to_json(const StepMetrics& m) {
  return fmt::format(
      R"({{"step": {}, "loss": {}, "grad_norm": {}, "skipped": {}, "loss_scale": {}, )"
      R"("tokens_per_s": {}{}}})",
      m.step, plain_decimal(m.loss), plain_decimal(m.grad_norm), m.skipped,
      plain_decimal(m.loss_scale), plain_decimal(std::round(m.tokens_per_s)),
      m.device ? device_part(*m.device) : "");
}

std::string hexadecimal(std::uint64_t word) { return fmt::format("{:016x}", word); }

MetricsFile::MetricsFile(const std::string& path) : path_{path} {
  if (path.empty()) return;
  file_.reset(std::fopen(path.c_str(), "w"));
  if (!file_) throw OptionError("the metrics file " + path + " cannot be written");
}

void MetricsFile::write(const StepMetrics& metrics) {
  if (file_) write_line(to_json(metrics));
}

void MetricsFile::finish(std::uint64_t params_hash) {
  if (file_)
    write_line(fmt::format(R"({{"final": true, "params_hash": "{}"}})", hexadecimal(params_hash)));
}

void MetricsFile::write_line(const std::string& line) {
  const bool written = std::fprintf(file_.get(), "%s\n", line.c_str()) >= 0;
  if (!written || std::fflush(file_.get()) != 0)
    throw std::runtime_error("the metrics file " + path_ + " cannot be written any more");
}

}  // namespace train_gpt
