// Renames that the C library may not know.
#pragma once

#include <flatshard/io/file_operations.hpp>

#include <string>

namespace flatshard::detail {

/// 0 or a negative errno. Existing::Refuse works everywhere: where the system cannot refuse in the
/// same step (-EINVAL or -ENOSYS of renameat2), the name is looked at first; that a folder is
/// renamed only onto nothing or an empty folder is then what still protects checkpoints.
/// Existing::Exchange gives the system's answer.
int rename_with_flags(int from_folder, const std::string& from, int to_folder,
                      const std::string& to, Existing existing);

}  // namespace flatshard::detail
