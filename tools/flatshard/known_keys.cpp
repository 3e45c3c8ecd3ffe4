#include "known_keys.hpp"

namespace flatshard_tool {
namespace {

/// Throws when the value is of another kind. True when it says what `key.why` is about.
bool is_said(Section& section, const KnownKey& key) {
  switch (key.kind) {
    case Kind::Flag:
      return section.boolean(key.name).value_or(false) || !key.when_true;
    case Kind::Count:
      section.whole(key.name);
      return true;
    case Kind::Positive:
      section.whole(key.name, 1);
      return true;
    case Kind::Number:
      section.number(key.name);
      return true;
    case Kind::Text:
      section.text(key.name);
      return true;
    case Kind::Any:
      break;
  }
  return true;
}

}  // namespace

void read_known(Section& section, std::span<const KnownKey> keys, Setting& setting) {
  for (const KnownKey& key : keys) {
    if (!section.skip(key.name)) continue;
    if (is_said(section, key) && !key.why.empty())
      setting.note(key.note, section.name_of(key.name), std::string(key.why));
  }
}

}  // namespace flatshard_tool
