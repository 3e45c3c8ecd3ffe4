// Units: what is gathered together. Modules, through a wrap policy, to units.
#pragma once

#include <flatshard/layout/wrap.hpp>

#include <span>

namespace flatshard {

/// Modules whose storages are gathered, reduced and released together.
struct Unit {
  std::string name;             // of its only module ("root" for ""), or "first..last"
  std::vector<int> modules;     // ascending
  std::vector<int> parameters;  // storages of these modules, in model order
  friend bool operator==(const Unit&, const Unit&) = default;
};

/// Units in order of first module; every module and every parameter is in exactly one. Throws
/// UsageError when the policy is empty or its result has a wrong size or a number out of range.
std::vector<Unit> assign_units(const Model& model, const WrapPolicy& wrap);

/// The unit that holds `module`.
int unit_of(std::span<const Unit> units, int module);

/// What a call of `module` gathers: its own unit and those of the parameters tied into it,
/// ascending, each once.
std::vector<int> touched_units(const Model& model, std::span<const Unit> units, int module);

}  // namespace flatshard
