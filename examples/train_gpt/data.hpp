#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train_gpt {

/// Text as byte tokens, or random ones.
class Corpus {
 public:
  /// Throws OptionError when the file cannot be read or is too small for one sequence.
  static Corpus from_file(const std::string& path, std::int64_t context);

  /// The project's own text: documents and sources, in the order of their paths, found where this
  /// program was built from or in the current folder or one above it. Needs no download.
  static Corpus from_project(std::int64_t context);

  /// Endless: every token is drawn evenly from `vocabulary` ones.
  static Corpus of_random_tokens(std::int64_t vocabulary);

  Corpus(std::vector<std::uint8_t> bytes, const std::string& name, std::int64_t context);

  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }

  /// The sequence number `index` of the global batch of `step`: a pure function of its arguments,
  /// the same for every world size. targets[i] is the token that follows tokens[i]; both (context).
  void sequence(std::uint64_t seed, std::int64_t step, std::int64_t index, std::int64_t context,
                std::int32_t* tokens, std::int32_t* targets) const;

 private:
  explicit Corpus(std::int64_t vocabulary) : vocabulary_{vocabulary} {}

  std::vector<std::uint8_t> bytes_;
  std::int64_t vocabulary_ = 0;  // of random tokens; 0: there is text
};

}  // namespace train_gpt
