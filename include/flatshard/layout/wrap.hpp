// Wrap policies: pure functions from modules to units (what is gathered together).
#pragma once

#include <flatshard/layout/model.hpp>

#include <functional>

namespace flatshard {

/// unit_of[m] for every module m of the model; units are numbered from 0 in order of first module.
using WrapPolicy = std::function<std::vector<int>(const Model&)>;

namespace wrap {

/// One unit per module (FSDP: transformer_auto_wrap_policy with one module per block).
WrapPolicy each_module();
/// One unit for everything (FSDP: NO_WRAP).
WrapPolicy all_in_one();
/// Modules in order are merged while a unit stays at or below `elements` (FSDP: size_based).
WrapPolicy up_to(Elements elements);
/// One unit per distinct prefix: a module belongs to the longest prefix of its name among
/// `prefixes`; modules without one share the root unit.
WrapPolicy by_prefix(std::vector<std::string> prefixes);

}  // namespace wrap
}  // namespace flatshard
