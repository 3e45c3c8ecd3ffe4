// Size of the processor's last-level cache.
#pragma once

#include <flatshard/core/types.hpp>

namespace flatshard::host {

/// Bytes of the largest cache that the first processor uses, asked of the system once.
Bytes last_level_cache();

}  // namespace flatshard::host
