#pragma once

#include <flatshard/policy/precision.hpp>

#include <string>

#include "setting.hpp"

namespace flatshard_tool {

/// A precision policy: how it is written, and which dtype it gives to each role.
struct PrecisionChoice {
  std::string code;
  flatshard::PrecisionTraits roles;
};

PrecisionChoice choose_precision(const Setting& setting);
/// "FullShard".
std::string name_of(Strategy strategy);
/// "bfloat16".
std::string name_of(Type type);

/// The Sharder type, its options and its construction, as C++.
std::string cpp_text(const Setting& setting);

}  // namespace flatshard_tool
