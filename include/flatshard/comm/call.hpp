// What one rank asks of a collective: the fields that all ranks must agree on.
#pragma once

#include <flatshard/tensor/dtype.hpp>

#include <string>
#include <string_view>

namespace flatshard {

/// What a Communicator is called for.
enum class Operation { AllGather, ReduceScatter, AllReduce, Broadcast, Split, Synchronize };

/// "all_gather", "reduce_scatter", ...: as the function of Communicator.
std::string_view name_of(Operation operation);

/// One collective call. Count as the function takes it: of one rank's part for all_gather and
/// reduce_scatter, of the whole for all_reduce and broadcast.
struct CollectiveCall {
  Operation operation;                // the function
  std::string_view label = {};        // names the unit; not owned
  Elements count = 0;                 // elements, of one part or of the whole
  DType contribution = DType::UInt8;  // dtype sent
  DType result = DType::UInt8;        // dtype received
  Rank root = 0;                      // of a broadcast
  friend bool operator==(const CollectiveCall&, const CollectiveCall&) = default;
};

/// For messages: reduce_scatter "h.0" of 4096 bfloat16 to float32.
std::string to_string(const CollectiveCall& call);

/// Payload that rank `rank` of `size` must send to others, in bytes:
///   all_gather      (size - 1) * count * bytes(contribution)
///   reduce_scatter  (size - 1) * count * bytes(contribution)
///   all_reduce      (size - 1) * count * (bytes(contribution) + bytes(result)) / size, rounded
///   down broadcast       (size - 1) * count * bytes(contribution) from the root, 0 from the others
/// and 0 for split and synchronize. All_reduce counts as reduce_scatter, then all_gather.
Bytes bytes_sent(const CollectiveCall& call, Rank rank, int size);

namespace detail {

/// How a sum by exchange cuts `count` elements among `size` ranks: the elements of one slice.
Elements exchange_slice(Elements count, int size);
/// Whether an all_reduce of that many bytes sends everything to everybody at once.
bool is_small_exchange(const CollectiveCall& call, int size);
/// Scratch of one rank for a sum in which ranks exchange contributions and sum them by T, in bytes:
/// the others' contributions to what this rank sums, each padded to exchange_alignment. 0 for other
/// calls and for one rank.
Bytes exchange_bytes(const CollectiveCall& call, int size);
inline constexpr Bytes exchange_alignment = 256;  // bytes

/// Throws UsageError for a negative count or a root that is no rank of `size`.
void expect_valid(const CollectiveCall& call, int size);

/// The message of ranks that do not agree on a communicator's call number `index`.
std::string mismatch_message(std::uint64_t index, Rank one, const CollectiveCall& call_of_one,
                             Rank other, const CollectiveCall& call_of_other);

}  // namespace detail
}  // namespace flatshard
