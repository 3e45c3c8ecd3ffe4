#pragma once

#include <flatshard/core/types.hpp>

#include <chrono>
#include <string>

namespace flatshard_tool {

/// A bar on standard error, only where that is a terminal and the work takes longer than a second.
class Progress {
 public:
  Progress(std::string what, flatshard::Bytes total);
  ~Progress();  // leaves the line empty
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(flatshard::Bytes bytes);

 private:
  using Clock = std::chrono::steady_clock;
  void show(double seconds);

  std::string what_;
  flatshard::Bytes total_, done_ = 0;
  bool is_terminal_, shown_ = false;
  Clock::time_point start_ = Clock::now(), last_ = start_;
};

}  // namespace flatshard_tool
