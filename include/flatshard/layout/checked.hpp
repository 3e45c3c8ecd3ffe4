// 64-bit arithmetic on sizes that refuses to wrap around.
#pragma once

#include <flatshard/core/error.hpp>
#include <flatshard/core/types.hpp>

#include <span>
#include <vector>

namespace flatshard::detail {

/// a + b; throws UsageError naming `what` when it is above 2^63 - 1.
Elements checked_add(Elements a, Elements b, const char* what);
/// a * b; likewise.
Elements checked_multiply(Elements a, Elements b, const char* what);
/// round_up(a, b); likewise.
Elements checked_round_up(Elements a, Elements b, const char* what);

/// starts[0] == 0; starts[i] == round_up(starts[i-1] + numels[i-1], alignment), and one more, not
/// rounded: the end of the last (0 when there is none). Throws UsageError naming `what` on an
/// alignment below 1, a negative count, or an end above 2^63 - 1.
std::vector<Elements> aligned_starts(std::span<const Elements> numels, Elements alignment,
                                     const char* what);

}  // namespace flatshard::detail
