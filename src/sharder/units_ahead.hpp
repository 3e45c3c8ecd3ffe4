// The optimizer's parts that rest on NVMe, read ahead of whoever goes through the units.
#pragma once

#include <flatshard/sharder/plan.hpp>

#include <span>
#include <vector>

namespace flatshard::detail {

class NvmeRing;
class Runtime;

/// The optimizer's parts of units in the Plan's order, read ahead as far as buffers go.
/// Without an optimizer on NVMe, nothing.
class UnitsAhead {
 public:
  /// `parts` of flats that take part (none given: all). Nothing else begins a unit meanwhile.
  UnitsAhead(Runtime& runtime, std::span<const NvmePart> parts,
             const std::vector<bool>* takes_part);
  /// Parts of the unit are there for what its stream is given from now on.
  void await(int unit);
  /// All work on the unit was issued.
  void leave(int unit);

 private:
  bool takes_part(int flat) const;
  void read_ahead();

  Runtime& runtime_;
  NvmeRing* slots_;
  std::span<const NvmePart> parts_;
  const std::vector<bool>* takes_part_;
  int next_ = 0;   // unit to begin
  int begun_ = 0;  // units that were not left
};

}  // namespace flatshard::detail
