#include "data.hpp"

#include <flatshard/ops/random.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "option_error.hpp"

namespace train_gpt {
namespace {

namespace fs = std::filesystem;
using flatshard::mix64;

constexpr std::uintmax_t largest_file = std::uintmax_t{1} << 32;  // bytes

/// Only of regular files: a pipe may never begin, a device may never end.
std::vector<std::uint8_t> read_bytes(const fs::path& path) {
  std::error_code none;  // what goes wrong leaves the file unread
  std::ifstream file;
  if (fs::is_regular_file(path, none)) file.open(path, std::ios::binary);
  if (!file.is_open())
    throw OptionError("the data file " + path.string() + " cannot be read as a regular file");
  const std::uintmax_t size = fs::file_size(path);
  if (size > largest_file)
    throw OptionError("the data file " + path.string() + " has " + std::to_string(size) +
                      " bytes; at most " + std::to_string(largest_file) + " are read into memory");
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  return bytes;
}

constexpr std::array<std::string_view, 8> text_folders = {"include", "src",   "kernels", "examples",
                                                          "tests",   "bench", "tools",   "docs"};

bool is_text(const fs::path& path) {
  const fs::path extension = path.extension();
  return extension == ".md" || extension == ".hpp" || extension == ".cpp" || extension == ".py" ||
         extension == ".sh" || path.filename() == "LICENSE" || path.filename() == "meson.build";
}

std::vector<fs::path> project_texts(const fs::path& root) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(root))
    if (entry.is_regular_file() && is_text(entry.path())) found.push_back(entry.path());
  for (const std::string_view folder : text_folders)
    if (fs::is_directory(root / folder))
      for (const auto& entry : fs::recursive_directory_iterator(root / folder))
        if (entry.is_regular_file() && is_text(entry.path())) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

/// The project's root: it holds flatshard's configuration header.
bool is_project(const fs::path& root) {
  std::error_code ignored;
  return fs::exists(root / "include" / "flatshard" / "config.hpp", ignored);
}

fs::path project_root() {
  const fs::path here = fs::current_path();
  for (const fs::path& root : {fs::path{TRAIN_GPT_SOURCE_ROOT}, here, here.parent_path()})
    if (is_project(root)) return root;
  throw OptionError("the project's own text was not found, so give a text file with --data");
}

constexpr std::uint64_t data_salt = 0x7465787420646174;  // other words than the initial values

}  // namespace

Corpus::Corpus(std::vector<std::uint8_t> bytes, const std::string& name, std::int64_t context)
    : bytes_{std::move(bytes)} {
  if (size() < context + 1)
    throw OptionError("the data in " + name + " has " + std::to_string(size()) +
                      " bytes, but one sequence of --context " + std::to_string(context) +
                      " needs " + std::to_string(context + 1));
}

Corpus Corpus::from_file(const std::string& path, std::int64_t context) {
  return {read_bytes(path), path, context};
}

Corpus Corpus::from_project(std::int64_t context) {
  std::vector<std::uint8_t> all;
  for (const fs::path& path : project_texts(project_root())) {
    const std::vector<std::uint8_t> bytes = read_bytes(path);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return {std::move(all), "the project's own text", context};
}

Corpus Corpus::of_random_tokens(std::int64_t vocabulary) { return Corpus{vocabulary}; }

void Corpus::sequence(std::uint64_t seed, std::int64_t step, std::int64_t index,
                      std::int64_t context, std::int32_t* tokens, std::int32_t* targets) const {
  const std::uint64_t of_step = mix64(mix64(seed ^ data_salt) ^ static_cast<std::uint64_t>(step));
  const std::uint64_t word = mix64(of_step ^ static_cast<std::uint64_t>(index));
  if (vocabulary_ > 0) {
    const auto token = [&](std::int64_t at) {
      const std::uint64_t random = mix64(word + static_cast<std::uint64_t>(at));
      return static_cast<std::int32_t>(random % static_cast<std::uint64_t>(vocabulary_));
    };
    for (std::int64_t i = 0; i < context; ++i) {
      tokens[i] = token(i);
      targets[i] = token(i + 1);
    }
    return;
  }
  const auto begin = static_cast<std::size_t>(word % static_cast<std::uint64_t>(size() - context));
  for (std::size_t i = 0; i < static_cast<std::size_t>(context); ++i) {
    tokens[i] = bytes_[begin + i];
    targets[i] = bytes_[begin + i + 1];
  }
}

}  // namespace train_gpt
