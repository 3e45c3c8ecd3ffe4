// What ranks compare before data moves.
#pragma once

#include <flatshard/comm/call.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace flatshard::detail {

/// What a rank says of its call before data moves. Sent as it lies in memory.
struct MpiCallNote {
  static constexpr std::size_t most_label = 200;  // characters for messages; longer ones are cut

  MpiCallNote() = default;
  MpiCallNote(std::uint64_t index, const CollectiveCall& call);
  CollectiveCall call() const;
  bool operator==(const MpiCallNote&) const = default;

  std::uint64_t index = 0;
  std::uint64_t label_hash = 0;
  std::int64_t count = 0;
  std::int32_t operation = 0, contribution = 0, result = 0, root = 0;
  std::int64_t label_length = 0;
  std::array<char, most_label> label{};
};

}  // namespace flatshard::detail
