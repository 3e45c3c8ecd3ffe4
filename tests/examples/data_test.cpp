#include "data.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "option_error.hpp"
#include "scratch_folder.hpp"

using namespace train_gpt;

TEST_CASE("a sequence is a pure function of seed, step and index, and targets follow tokens") {
  std::vector<std::uint8_t> bytes;
  for (int i = 0; i < 200; ++i) bytes.push_back(static_cast<std::uint8_t>(i));
  const Corpus corpus{bytes, "test", 8};
  std::set<std::int32_t> begins;
  for (std::int64_t index = 0; index < 500; ++index) {
    std::int32_t tokens[8], targets[8], again[8];
    corpus.sequence(1, 2, index, 8, tokens, targets);
    corpus.sequence(1, 2, index, 8, again, targets);
    for (int i = 0; i < 8; ++i) {
      CHECK(tokens[i] == again[i]);
      CHECK(targets[i] == tokens[0] + i + 1);
    }
    begins.insert(tokens[0]);
  }
  CHECK(begins.size() > 150);  // of 192 places, 500 draws miss about 14
  CHECK(*begins.rbegin() <= 191);
}

TEST_CASE("other steps and seeds are other data") {
  std::vector<std::uint8_t> bytes;
  for (int i = 0; i < 60000; ++i) bytes.push_back(static_cast<std::uint8_t>(i % 251));
  const Corpus corpus{bytes, "test", 8};
  int equal = 0;
  for (std::int64_t index = 0; index < 100; ++index) {
    std::int32_t tokens[8], targets[8], of_step[8], of_seed[8];
    corpus.sequence(1, 2, index, 8, tokens, targets);
    corpus.sequence(1, 3, index, 8, of_step, targets);
    corpus.sequence(2, 2, index, 8, of_seed, targets);
    equal += (tokens[0] == of_step[0]) + (tokens[0] == of_seed[0]);
  }
  CHECK(equal < 10);  // 200 chances of 1 in 251
}

TEST_CASE("random tokens cover the vocabulary, and targets follow tokens") {
  const Corpus corpus = Corpus::of_random_tokens(1000);
  std::set<std::int32_t> seen;
  for (std::int64_t index = 0; index < 500; ++index) {
    std::int32_t tokens[16], targets[16], again[16], other[16];
    corpus.sequence(3, 4, index, 16, tokens, targets);
    corpus.sequence(3, 4, index, 16, again, other);
    CHECK(std::equal(tokens, tokens + 16, again));
    CHECK(std::equal(tokens + 1, tokens + 16, targets));
    corpus.sequence(3, 5, index, 16, again, other);
    CHECK_FALSE(std::equal(tokens, tokens + 16, again));
    seen.insert(tokens, tokens + 16);
  }
  CHECK(seen.size() > 980);  // of 1000, 8000 draws miss one in 3000
  CHECK(*seen.begin() >= 0);
  CHECK(*seen.rbegin() < 1000);
}

TEST_CASE("data that cannot be used is refused in one sentence") {
  CHECK_THROWS_WITH_AS(Corpus::from_file("/nonexistent/file.txt", 8),
                       "the data file /nonexistent/file.txt cannot be read as a regular file",
                       OptionError);
  for (const char* path : {"/", "/dev/zero", "/dev/null"})
    CHECK_THROWS_WITH_AS(Corpus::from_file(path, 8), doctest::Contains("regular file"),
                         OptionError);
  CHECK_THROWS_AS((Corpus{std::vector<std::uint8_t>(8), "short", 8}), OptionError);
  CHECK_NOTHROW(Corpus{std::vector<std::uint8_t>(9), "enough", 8});
}

TEST_CASE("a pipe is refused, not waited for, and a file beyond memory is not read") {
  const flatshard_test::ScratchFolder folder;
  const std::string pipe = folder / "pipe", large = folder / "large", small = folder / "small";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(Corpus::from_file(pipe, 8), doctest::Contains("regular file"), OptionError);
  std::ofstream{large}.put('x');
  std::filesystem::resize_file(large, std::uintmax_t{1} << 40);
  CHECK_THROWS_WITH_AS(Corpus::from_file(large, 8), doctest::Contains("1099511627776 bytes"),
                       OptionError);
  std::ofstream{small} << "exactly 18 bytes.\n";
  CHECK(Corpus::from_file(small, 8).size() == 18);
}

TEST_CASE("the project's own text is found and is large enough to train on") {
  CHECK(Corpus::from_project(64).size() > 50000);
}
