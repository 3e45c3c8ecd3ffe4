#include "loading.hpp"

#include <flatshard/io/crc32c.hpp>

#include <algorithm>
#include <tuple>

#include "save_parts.hpp"
#include "tensor_reader.hpp"

namespace flatshard::detail {

namespace {

Elements elements_of(const Engine& engine, const StateTensor& tensor) {
  return numel_of(shape_of_tensor(engine.model(), tensor));
}

}  // namespace

Loading::Loading(Engine& engine, const LoadPlan& plan, const OpenSets& sets,
                 const LoadOptions& options, bool digests)
    : engine_(engine),
      sets_(sets),
      options_(options),
      records_digests_(digests),
      staging_(engine.device(), options.block_bytes) {
  const Rank rank = engine.communicator().rank();
  for (const ShardPiece& piece : pieces_to_load(engine.plan(), engine.model(), rank))
    pieces_[piece.tensor].push_back(piece);
  for (const auto& [tensor, source] : plan)
    targets_.push_back({tensor, &source, static_cast<int>(targets_.size())});
}

void Loading::run(SharedFailure& failure) {
  if (options_.readers == Readers::EveryRank) return read_own_pieces(failure);
  for (const Target& target : targets_) broadcast_tensor(target, failure);
}

std::vector<Loading::Read> Loading::own_reads() {
  std::vector<Read> reads;
  for (const Target& target : targets_)
    for (const ShardPiece& piece : pieces_[target.tensor])
      for_each_block(piece.count, staging_.block_elements(target.source->dtype, piece.dtype),
                     [&](Elements first, Elements count) {
                       reads.push_back({&target, &piece, first, count});
                     });
  return reads;
}

std::vector<FileRange> Loading::ranges_of(const std::vector<Read>& reads) const {
  std::vector<FileRange> ranges;
  for (const Read& read : reads)
    if (const Source& source = *read.target->source; !source.transpose)
      ranges.push_back(
          range_of(set_of(source), source, read.piece->first + read.first, read.count));
  return ranges;
}

/// While one block is digested and converted, the disk reads the next ones.
void Loading::read_own_pieces(SharedFailure& failure) {
  failure.run([&] {
    const std::vector<Read> reads = own_reads();
    ReadAhead ahead(ranges_of(reads), engine_.device().host_memory(),
                    {.page_cache = options_.page_cache, .operations = options_.operations});
    for (const Read& read : reads) read_own(read, ahead);
  });
}

/// Of ranks that read the same elements one records them.
bool Loading::records(const ShardPiece& piece) const {
  const Rank rank = engine_.communicator().rank();
  const bool on_all = piece.in_whole || piece.tensor.kind == StateTensor::Kind::Buffer;
  return records_digests_ && (on_all ? rank == 0 : rank < engine_.plan().shard_group);
}

void Loading::record(const Target& target, Elements first, std::span<const std::byte> bytes) {
  digests_.push_back({target.source->set, target.index, first * size_of(target.source->dtype),
                      static_cast<Bytes>(bytes.size()), crc32c(bytes), 0});
}

void Loading::read_own(const Read& read, ReadAhead& ahead) {
  const Source& source = *read.target->source;
  if (source.transpose) return read_transposed(read);
  const std::span<const std::byte> bytes = ahead.next();
  if (records(*read.piece)) record(*read.target, read.piece->first + read.first, bytes);
  staging_.deliver_from(bytes.data(), source.dtype, address_of(read), read.piece->dtype,
                        read.count);
}

void Loading::read_transposed(const Read& read) {
  const Source& source = *read.target->source;
  const DType from = source.dtype, to = read.piece->dtype;
  std::byte* destination = address_of(read);
  const std::span<std::byte> bytes = staging_.landing(destination, from, to, read.count);
  const Elements first = read.piece->first + read.first;
  read_elements(set_of(source), source, first, bytes);
  if (records(*read.piece)) record(*read.target, first, bytes);
  staging_.deliver(destination, from, to, read.count);
}

std::byte* Loading::address_of(const Read& read) const {
  return detail::address_of(engine_, *read.piece) + read.first * size_of(read.piece->dtype);
}

/// Rank 0 reads the tensor block by block, and every rank takes what it owns of it.
void Loading::broadcast_tensor(const Target& target, SharedFailure& failure) {
  const DType from = target.source->dtype;
  const auto& set = sets_[static_cast<std::size_t>(target.source->set)];
  std::byte* block = staging_.device_block();
  for_each_block(elements_of(engine_, target.tensor), staging_.block_elements(from, from),
                 [&](Elements first, Elements count) {
                   if (set)
                     failure.run([&] {
                       const auto bytes = staging_.landing(block, from, from, count);
                       read_elements(*set, *target.source, first, bytes);
                       if (records_digests_) record(target, first, bytes);
                       staging_.deliver(block, from, from, count);
                     });
                   engine_.communicator().broadcast("checkpoint", block, count * size_of(from),
                                                    DType::UInt8, 0, staging_.stream());
                   staging_.stream().synchronize();
                   place(target, first, count);
                 });
}

void Loading::place(const Target& target, Elements first, Elements count) {
  const DType from = target.source->dtype;
  for (const ShardPiece& piece : pieces_[target.tensor]) {
    const Elements begin = std::max(first, piece.first);
    const Elements end = std::min(first + count, piece.first + piece.count);
    if (begin >= end) continue;
    std::byte* destination =
        detail::address_of(engine_, piece) + (begin - piece.first) * size_of(piece.dtype);
    staging_.place(staging_.device_block() + (begin - first) * size_of(from), from, destination,
                   piece.dtype, end - begin);
  }
}

}  // namespace flatshard::detail
