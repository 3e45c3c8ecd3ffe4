#include "manifest_handler.hpp"

#include <fmt/format.h>

#include <utility>

#include "json_text.hpp"

namespace flatshard::detail {
namespace {

using Place = ManifestPlace;

bool is_list(Place place) {
  return place == Place::States || place == Place::Groups || place == Place::Files ||
         place == Place::Tensors || place == Place::Shape;
}

/// An object whose keys are names of something.
bool is_map(Place place) {
  return place == Place::Group || place == Place::Times || place == Place::Ties ||
         place == Place::User;
}

}  // namespace

void ManifestHandler::on_boolean(bool value) {
  take({.kind = JsonScalar::Kind::Boolean, .boolean = value});
}
void ManifestHandler::on_unsigned(std::uint64_t value) {
  take({.kind = JsonScalar::Kind::Unsigned, .whole = value});
}
void ManifestHandler::on_negative(std::int64_t value) {
  take({.kind = JsonScalar::Kind::Negative, .negative = value});
}
void ManifestHandler::on_real(double value) {
  take({.kind = JsonScalar::Kind::Real, .real = value});
}
void ManifestHandler::on_string(std::string& value) {
  expect_size(value);
  take({.kind = JsonScalar::Kind::String, .text = std::move(value)});
}

void ManifestHandler::on_key(std::string& key) {
  expect_size(key);
  key_ = std::move(key);
  if (is_map(frames_.back().place)) return;
  member_ = find_member(frames_.back().place, key_);
  if (member_ == nullptr) fail("unknown key " + in_quotes(key_));
  // First of all: of another version nothing else can be expected.
  const bool begins = frames_.size() == 2 && manifest_.version == 0;
  if (begins && key_ != "format" && key_ != "version")
    fail("the first members are not \"format\" and \"version\"");
  frames_.back().required += member_->required;
}

void ManifestHandler::take(JsonScalar value) {
  const Place place = frames_.back().place;
  if (place == Place::Document) fail(std::string("an object was expected, not ") + value.name());
  if (!is_list(place) && !is_map(place)) return take_member(value);
  count_entry();
  if (!take_entry(value)) fail(std::string("nothing like ") + value.name() + " belongs here");
}

void ManifestHandler::take_member(JsonScalar& value) {
  const bool fits = member_->store != nullptr && member_->store(manifest_, value);
  if (!fits)
    fail(fmt::format("member {}: {} was expected", in_quotes(member_->key), member_->expects));
  if (member_->key == "version") manifest_.version = manifest_version;
}

bool ManifestHandler::take_entry(JsonScalar& value) {
  const bool is_text = value.kind == JsonScalar::Kind::String;
  const auto number = value.number();
  const auto count = value.integer(0);
  const Place place = frames_.back().place;
  if (place == Place::States && is_text)
    manifest_.optimizer->states.push_back(std::move(value.text));
  else if (place == Place::Group && number)
    manifest_.optimizer->groups.back().values.emplace_back(key_, *number);
  else if (place == Place::Times && count)
    manifest_.optimizer->times.emplace_back(key_, *count);
  else if (place == Place::Ties && is_text)
    manifest_.ties.emplace_back(key_, std::move(value.text));
  else if (place == Place::User && is_text)
    manifest_.user.emplace_back(key_, std::move(value.text));
  else if (place == Place::Shape && count)
    manifest_.files.back().tensors.back().shape.push_back(*count);
  else
    return false;
  return true;
}

/// Of an object that is an element of a list, or the text itself; Document: none may be here.
ManifestPlace ManifestHandler::place_of_element() const {
  switch (frames_.back().place) {
    case Place::Document:
      return Place::Root;
    case Place::Groups:
      return Place::Group;
    case Place::Files:
      return Place::File;
    case Place::Tensors:
      return Place::Tensor;
    default:
      return Place::Document;
  }
}

void ManifestHandler::begin(bool is_object) {
  const Place around = frames_.back().place;
  const bool is_member = around != Place::Document && !is_list(around) && !is_map(around);
  const Place place = is_member ? member_->inside : place_of_element();
  if (place == Place::Document || is_list(place) == is_object)
    fail(is_member
             ? fmt::format("member {}: {} was expected", in_quotes(member_->key), member_->expects)
             : "no object or list belongs here");
  if (is_list(around)) count_entry();
  make_room(place);
  frames_.push_back({place});
}

void ManifestHandler::make_room(ManifestPlace place) {
  if (place == Place::Root) manifest_.version = 0;  // until it is read
  if (place == Place::Scaler) manifest_.loss_scaler.emplace();
  if (place == Place::Optimizer) manifest_.optimizer.emplace();
  if (place == Place::Group) manifest_.optimizer->groups.emplace_back();
  if (place == Place::File) manifest_.files.emplace_back();
  if (place == Place::Tensor) manifest_.files.back().tensors.emplace_back();
}

void ManifestHandler::end() {
  const Frame frame = frames_.back();
  if (frame.required != required_members(frame.place)) fail("a member is missing");
  frames_.pop_back();
}

void ManifestHandler::count_entry() {
  const bool is_tensor = frames_.back().place == Place::Tensors;
  const std::int64_t most = frames_.back().place == Place::Shape ? limits_.dimensions
                            : is_tensor                          ? limits_.tensors
                                                                 : limits_.entries;
  const std::int64_t count = is_tensor ? ++tensors_ : ++frames_.back().entries;
  if (count > most) fail(fmt::format("more than {} entries", most));
}

void ManifestHandler::expect_size(const std::string& text) const {
  if (static_cast<std::int64_t>(text.size()) > limits_.string_bytes)
    fail(fmt::format("a string of more than {} bytes", limits_.string_bytes));
}

void ManifestHandler::fail(const std::string& message) const {
  throw ManifestError(path_, offset, message);
}

}  // namespace flatshard::detail
