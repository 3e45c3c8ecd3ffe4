#include <flatshard/layout/nearest_names.hpp>

#include <algorithm>
#include <numeric>

namespace flatshard {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() +
                       1);  // row[j]: distance from the characters of a so far to b[0..j)
  std::iota(row.begin(), row.end(), 0);
  for (const char of_a : a) {
    int diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const int replaced = diagonal + (of_a == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, diagonal + 1, replaced});
    }
  }
  return row.back();
}

std::vector<std::string> nearest_names(std::string_view name, std::vector<std::string> names,
                                       std::size_t count) {
  std::vector<std::pair<int, std::string>> ranked;
  for (std::string& other : names) {
    const int distance = edit_distance(name, other);
    ranked.emplace_back(distance, std::move(other));
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> nearest;
  for (std::size_t i = 0; i < std::min(count, ranked.size()); ++i) {
    nearest.push_back(std::move(ranked[i].second));
  }
  return nearest;
}

}  // namespace flatshard
