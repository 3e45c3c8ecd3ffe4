#include <doctest/doctest.h>

#include "../fuzz/targets.hpp"
#include "checkpoint/corpus.hpp"

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace {

/// Gives the target every file of a folder, and every file with its last byte cut off.
template <class Target>
int replay(const std::string& folder, Target target) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    CAPTURE(path);
    const std::string bytes = flatshard_test::bytes_of(path);
    const auto all = std::as_bytes(std::span(bytes));
    CHECK_NOTHROW(target(all));
    CHECK_NOTHROW(target(all.first(all.size() - !all.empty())));
    ++files;
  }
  return files;
}

const std::string tests = std::string(flatshard_test::corpus_path) + "/..";

}  // namespace

TEST_CASE("the seeds of the fuzz targets pass") {
  CHECK(replay(tests + "/corpus/files", flatshard_test::fuzz_header) > 200);
  CHECK(replay(tests + "/corpus/indexes", flatshard_test::fuzz_index) > 40);
  CHECK(replay(tests + "/fuzz/seeds/manifest", flatshard_test::fuzz_manifest) >= 2);
}
