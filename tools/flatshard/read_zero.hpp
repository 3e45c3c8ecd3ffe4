#pragma once

#include "section.hpp"
#include "setting.hpp"

namespace flatshard_tool {

/// The section zero_optimization of a DeepSpeed configuration.
void read_zero(Section& file, Setting& setting);

/// Sets where parts rest; throws RequestError for what the stage cannot do.
void set_places(Section& section, int stage, const std::string& parameters,
                const std::string& optimizer, Setting& setting);

/// Sets the strategy of a stage without groups.
void set_stage(int stage, Setting& setting);

}  // namespace flatshard_tool
