// Opening what lies under a folder and nowhere else.
#pragma once

#include <string>

namespace flatshard::detail {

/// A descriptor or a negative errno: -EXDEV for a path that leaves `folder`, -ELOOP for one through
/// a symbolic link. By openat2 where the kernel has it (Linux 5.6), else component by component.
int open_beneath(int folder, const std::string& path, int flags, unsigned mode);

/// The second way, on any system.
int open_by_components(int folder, const std::string& path, int flags, unsigned mode);

}  // namespace flatshard::detail
