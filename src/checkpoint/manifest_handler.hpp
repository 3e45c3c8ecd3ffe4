// From the events of a JSON text to a Manifest.
#pragma once

#include <flatshard/checkpoint/manifest.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "json_events.hpp"
#include "json_scalar.hpp"

namespace flatshard::detail {

/// Where in a manifest a value stands: the object or list around it.
enum class ManifestPlace : std::uint8_t {
  Document,
  Root,
  Scaler,
  Settings,
  State,
  Optimizer,
  States,
  Groups,
  Group,
  Times,
  Ties,
  User,
  Files,
  File,
  Tensors,
  Tensor,
  Shape
};

/// What one member of an object with fixed members is.
struct ManifestMember {
  ManifestPlace object;
  std::string_view key;
  const char* expects;  // for messages: "a string"
  bool required;
  ManifestPlace inside;  // of a member that is an object or a list; Document: it is a scalar
  /// Stores a scalar; false: it is not what is expected.
  bool (*store)(Manifest& manifest, JsonScalar& value);
};

/// None: there is no such member.
const ManifestMember* find_member(ManifestPlace object, std::string_view key);
int required_members(ManifestPlace object);

/// Refuses what a manifest has no place for. Throws ManifestError.
class ManifestHandler final : public JsonHandler {
 public:
  ManifestHandler(const std::string& path, const ManifestLimits& limits)
      : path_(path), limits_(limits) {}
  Manifest& manifest() { return manifest_; }

  void on_null() override { take({}); }
  void on_boolean(bool value) override;
  void on_unsigned(std::uint64_t value) override;
  void on_negative(std::int64_t value) override;
  void on_real(double value) override;
  void on_string(std::string& value) override;
  void on_key(std::string& key) override;
  void on_begin_object() override { begin(true); }
  void on_begin_array() override { begin(false); }
  void on_end_object() override { end(); }
  void on_end_array() override { end(); }

 private:
  struct Frame {
    ManifestPlace place = ManifestPlace::Document;
    int required = 0;          // required members so far
    std::int64_t entries = 0;  // of a list or map
  };

  void take(JsonScalar value);
  void take_member(JsonScalar& value);
  /// Into a list or a map of any keys; false: not what belongs there.
  bool take_entry(JsonScalar& value);
  void begin(bool is_object);
  ManifestPlace place_of_element() const;
  void make_room(ManifestPlace place);
  void end();
  void count_entry();
  void expect_size(const std::string& text) const;
  [[noreturn]] void fail(const std::string& message) const;

  std::string path_;
  ManifestLimits limits_;
  Manifest manifest_;
  std::vector<Frame> frames_{Frame{}};
  std::string key_;
  const ManifestMember* member_ = nullptr;  // that the next value belongs to
  std::int64_t tensors_ = 0;
};

}  // namespace flatshard::detail
