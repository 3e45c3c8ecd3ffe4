// What the tests of commits and their folders share.
#pragma once

#include <flatshard/checkpoint/commit.hpp>
#include <flatshard/checkpoint/find_checkpoint.hpp>

#include <functional>
#include <set>
#include <string>

#include "scratch_folder.hpp"
#include "tiny_save.hpp"
#include "without_fsync.hpp"

namespace commit_cases {

using flatshard_test::ScratchFolder;
using Names = std::set<std::string>;

inline flatshard_test::WithoutFsync posix;

inline flatshard::CommitOptions options(const ScratchFolder& scratch, std::int64_t step) {
  return {.folder = scratch / "run", .step = step};
}

/// By one rank.
inline void save(const flatshard::CommitOptions& with, std::int64_t contents_of) {
  flatshard::SoloAgreement solo;
  tiny::save(solo, with, contents_of, posix);
}
inline void save(const ScratchFolder& scratch, std::int64_t step) {
  save(options(scratch, step), step);
}

inline Names names_in(const std::string& folder) {
  Names names;
  for (const auto& entry : flatshard::Folder::open(folder).list()) names.insert(entry.name);
  return names;
}

/// Of the CheckpointError that a call throws; empty when it does not.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const flatshard::CheckpointError& error) {
    return error.what();
  }
}

inline std::string found_in(const ScratchFolder& scratch) {
  return tiny::load(scratch / "run", posix);
}

}  // namespace commit_cases
