// What each subcommand is asked, and the function that answers. All throw RequestError or FileError
// (or flatshard::Error from reading files).
#pragma once

#include <flatshard/tensor/dtype.hpp>

#include <optional>
#include <string>
#include <vector>

#include "outcome.hpp"
#include "plan_request.hpp"
#include "setting.hpp"

namespace flatshard_tool {

struct TranslateRequest {
  std::string file;
  std::string output;  // a new file for the other framework's configuration; empty: none
  TranslateOptions options;
};
Outcome run_translate(const TranslateRequest& request);

struct InspectRequest {
  std::string path;
  bool json = false;
};
Outcome run_inspect(const InspectRequest& request);

struct VerifyRequest {
  std::string path;
};
/// Exit code 1 and a line each when something is wrong with contents.
Outcome run_verify(const VerifyRequest& request);

struct DiffRequest {
  std::string a, b;
  bool json = false;
};
/// Exit code 1 unless all tensors are there on both sides with equal bits.
Outcome run_diff(const DiffRequest& request);

/// Of convert, merge and split.
struct RewriteRequest {
  std::vector<std::string> inputs;
  std::string output;                     // a new file, or a new folder for several
  std::optional<flatshard::DType> dtype;  // of floating-point tensors; none: as they are
  flatshard::Bytes shard_bytes = 0;       // most bytes of tensors per file; 0: one file
};
Outcome run_rewrite(const RewriteRequest& request);

Outcome run_plan(const PlanQuestion& question);

}  // namespace flatshard_tool
