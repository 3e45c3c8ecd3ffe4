// "Did you mean": the names nearest to one that is unknown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

/// Least number of single-character insertions, deletions and replacements from a to b.
int edit_distance(std::string_view a, std::string_view b);

/// At most `count` of `names`, nearest first (equal distances in the given order).
std::vector<std::string> nearest_names(std::string_view name, std::vector<std::string> names,
                                       std::size_t count = 3);

}  // namespace flatshard
