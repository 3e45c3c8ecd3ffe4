#include "progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace flatshard_tool {
namespace {

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Progress::Progress(std::string what, flatshard::Bytes total)
    : what_(std::move(what)), total_(total), is_terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void Progress::add(flatshard::Bytes bytes) {
  done_ += bytes;
  if (!is_terminal_) return;
  const Clock::time_point now = Clock::now();
  if (seconds_between(start_, now) < 1 || seconds_between(last_, now) < 0.1) return;
  last_ = now;
  show(seconds_between(start_, now));
}

void Progress::show(double seconds) {
  constexpr int width = 30;
  const double part =
      total_ > 0 ? std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_)) : 1;
  const auto filled = static_cast<std::size_t>(part * width);
  const double left = seconds * (1 - part) / std::max(part, 1e-9);
  const auto whole = static_cast<std::int64_t>(left + 0.5);
  const std::string line =
      fmt::format("\r{} [{}{}] {:3.0f}%  {:.0f} MB/s  {}:{:02} left\033[K", what_,
                  std::string(filled, '#'), std::string(width - filled, '.'), part * 100,
                  static_cast<double>(done_) / seconds / 1e6, whole / 60, whole % 60);
  std::fputs(line.c_str(), stderr);
  shown_ = true;
}

}  // namespace flatshard_tool
