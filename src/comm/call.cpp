#include <flatshard/comm/call.hpp>
#include <flatshard/core/error.hpp>

#include <fmt/format.h>
#include <array>

namespace flatshard {

std::string_view name_of(Operation operation) {
  static constexpr std::array<std::string_view, 6> names{
      "all_gather", "reduce_scatter", "all_reduce", "broadcast", "split", "synchronize"};
  return names[static_cast<std::size_t>(operation)];
}

std::string to_string(const CollectiveCall& call) {
  std::string text(name_of(call.operation));
  if (call.operation == Operation::Split || call.operation == Operation::Synchronize) return text;
  text += fmt::format(" \"{}\" of {} {}", call.label, call.count, name_of(call.contribution));
  if (call.result != call.contribution) text += fmt::format(" to {}", name_of(call.result));
  if (call.operation == Operation::Broadcast) text += fmt::format(" from rank {}", call.root);
  return text;
}

Bytes bytes_sent(const CollectiveCall& call, Rank rank, int size) {
  const Elements others = (size - 1) * call.count;
  switch (call.operation) {
    case Operation::AllGather:
    case Operation::ReduceScatter:
      return others * size_of(call.contribution);
    case Operation::AllReduce:
      return others * (size_of(call.contribution) + size_of(call.result)) / size;
    case Operation::Broadcast:
      return rank == call.root ? others * size_of(call.contribution) : 0;
    case Operation::Split:
    case Operation::Synchronize:
      break;
  }
  return 0;
}

Elements detail::exchange_slice(Elements count, int size) {
  constexpr Elements line = 64;
  return round_up(ceil_div(count, size), line);
}

// Below, one exchange is faster than two: both are latency, a few microseconds each.
bool detail::is_small_exchange(const CollectiveCall& call, int size) {
  constexpr Bytes small = 64 * 1024;  // bytes that a rank receives
  return call.operation == Operation::AllReduce &&
         call.count * size_of(call.contribution) * size <= small;
}

Bytes detail::exchange_bytes(const CollectiveCall& call, int size) {
  const bool sums =
      call.operation == Operation::ReduceScatter || call.operation == Operation::AllReduce;
  if (!sums || size == 1) return 0;
  const bool whole = call.operation == Operation::ReduceScatter || is_small_exchange(call, size);
  const Elements part = whole ? call.count : exchange_slice(call.count, size);
  return (size - 1) * round_up(part * size_of(call.contribution), exchange_alignment);
}

void detail::expect_valid(const CollectiveCall& call, int size) {
  FLATSHARD_EXPECTS(call.count >= 0, to_string(call) + ": the count is negative");
  FLATSHARD_EXPECTS(call.root >= 0 && call.root < size,
                    fmt::format("{}: there are {} ranks", to_string(call), size));
}

std::string detail::mismatch_message(std::uint64_t index, Rank one,
                                     const CollectiveCall& call_of_one, Rank other,
                                     const CollectiveCall& call_of_other) {
  return fmt::format("collective call {} differs: rank {} calls {}, rank {} calls {}", index, one,
                     to_string(call_of_one), other, to_string(call_of_other));
}

}  // namespace flatshard
