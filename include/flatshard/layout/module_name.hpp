// Hierarchical names: components joined by dots; "" is the root, which contains everything.
#pragma once

#include <string>
#include <string_view>

namespace flatshard {

/// True when `outer` is `inner` or one of its ancestors: "h" contains "h" and "h.0", not "head".
constexpr bool contains_module(std::string_view outer, std::string_view inner) {
  return outer.empty() || inner == outer ||
         (inner.starts_with(outer) && inner[outer.size()] == '.');
}

/// True when no component is empty: "h.0" is, ".h", "h..0", "h." and "" are not.
constexpr bool is_dotted_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.back() != '.' &&
         name.find("..") == std::string_view::npos;
}

/// module + "." + name; just name in the root.
inline std::string full_name(std::string_view module, std::string_view name) {
  return module.empty() ? std::string{name} : std::string{module} + "." + std::string{name};
}

}  // namespace flatshard
