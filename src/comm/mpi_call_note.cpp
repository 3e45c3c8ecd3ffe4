#include "mpi_call_note.hpp"

#include <algorithm>
#include <string_view>

#include "bytes_at.hpp"

namespace flatshard::detail {

namespace {

/// FNV-1a.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return hash;
}

}  // namespace

MpiCallNote::MpiCallNote(std::uint64_t number, const CollectiveCall& call)
    : index(number),
      label_hash(hash_of(call.label)),
      count(call.count),
      operation(static_cast<std::int32_t>(call.operation)),
      contribution(static_cast<std::int32_t>(call.contribution)),
      result(static_cast<std::int32_t>(call.result)),
      root(call.root),
      label_length(static_cast<std::int64_t>(call.label.size())) {
  std::copy_n(call.label.begin(), std::min(call.label.size(), most_label), label.begin());
}

CollectiveCall MpiCallNote::call() const {
  const std::string_view name(label.data(), std::min(unsigned_of(label_length), most_label));
  return {static_cast<Operation>(operation), name, count, static_cast<DType>(contribution),
          static_cast<DType>(result),        root};
}

}  // namespace flatshard::detail
