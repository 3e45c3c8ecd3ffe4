#include "pieces.hpp"

#include <algorithm>

namespace flatshard::host {
namespace {

/// move(piece, from, to): elements [from, to) of a piece. Pieces laid end to end are one range that
/// is cut evenly over the threads, so that a few large ones do not leave threads idle.
template <class Move>
void for_pieces(std::span<const FlattenPiece> pieces, ThreadTeam& team, const Move& move) {
  team.for_chunks(elements_of(pieces), [&](Elements begin, Elements end) {
    Elements start = 0;  // of the piece, laid end to end
    for (const FlattenPiece& piece : pieces) {
      const Elements from = std::max(begin - start, Elements{0});
      const Elements to = std::min(end - start, piece.count);
      if (from < to) move(piece, from, to);
      start += piece.count;
      if (start >= end) break;
    }
    Mover::fence();
  });
}

}  // namespace

Elements elements_of(std::span<const FlattenPiece> pieces) {
  Elements total = 0;
  for (const FlattenPiece& piece : pieces) total += piece.count;
  return total;
}

void flatten(const Mover& mover, std::span<const FlattenPiece> pieces, void* flat, bool streams,
             ThreadTeam& team) {
  for_pieces(pieces, team, [&](const FlattenPiece& piece, Elements from, Elements to) {
    mover.move_or_stream(
        streams, static_cast<const std::byte*>(piece.tensor) + from * mover.source_bytes(),
        static_cast<std::byte*>(flat) + (piece.flat_offset + from) * mover.destination_bytes(),
        to - from);
  });
}

void unflatten(const Mover& mover, std::span<const FlattenPiece> pieces, const void* flat,
               bool streams, ThreadTeam& team) {
  for_pieces(pieces, team, [&](const FlattenPiece& piece, Elements from, Elements to) {
    mover.move_or_stream(
        streams,
        static_cast<const std::byte*>(flat) + (piece.flat_offset + from) * mover.source_bytes(),
        static_cast<std::byte*>(piece.tensor) + from * mover.destination_bytes(), to - from);
  });
}

}  // namespace flatshard::host
