// Flatten and unflatten: many ranges between tensors and one flat buffer.
#pragma once

#include "mover.hpp"
#include "thread_team.hpp"

#include <flatshard/ops/kernel_table.hpp>

#include <span>

namespace flatshard::host {

/// Of all pieces together.
Elements elements_of(std::span<const FlattenPiece> pieces);

/// flat[offset + i] = to(tensor[i]) for every piece; past the cache if `streams`.
void flatten(const Mover& mover, std::span<const FlattenPiece> pieces, void* flat, bool streams,
             ThreadTeam& team);
/// tensor[i] = to(flat[offset + i]) for every piece.
void unflatten(const Mover& mover, std::span<const FlattenPiece> pieces, const void* flat,
               bool streams, ThreadTeam& team);

}  // namespace flatshard::host
