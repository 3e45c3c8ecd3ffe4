#pragma once

#include <string>
#include <vector>

#include "setting.hpp"

namespace flatshard_tool {

/// A configuration file of the other framework.
struct Equivalent {
  std::string title;  // "DeepSpeed, an Accelerate configuration"
  std::string text;
  std::vector<Note> notes;  // where it is not the same
};

/// For DeepSpeed from FSDP, and for FSDP from DeepSpeed.
Equivalent equivalent_of(const Setting& setting);

/// Parts of equivalent_of.
Equivalent deepspeed_for(const Setting& setting);
Equivalent fsdp_for(const Setting& setting);

/// Accelerate's keys with one of them changed or added; sorted as Accelerate writes them.
Map launch_with(const Map& launch, const Map& changed);
/// "no", "bf16", "fp16".
std::string mixed_name(Mixed mixed);

}  // namespace flatshard_tool
