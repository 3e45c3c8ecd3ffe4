// What synchronous and asynchronous saves share.
#pragma once

#include <flatshard/checkpoint/save.hpp>

#include <string_view>
#include <vector>

#include "communicator_agreement.hpp"
#include "range_writer.hpp"
#include "save_layout.hpp"
#include "staging.hpp"

namespace flatshard::detail {

/// Throws UsageError for options that no save can have.
void validate(const SaveOptions& options);

std::vector<std::string_view> state_names_of(const Engine& engine);
/// The layout of what the engine would save.
SaveLayout plan_save(const Engine& engine, const SaveOptions& options);

/// Everything of the manifest but the files. Call after begin_state_read().
Manifest describe(const Engine& engine, const SaveOptions& options);
/// The manifest with the files, whose tensors have the digests that the ranges combine to.
Manifest with_files(Manifest manifest, const SaveLayout& layout, std::vector<RangeDigest> ranges);

CommitOptions commit_options(const SaveOptions& options, const SaveLayout& layout,
                             std::int64_t step);
FileOperations& operations_of(const SaveOptions& options);

using flatshard::address_of;

/// Calls act(first, count) for consecutive blocks of `count` elements of at most `block` each.
template <class Act>
void for_each_block(Elements count, Elements block, const Act& act) {
  for (Elements first = 0; first < count; first += block)
    act(first, std::min(block, count - first));
}

}  // namespace flatshard::detail
