#pragma once

#include <span>
#include <string_view>

#include "section.hpp"
#include "setting.hpp"

namespace flatshard_tool {

/// What a value must be.
enum class Kind { Flag, Count, Positive, Number, Text, Any };

/// A key that a framework documents and that has no option here.
struct KnownKey {
  std::string_view name;
  Kind kind;
  NoteKind note;
  std::string_view why;    // empty: not worth a word
  bool when_true = false;  // a flag: worth a word only when it is true
};

/// Checks the type of each of these keys that is there, and notes why it has no option here.
void read_known(Section& section, std::span<const KnownKey> keys, Setting& setting);

}  // namespace flatshard_tool
