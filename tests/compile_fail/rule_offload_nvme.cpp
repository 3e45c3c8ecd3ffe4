// Every part rests on a tier that this version can hold.
// expect: the offload policy places a part on NVMe
// expect: Why:
// expect: Fix:
#include <flatshard/policy/rules.hpp>

namespace offload = flatshard::offload;

#ifdef BAD
using Own = offload::Place<offload::Cpu, offload::Nvme>;
#else
using Own = offload::Place<offload::Cpu, offload::Device>;
#endif

static_assert(flatshard::CheckedRules<flatshard::strategy::FullShard,
                                      flatshard::precision::Full<float>, Own>::value);
