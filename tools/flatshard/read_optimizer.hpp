#pragma once

#include "section.hpp"
#include "setting.hpp"

namespace flatshard_tool {

/// The section optimizer of a DeepSpeed configuration: the functor and its hyper-parameters, for
/// the types that are built in.
void read_optimizer(Section& file, Setting& setting);

}  // namespace flatshard_tool
