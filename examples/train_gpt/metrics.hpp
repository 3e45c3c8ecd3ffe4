#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

namespace train_gpt {

struct DeviceMetrics {
  std::optional<double> mfu;           // where the device's peak is known
  std::int64_t peak_device_bytes = 0;  // of rank 0, so far
};

/// What a step leaves behind.
struct StepMetrics {
  std::int64_t step = 0;  // 1 for the first
  double loss = 0;
  double grad_norm = 0;   // before clipping
  bool skipped = false;   // gradients were not finite and the loss scale backs off
  double loss_scale = 1;  // used in this step
  double tokens_per_s = 0;
  std::optional<DeviceMetrics> device;  // of a GPU only
};

/// The shortest decimal without exponent that reads back as the same number; null if not finite.
std::string plain_decimal(double number);

/// One JSON object, without the end of the line.
std::string to_json(const StepMetrics& metrics);

/// A file of JSON lines, each flushed when it is written.
class MetricsFile {
 public:
  /// An empty path writes nothing. Throws OptionError when the file cannot be written.
  explicit MetricsFile(const std::string& path);
  void write(const StepMetrics& metrics);
  /// The last line: hash of the master values in canonical order, in hexadecimal digits.
  void finish(std::uint64_t params_hash);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void write_line(const std::string& line);
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

/// Sixteen hexadecimal digits.
std::string hexadecimal(std::uint64_t word);

}  // namespace train_gpt
