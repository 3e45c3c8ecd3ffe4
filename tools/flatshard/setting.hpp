// What a configuration of FSDP or DeepSpeed asks for, in terms of neither.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "value.hpp"

namespace flatshard_tool {

enum class Framework { Fsdp1, Fsdp2, DeepSpeed };
enum class Strategy {
  NoShard,
  ShardOptimizer,
  ShardGradOp,
  FullShard,
  HybridShard,
  HybridShardGradOp,
  FullShardSecondary
};
enum class Mixed { No, Bf16, Fp16 };
enum class Type { Float32, BFloat16, Float16 };
enum class Place { Device, Cpu, Nvme };
enum class Wrap { Modules, Size, All };
enum class Backward { Pre, Post, None };

/// fp16 loss scaling by DeepSpeed's rule.
struct Scaling {
  std::optional<double> constant;  // a static scale
  std::int64_t initial_power = 16;
  std::int64_t window = 1000;
  std::int64_t hysteresis = 2;
  bool consecutive = false;
  double minimum = 1;
};

enum class NoteKind {
  Difference,    // the same thing behaves otherwise
  Ignored,       // has no effect here, or needs none
  NoCounterpart  // asks for what the other side has not
};
inline constexpr auto ignored = NoteKind::Ignored;
inline constexpr auto none = NoteKind::NoCounterpart;
inline constexpr auto other = NoteKind::Difference;

/// One thing that the reader of a translation must know.
struct Note {
  NoteKind kind;
  std::string key;   // of the configuration, or a topic
  std::string text;  // a sentence
};

struct Setting {
  std::string source;  // the file
  std::string title;   // what it is: "Accelerate, FSDP version 1"
  Framework framework = Framework::Fsdp1;
  Map launch;                         // Accelerate's keys that have nothing to do with sharding
  std::optional<std::int64_t> world;  // processes
  std::int64_t machines = 1;

  Strategy strategy = Strategy::FullShard;
  std::optional<std::int64_t> group;  // ranks of a shard group, of the second shard's group
  Mixed mixed = Mixed::No;
  Type loaded_as = Type::Float32;  // FSDP's flat parameters take it when nothing is mixed
  Place parameters = Place::Device;
  Place optimizer = Place::Device;
  std::string parameters_path, optimizer_path;  // of NVMe

  Wrap wrap = Wrap::Modules;
  std::vector<std::string> layers;  // class names
  std::int64_t wrap_size = 0;       // elements
  bool prefetch_forward = true;
  Backward prefetch_backward = Backward::Pre;
  std::optional<std::int64_t> persistence, max_live;  // elements

  std::int64_t micro_steps = 1;
  std::optional<double> clip;
  std::optional<Type> reduce;  // dtype of the reduced gradient, where it is said
  bool bf16_master = false, bf16_states = false;
  Scaling scaling;
  std::optional<std::string> optimizer_code;  // "flatshard::AdamW{.lr = 0.001}"

  bool whole_checkpoint = false;  // FULL_STATE_DICT, zero3_save_16bit_model
  bool saves_16bit = false;
  bool rank0_loads = false;

  std::vector<Note> notes;
  void note(NoteKind kind, std::string key, std::string text) {
    notes.push_back({kind, std::move(key), std::move(text)});
  }
};

/// What the command line adds to the file.
struct TranslateOptions {
  Type loaded_as = Type::Float32;
  std::optional<Mixed> mixed;  // for "auto"
};

/// Reads an Accelerate configuration (YAML or JSON) or a DeepSpeed one (JSON). Throws RequestError
/// naming what is unknown, contradictory or impossible, FileError when a file cannot be read.
Setting read_setting(const std::string& path, const TranslateOptions& options);

/// Parts of read_setting.
void read_fsdp(const Value& fsdp, const Value& parallelism, Setting& setting);
void read_accelerate_deepspeed(const Value& config, Setting& setting,
                               const TranslateOptions& options, bool mixed_precision_given);
void read_deepspeed(const Value& config, const std::string& source, Setting& setting,
                    const TranslateOptions& options);

bool is_hybrid(Strategy strategy);

}  // namespace flatshard_tool
