#include <flatshard/config.hpp>
#include <flatshard/sharder/params_hash.hpp>

#include <vector>

namespace flatshard {

namespace detail {

FLATSHARD_WRAPS std::uint64_t hash_bytes(std::uint64_t hash, const std::byte* data, Bytes bytes) {
  for (Bytes at = 0; at < bytes; ++at)
    hash = (hash ^ static_cast<std::uint64_t>(data[at])) * 0x100000001b3ULL;
  return hash;
}

}  // namespace detail

std::uint64_t params_hash(Engine& engine) {
  constexpr std::uint64_t offset_basis = 0xcbf29ce484222325ULL;
  const std::vector<ParameterSpec>& parameters = engine.model().parameters();
  std::vector<std::uint64_t> hashes(parameters.size());
  for (int module = 0; module < static_cast<int>(engine.model().modules().size()); ++module) {
    const Summoned summoned = engine.summon(module);
    for (int index : engine.model().modules()[static_cast<std::size_t>(module)].parameters) {
      const auto at = static_cast<std::size_t>(index);
      const Bytes bytes = parameters[at].numel() * size_of(engine.master_dtype(index));
      std::vector<std::byte> host(static_cast<std::size_t>(bytes));
      engine.read(summoned.data(index), host.data(), bytes);
      hashes[at] = detail::hash_bytes(offset_basis, host.data(), bytes);
    }
  }
  return detail::hash_bytes(offset_basis, reinterpret_cast<const std::byte*>(hashes.data()),
                            static_cast<Bytes>(hashes.size() * sizeof(std::uint64_t)));
}

}  // namespace flatshard
