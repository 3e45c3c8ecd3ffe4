// Compiled, not linked or run: how long that takes says how fast the machine compiles just now. Not
// to be changed, or REFERENCE_SECONDS in compile_pace.py is to be measured again.
#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>

std::map<std::string, std::vector<int>> positions(const std::string& text,
                                                  const std::string& pattern) {
  std::map<std::string, std::vector<int>> found;
  const std::regex expression(pattern, std::regex::ECMAScript);
  for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match)
    found[match->str()].push_back(static_cast<int>(match->position()));
  return found;
}

std::vector<std::string> by_length(std::unordered_map<std::string, std::function<int()>>& actions) {
  std::vector<std::string> names;
  for (auto& [name, action] : actions)
    if (action() > 0) names.push_back(name);
  std::stable_sort(names.begin(), names.end(),
                   [](const auto& left, const auto& right) { return left.size() < right.size(); });
  return names;
}
