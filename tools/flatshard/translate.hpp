#pragma once

#include <string>

#include "equivalent.hpp"
#include "setting.hpp"

namespace flatshard_tool {

/// What `flatshard translate` shows: the Sharder type with its options, dtypes, the file of the
/// other framework, and every difference that matters.
std::string describe(const Setting& setting, const Equivalent& equivalent);

}  // namespace flatshard_tool
