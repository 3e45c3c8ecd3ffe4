#include "agreement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <flatshard/core/error.hpp>
#include <flatshard/sharder/params_hash.hpp>

namespace flatshard::detail {

namespace {

/// Everything that ranks must share and that a Plan's text does not say.
std::string describe(const Model& model, const Optimizer& optimizer, const Options& options) {
  std::string text = fmt::format("{} {} {} {} {}", optimizer.name(), options.max_grad_norm,
                                 static_cast<int>(options.norm),
                                 static_cast<int>(options.on_nonfinite), options.seed);
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

}  // namespace

void expect_agreement(Runtime& runtime, const Model& model, const Optimizer& optimizer,
                      const Options& options) {
  const int world = runtime.world.size();
  const std::uint64_t own =
      hash_text(hash_text(0, to_string(runtime.plan)), describe(model, optimizer, options));
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world));
  const auto rank = static_cast<std::size_t>(runtime.world.rank());
  all[rank] = own;
  runtime.world.all_gather("agreement", &all[rank], all.data(), 1, DType::Int64, runtime.reduce);
  runtime.reduce.synchronize();
  for (int other = 1; other < world; ++other)
    FLATSHARD_EXPECTS(
        all[static_cast<std::size_t>(other)] == all[0],
        fmt::format("rank {} was given another model, policy or options than rank 0", other));
}

}  // namespace flatshard::detail
