#include "cache_size.hpp"

#include <algorithm>
#include <fstream>
#include <string>

namespace flatshard::host {
namespace {

constexpr Bytes assumed = 32 << 20;  // bytes, where the system does not say

/// "32768K" and "32M" as bytes; 0 for anything else.
Bytes parse_size(const std::string& text) {
  Bytes value = 0;
  for (char letter : text) {
    if (letter >= '0' && letter <= '9') value = value * 10 + (letter - '0');
    if (letter == 'K') return value << 10;
    if (letter == 'M') return value << 20;
  }
  return value;
}

Bytes largest_cache() {
  Bytes largest = 0;
  for (int level = 0; level < 8; ++level) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(level) +
                       "/size");
    std::string text;
    if (file >> text) largest = std::max(largest, parse_size(text));
  }
  return largest > 0 ? largest : assumed;
}

}  // namespace

Bytes last_level_cache() {
  static const Bytes size = largest_cache();
  return size;
}

}  // namespace flatshard::host
