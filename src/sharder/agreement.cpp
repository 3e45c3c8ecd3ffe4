#include "agreement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <flatshard/core/error.hpp>
#include <flatshard/sharder/params_hash.hpp>

namespace flatshard::detail {

namespace {

/// Everything that ranks must share and that a Plan's text does not say.
std::string describe(const Model& model, const Optimizer& optimizer, const Options& options) {
  std::string text = fmt::format(
      "{} {} {} {} {} {}", optimizer.name(), options.max_grad_norm, static_cast<int>(options.norm),
      static_cast<int>(options.on_nonfinite), options.seed, options.step_in_backward);
  for (const GroupOptions& group : options.groups)
    text += fmt::format(" {} {}", group.lr_factor, group.weight_decay);
  for (const ParameterSpec& parameter : model.parameters())
    text += fmt::format("\n{} [{}] {}", parameter.name, fmt::join(parameter.shape, ","),
                        parameter.options.group);
  return text;
}

std::uint64_t hash_text(std::uint64_t hash, const std::string& text) {
  return hash_bytes(hash, reinterpret_cast<const std::byte*>(text.data()),
                    static_cast<Bytes>(text.size()));
}

/// all[r] = `own` of rank r. Collectives take memory of the device: the arena serves, which is
/// still empty.
void gather_hashes(Runtime& runtime, std::uint64_t own, std::vector<std::uint64_t>& all) {
  const auto bytes = static_cast<Bytes>(all.size() * sizeof(std::uint64_t));
  const bool fits = bytes <= runtime.plan.arena_bytes;
  const Buffer extra = fits ? Buffer() : Buffer(runtime.memory_resource, bytes);
  auto* gathered = static_cast<std::uint64_t*>(fits ? runtime.arena() : extra.data());
  std::uint64_t* mine = gathered + runtime.world.rank();
  runtime.device.copy(&own, mine, sizeof(own), runtime.reduce);
  runtime.reduce.synchronize();  // `own` goes when the collective fails
  runtime.world.all_gather("agreement", mine, gathered, 1, DType::Int64, runtime.reduce);
  runtime.device.copy(gathered, all.data(), bytes, runtime.reduce);
  runtime.kernels.zero(gathered, bytes, runtime.reduce);
  runtime.reduce.synchronize();
}

}  // namespace

void expect_agreement(Runtime& runtime, const Model& model, const Optimizer& optimizer,
                      const Options& options) {
  const int world = runtime.world.size();
  const std::uint64_t own =
      hash_text(hash_text(0, to_string(runtime.plan)), describe(model, optimizer, options));
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world));
  gather_hashes(runtime, own, all);
  for (int other = 1; other < world; ++other)
    FLATSHARD_EXPECTS(
        all[static_cast<std::size_t>(other)] == all[0],
        fmt::format("rank {} was given another model, policy or options than rank 0", other));
}

}  // namespace flatshard::detail
