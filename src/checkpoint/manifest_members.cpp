#include <cmath>
#include <utility>

#include "manifest_handler.hpp"
#include "manifest_rules.hpp"

namespace flatshard::detail {
namespace {

using Place = ManifestPlace;

bool store(std::string& field, JsonScalar& value) {
  if (value.kind != JsonScalar::Kind::String) return false;
  field = std::move(value.text);
  return true;
}
bool store(std::int64_t& field, JsonScalar& value) {
  const auto number = value.integer(std::numeric_limits<std::int64_t>::min());
  field = number.value_or(0);
  return number.has_value();
}
bool store(double& field, JsonScalar& value) {
  const auto number = value.number();
  field = number.value_or(0);
  return number.has_value();
}
bool store(float& field, JsonScalar& value) {
  const double number = value.number().value_or(NAN);
  field = static_cast<float>(number);
  return static_cast<double>(field) == number;
}
bool store(bool& field, JsonScalar& value) {
  field = value.boolean;
  return value.kind == JsonScalar::Kind::Boolean;
}
bool store_digest(std::uint32_t& field, JsonScalar& value) {
  const auto digest = value.hexadecimal();
  field = digest.value_or(0);
  return digest.has_value();
}
bool store(ScaleRule& field, JsonScalar& value) {
  for (const ScaleRule rule : {ScaleRule::Constant, ScaleRule::Torch, ScaleRule::DeepSpeed})
    if (value.kind == JsonScalar::Kind::String && value.text == name_of(rule)) {
      field = rule;
      return true;
    }
  return false;
}

FileDigest& file(Manifest& manifest) { return manifest.files.back(); }
TensorDigest& tensor(Manifest& manifest) { return file(manifest).tensors.back(); }
ScaleSettings& settings(Manifest& manifest) { return manifest.loss_scaler->settings; }
ScaleState& state(Manifest& manifest) { return manifest.loss_scaler->state; }

constexpr const char *a_text = "a string", *an_integer = "an integer", *a_number = "a number",
                     *a_truth = "true or false", *a_digest = "eight hexadecimal digits",
                     *an_object = "an object", *a_list = "a list";

constexpr ManifestMember scalar(Place in, std::string_view key, const char* expects,
                                bool (*store)(Manifest&, JsonScalar&)) {
  return {in, key, expects, true, Place::Document, store};
}
constexpr ManifestMember whole(Place in, std::string_view key, const char* expects, Place inside,
                               bool required = true) {
  return {in, key, expects, required, inside, nullptr};
}

using M = Manifest;
using V = JsonScalar;
constexpr ManifestMember members[] = {
    scalar(Place::Root, "format", "\"flatshard checkpoint\"",
           [](M&, V& v) { return v.text == manifest_format; }),
    scalar(Place::Root, "version", "1, the one version known",
           [](M&, V& v) { return v.integer(manifest_version, manifest_version).has_value(); }),
    scalar(Place::Root, "library", a_text, [](M& m, V& v) { return store(m.library, v); }),
    scalar(Place::Root, "save_id", a_text, [](M& m, V& v) { return store(m.save_id, v); }),
    scalar(Place::Root, "step", an_integer, [](M& m, V& v) { return store(m.step, v); }),
    scalar(Place::Root, "world", an_integer, [](M& m, V& v) { return store(m.world, v); }),
    scalar(Place::Root, "strategy", a_text, [](M& m, V& v) { return store(m.strategy, v); }),
    scalar(Place::Root, "precision", a_text, [](M& m, V& v) { return store(m.precision, v); }),
    {Place::Root, "seed", "an integer of 64 bits, not negative", false, Place::Document,
     [](M& m, V& v) {
       m.seed = v.whole;
       return v.kind == V::Kind::Unsigned;
     }},
    whole(Place::Root, "loss_scaler", an_object, Place::Scaler, false),
    whole(Place::Root, "optimizer", an_object, Place::Optimizer, false),
    whole(Place::Root, "ties", an_object, Place::Ties),
    whole(Place::Root, "user", an_object, Place::User),
    whole(Place::Root, "files", a_list, Place::Files),
    scalar(Place::Root, "crc32c", a_digest, [](M&, V& v) { return v.hexadecimal().has_value(); }),

    whole(Place::Scaler, "settings", an_object, Place::Settings),
    whole(Place::Scaler, "state", an_object, Place::State),
    scalar(Place::Settings, "rule", "\"constant\", \"torch\" or \"deepspeed\"",
           [](M& m, V& v) { return store(settings(m).rule, v); }),
    scalar(Place::Settings, "initial", a_number,
           [](M& m, V& v) { return store(settings(m).initial, v); }),
    scalar(Place::Settings, "growth", a_number,
           [](M& m, V& v) { return store(settings(m).growth, v); }),
    scalar(Place::Settings, "backoff", a_number,
           [](M& m, V& v) { return store(settings(m).backoff, v); }),
    scalar(Place::Settings, "interval", an_integer,
           [](M& m, V& v) { return store(settings(m).interval, v); }),
    scalar(Place::Settings, "minimum", a_number,
           [](M& m, V& v) { return store(settings(m).minimum, v); }),
    scalar(Place::Settings, "hysteresis", an_integer,
           [](M& m, V& v) { return store(settings(m).hysteresis, v); }),
    scalar(Place::Settings, "consecutive", a_truth,
           [](M& m, V& v) { return store(settings(m).consecutive, v); }),
    scalar(Place::Settings, "error_at_minimum", a_truth,
           [](M& m, V& v) { return store(settings(m).error_at_minimum, v); }),
    scalar(Place::State, "scale", "a number that a float holds",
           [](M& m, V& v) { return store(state(m).scale, v); }),
    scalar(Place::State, "good_steps", an_integer,
           [](M& m, V& v) { return store(state(m).good_steps, v); }),
    scalar(Place::State, "step", an_integer, [](M& m, V& v) { return store(state(m).step, v); }),
    scalar(Place::State, "last_overflow", an_integer,
           [](M& m, V& v) { return store(state(m).last_overflow, v); }),
    scalar(Place::State, "left", an_integer, [](M& m, V& v) { return store(state(m).left, v); }),

    scalar(Place::Optimizer, "name", a_text,
           [](M& m, V& v) { return store(m.optimizer->name, v); }),
    whole(Place::Optimizer, "states", a_list, Place::States),
    whole(Place::Optimizer, "groups", a_list, Place::Groups),
    scalar(Place::Optimizer, "time", an_integer,
           [](M& m, V& v) { return store(m.optimizer->time, v); }),
    whole(Place::Optimizer, "times", an_object, Place::Times),

    scalar(Place::File, "name", a_text, [](M& m, V& v) { return store(file(m).name, v); }),
    scalar(Place::File, "bytes", an_integer, [](M& m, V& v) { return store(file(m).bytes, v); }),
    scalar(Place::File, "header_bytes", an_integer,
           [](M& m, V& v) { return store(file(m).header_bytes, v); }),
    scalar(Place::File, "header_crc32c", a_digest,
           [](M& m, V& v) { return store_digest(file(m).header_crc32c, v); }),
    whole(Place::File, "tensors", a_list, Place::Tensors),
    scalar(Place::Tensor, "name", a_text, [](M& m, V& v) { return store(tensor(m).name, v); }),
    scalar(Place::Tensor, "dtype", a_text, [](M& m, V& v) { return store(tensor(m).dtype, v); }),
    whole(Place::Tensor, "shape", a_list, Place::Shape),
    scalar(Place::Tensor, "crc32c", a_digest,
           [](M& m, V& v) { return store_digest(tensor(m).crc32c, v); }),
};

}  // namespace

const ManifestMember* find_member(ManifestPlace object, std::string_view key) {
  for (const ManifestMember& member : members)
    if (member.object == object && member.key == key) return &member;
  return nullptr;
}

int required_members(ManifestPlace object) {
  int count = 0;
  for (const ManifestMember& member : members) count += member.object == object && member.required;
  return count;
}

}  // namespace flatshard::detail
