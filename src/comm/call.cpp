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
