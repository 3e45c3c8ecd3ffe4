// What the documentation's programs say when something does not hold.
#pragma once

#include <cstdio>
#include <cstdlib>

/// Ends the program with the words unless `holds`.
inline void expect(bool holds, const char* words) {
  if (holds) return;
  std::fprintf(stderr, "expected: %s\n", words);
  std::exit(1);
}
