// The smallest save that goes through Commit: one file of three tensors, every rank writes its part
// of each.
#pragma once

#include <flatshard/checkpoint/commit.hpp>
#include <flatshard/checkpoint/find_checkpoint.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tiny {

inline constexpr const char* data_name = "data.bin";
inline constexpr std::array<flatshard::Bytes, 3> tensor_bytes{1500, 1, 700};

/// All tensors, one after the other: a function of the step.
std::vector<std::byte> contents(std::int64_t step);

/// Collective. `operations` are this rank's.
std::string save(flatshard::RankAgreement& ranks, const flatshard::CommitOptions& options,
                 std::int64_t contents_of, flatshard::FileOperations& operations);

/// By `operations.size()` ranks in turns; true when all were told that it is saved.
bool save_by_all(const flatshard::CommitOptions& options, std::int64_t contents_of,
                 const std::vector<flatshard::FileOperations*>& operations);

/// "step n: " and the digest of its bytes, after each tensor's own digest was compared; "nothing"
/// when there is no checkpoint.
std::string load(const std::string& folder, flatshard::FileOperations& operations);

}  // namespace tiny
