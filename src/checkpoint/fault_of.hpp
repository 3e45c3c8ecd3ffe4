#pragma once

#include "json_events.hpp"

#include <flatshard/checkpoint/format_error.hpp>

namespace flatshard::safetensors {

inline Fault fault_of(flatshard::detail::JsonError::Kind kind) {
  using Kind = flatshard::detail::JsonError::Kind;
  if (kind == Kind::TooDeep) return Fault::TooDeep;
  if (kind == Kind::DuplicateKey) return Fault::DuplicateKey;
  return Fault::InvalidJson;
}

}  // namespace flatshard::safetensors
