#pragma once

#include <flatshard/comm/world_from_env.hpp>
#include <flatshard/sharder/options.hpp>
#include <flatshard/tensor/dtype.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "option_error.hpp"
#include "shape.hpp"

namespace train_gpt {

enum class Strategy {
  no_shard,
  shard_optimizer,
  shard_grad_op,
  full_shard,
  hybrid_shard,
  hybrid_shard_grad_op,
  full_shard_secondary
};
enum class Precision {
  fp32,
  fp64,
  bf16,
  fp16,
  bf16_mixed,
  deepspeed_bf16,
  fp16_mixed,
  bf16_stochastic
};
enum class Optimizer { adamw, adam, amsgrad, nadam, rmsprop, sgd, lion, adagrad };
enum class Wrap { block, all, size };
enum class Scaler { torch, deepspeed, constant };
enum class StreamForm { inline_, threaded };
enum class Place { host, cuda };

/// What the command line says. `none` fields keep the library's own default.
struct Options {
  std::string data;  // empty: the project's own text
  ModelShape model;

  Place device = Place::host;
  int ranks = 1;  // threads of this process or launched processes; with Place::cuda one GPU each
  bool launched = false;  // ranks are processes that a launcher started
  int process = 0;        // the launched rank of this one
  Strategy strategy = Strategy::full_shard;
  int shard_group = 0;  // ranks per group; 0: the library's default
  Precision precision = Precision::fp32;
  Optimizer optimizer = Optimizer::adamw;
  flatshard::OffloadTraits offload;
  std::int64_t host_budget = flatshard::unlimited_bytes;  // bytes, pinned
  std::string nvme;                                       // folder of what rests on NVMe

  std::int64_t batch = 48;  // sequences of a step, over all ranks and micro-steps
  int accumulate = 1;       // micro-steps of a step
  flatshard::Accumulation accumulation = flatshard::Accumulation::Running;
  std::optional<flatshard::ReduceMoment> reduce;
  std::optional<flatshard::DType> reduce_dtype;

  std::int64_t steps = 700;
  std::uint64_t seed = 1;
  double lr = 1e-3;
  double weight_decay = 0.1;
  double clip = 1;  // 0: off

  Wrap wrap = Wrap::block;
  std::int64_t wrap_size = 0;  // elements, with Wrap::size
  int prefetch_forward = 1;
  flatshard::BackwardPrefetch prefetch_backward = flatshard::BackwardPrefetch::Pre;
  std::optional<std::int64_t> max_live;  // elements
  std::int64_t persist = 0;              // elements

  std::optional<Scaler> scaler;
  double static_scale = 1;  // with Scaler::constant
  std::optional<double> initial_scale;
  bool step_in_backward = false;
  StreamForm stream = StreamForm::inline_;
  int threads = 1;           // per rank, of the library's kernels
  bool pin_threads = false;  // each rank's on cores of their own

  std::string save;             // folder of checkpoints; empty: none
  std::int64_t save_every = 0;  // steps; 0: at the end only
  std::string resume;           // folder of checkpoints, or of one; empty: from the beginning

  std::string metrics;  // file of JSON lines; empty: none
  bool plan = false;    // print the Plan and exit

  std::int64_t sequences_per_micro_step() const {
    return batch / (std::int64_t{ranks} * accumulate);
  }
};

/// Options, or what --help and --list print instead of training.
struct CommandLine {
  Options options;
  std::optional<std::string> answer;
};

/// Throws OptionError with one sentence on anything that cannot be meant. `lookup` finds what a
/// launcher has set.
CommandLine read_command_line(int argc, const char* const* argv,
                              const flatshard::EnvironmentLookup& lookup);

/// Under a launcher, its number of ranks; throws OptionError when --ranks was given and is another.
/// A single process of Slurm, whose names an allocation leaves behind, may have ranks as threads.
void take_launched_ranks(Options& options, bool is_given,
                         const flatshard::EnvironmentLookup& lookup);

/// The rules that hold between options: throws OptionError.
void validate(const Options& options);

/// The name of each choice, as it is written on the command line.
std::string name_of(Strategy strategy);
std::string name_of(Precision precision);
std::string name_of(Optimizer optimizer);

bool is_hybrid(Strategy strategy);
bool scales_loss(Precision precision);

/// Every named choice of every option, with its meaning: what --list prints.
std::string list_of_names();

}  // namespace train_gpt
