#pragma once

#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "value.hpp"

namespace flatshard_tool {

/// One map of a configuration, read key by key. Each reader returns nothing for a key that is
/// absent, null or "auto" (which leaves the choice to whoever starts the training), and throws
/// RequestError naming the key when its value has another type or is out of range.
class Section {
 public:
  /// `path` names the section in messages: "zero_optimization"; empty for the whole file.
  Section(const Value& value, std::string source, std::string path);

  bool has(std::string_view key) const;  // present and not null
  bool is_auto(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key);
  /// Whole numbers may be written as 5e8.
  std::optional<std::int64_t> whole(std::string_view key, std::int64_t least = 0,
                                    std::int64_t most = std::int64_t{1} << 60);
  std::optional<double> number(std::string_view key, double least = 0);
  std::optional<std::string> text(std::string_view key);
  /// One of `names`, in any case; as written in `names`.
  std::optional<std::string> choice(std::string_view key,
                                    std::initializer_list<std::string_view> names);
  /// Names given as "A,B" or as a list.
  std::vector<std::string> names(std::string_view key);
  std::optional<Section> section(std::string_view key);
  /// Takes note of a key whose value is nobody's concern here; false when it is absent.
  bool skip(std::string_view key);
  /// Its value as it stands; nullptr when absent.
  const Value* value(std::string_view key);

  /// Throws RequestError naming the first key that nobody has read and what it may have meant.
  void expect_all_read() const;
  /// "zero_optimization.stage".
  std::string name_of(std::string_view key) const;
  /// Throws RequestError: "file: section.key what".
  [[noreturn]] void fail(std::string_view key, const std::string& what) const;

 private:
  const Value* look_up(std::string_view key);  // nullptr: absent, null or auto

  const Map* map_;
  std::string source_, path_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace flatshard_tool
