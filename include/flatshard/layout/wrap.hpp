// Wrap policies: pure functions from modules to units (what is gathered together).
#pragma once

#include <flatshard/layout/model.hpp>

#include <functional>

namespace flatshard {

/// A number in [0, modules) for every module of the model: modules with equal numbers share a unit.
/// assign_units (layout/unit.hpp) checks the result and numbers the units in order of first module.
using WrapPolicy = std::function<std::vector<int>(const Model&)>;

namespace wrap {

/// One unit per module (FSDP: transformer_auto_wrap_policy with one module per block).
WrapPolicy each_module();
/// One unit for everything (FSDP: NO_WRAP).
WrapPolicy all_in_one();
/// Modules in order are merged while a unit stays at or below `elements`, at least 1 (FSDP:
/// size_based); a module above it has a unit of its own.
WrapPolicy up_to(Elements elements);
/// One unit per distinct prefix: a module belongs to the longest prefix of its name among
/// `prefixes`, in whole components ("h.1" is none of "h.10"); modules without one share a unit.
WrapPolicy by_prefix(std::vector<std::string> prefixes);

}  // namespace wrap
}  // namespace flatshard
