// The conformance corpus of tests/corpus/ as a table.
#pragma once

#include "checkpoint/corpus_path.hpp"

#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace flatshard_test {

/// A verdict is "accept" or the name of the fault.
struct CorpusCase {
  std::string kind;  // file, index or set
  std::string path;  // absolute
  std::string strict;
  std::string compatible;
  std::size_t warnings = 0;  // where the compatible mode accepts
};

inline std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot open " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::vector<CorpusCase> corpus(const std::string& kind) {
  std::istringstream table(bytes_of(std::string(corpus_path) + "/verdicts.tsv"));
  std::vector<CorpusCase> cases;
  std::string line;
  std::getline(table, line);  // names of the columns
  while (std::getline(table, line)) {
    CorpusCase row;
    std::istringstream cells(line);
    cells >> row.kind >> row.path >> row.strict >> row.compatible >> row.warnings;
    if (!cells) throw std::runtime_error("corpus: a row that is none: " + line);
    row.path = std::string(corpus_path) + "/" + row.path;
    if (row.kind == kind) cases.push_back(row);
  }
  return cases;
}

}  // namespace flatshard_test
