#include "options.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "scratch_folder.hpp"

using namespace train_gpt;

namespace {

using Variables = std::map<std::string, std::string>;

CommandLine read(std::vector<const char*> arguments, const Variables& variables = {}) {
  arguments.insert(arguments.begin(), "train_gpt");
  return read_command_line(static_cast<int>(arguments.size()), arguments.data(),
                           [&](const char* name) -> const char* {
                             const auto found = variables.find(name);
                             return found == variables.end() ? nullptr : found->second.c_str();
                           });
}

void check_refused(std::vector<const char*> arguments, const std::string& part,
                   const Variables& variables = {}) {
  INFO("expected: ", part);
  try {
    read(arguments, variables);
    FAIL_CHECK("nothing was refused");
  } catch (const OptionError& error) {
    const std::string sentence = error.what();
    INFO("sentence: ", sentence);
    CHECK(sentence.find(part) != std::string::npos);
    CHECK(sentence.find('\n') == std::string::npos);
  }
}

}  // namespace

TEST_CASE("without options the defaults hold") {
  const Options o = read({}).options;
  CHECK(o.model == ModelShape{4, 128, 4, 64, 256});
  CHECK(o.batch == 48);
  CHECK(o.accumulate == 1);
  CHECK(o.accumulation == flatshard::Accumulation::Running);
  CHECK_FALSE(o.reduce.has_value());
  CHECK(o.lr == 1e-3);
  CHECK(o.optimizer == Optimizer::adamw);
  CHECK(o.precision == Precision::fp32);
}

TEST_CASE("every option is read") {
  const Options o = read({"--data",
                          "text",
                          "--ranks",
                          "4",
                          "--strategy",
                          "hybrid_shard",
                          "--shard-group",
                          "2",
                          "--precision",
                          "fp16_mixed",
                          "--optimizer",
                          "lion",
                          "--layers",
                          "2",
                          "--width",
                          "64",
                          "--heads",
                          "2",
                          "--context",
                          "32",
                          "--batch",
                          "16",
                          "--accumulate",
                          "2",
                          "--accumulation",
                          "tree",
                          "--reduce",
                          "replica_boundary",
                          "--reduce-dtype",
                          "fp16",
                          "--steps",
                          "7",
                          "--seed",
                          "18446744073709551615",
                          "--lr",
                          "2e-4",
                          "--weight-decay",
                          "0",
                          "--clip",
                          "0",
                          "--wrap",
                          "size:1000",
                          "--prefetch-forward",
                          "0",
                          "--prefetch-backward",
                          "post",
                          "--max-live",
                          "5000000000",
                          "--persist",
                          "128",
                          "--scaler",
                          "deepspeed",
                          "--initial-scale",
                          "1024",
                          "--stream",
                          "threaded",
                          "--threads",
                          "2",
                          "--pin-threads",
                          "--metrics",
                          "out.jsonl",
                          "--plan"})
                        .options;
  CHECK(o.data == "text");
  CHECK(o.ranks == 4);
  CHECK(o.pin_threads);
  CHECK(o.strategy == Strategy::hybrid_shard);
  CHECK(o.shard_group == 2);
  CHECK(o.precision == Precision::fp16_mixed);
  CHECK(o.optimizer == Optimizer::lion);
  CHECK(o.model == ModelShape{2, 64, 2, 32, 256});
  CHECK(o.sequences_per_micro_step() == 2);
  CHECK(o.accumulation == flatshard::Accumulation::Tree);
  CHECK(o.reduce == flatshard::ReduceMoment::ReplicaBoundary);
  CHECK(o.reduce_dtype == flatshard::DType::Float16);
  CHECK(o.steps == 7);
  CHECK(o.seed == 18446744073709551615u);
  CHECK(o.lr == 2e-4);
  CHECK(o.weight_decay == 0);
  CHECK(o.clip == 0);
  CHECK(o.wrap == Wrap::size);
  CHECK(o.wrap_size == 1000);
  CHECK(o.prefetch_forward == 0);
  CHECK(o.prefetch_backward == flatshard::BackwardPrefetch::Post);
  CHECK(o.max_live == 5000000000);
  CHECK(o.persist == 128);
  CHECK(o.scaler == Scaler::deepspeed);
  CHECK(o.initial_scale == 1024.0);
  CHECK(o.stream == StreamForm::threaded);
  CHECK(o.threads == 2);
  CHECK(o.metrics == "out.jsonl");
  CHECK(o.plan);
  CHECK(o.device == Place::host);
  const Options large = read({"--vocab", "50304", "--untied-head", "--device", "cuda"}).options;
  CHECK(large.model.vocabulary == 50304);
  CHECK(large.model.untied_head);
  CHECK(large.device == Place::cuda);
  CHECK(read({"--step-in-backward", "--clip", "0"}).options.step_in_backward);
  const Options fixed = read({"--precision", "fp16_mixed", "--scaler", "static:0.5"}).options;
  CHECK(fixed.scaler == Scaler::constant);
  CHECK(fixed.static_scale == 0.5);
}

TEST_CASE("every name that --list prints is taken, and means what it says") {
  const std::string list = *read({"--list"}).answer;
  std::string option;
  std::size_t names = 0;
  for (std::size_t at = 0; at < list.size();) {
    const std::string line = list.substr(at, list.find('\n', at) - at);
    at += line.size() + 1;
    if (line.starts_with("--")) {
      option = line;
      continue;
    }
    std::string name = line.substr(2, line.find(' ', 2) - 2);
    if (name.ends_with(":N") || name.ends_with(":X")) name.back() = '3';
    INFO(option, " ", name);
    std::vector<const char*> arguments{option.c_str(), name.c_str()};
    if (option == "--scaler") arguments.insert(arguments.end(), {"--precision", "fp16_mixed"});
    if (name.starts_with("nvme_")) arguments.insert(arguments.end(), {"--nvme", "folder"});
    if (option == "--reduce") arguments.insert(arguments.end(), {"--strategy", "hybrid_shard"});
    const Options o = read(arguments).options;
    if (option == "--strategy") CHECK(name_of(o.strategy) == name);
    if (option == "--precision") CHECK(name_of(o.precision) == name);
    if (option == "--optimizer") CHECK(name_of(o.optimizer) == name);
    if (option == "--offload") CHECK((o.offload == flatshard::OffloadTraits{}) == (name == "none"));
    ++names;
  }
  CHECK(names == 7 + 8 + 7 + 8 + 2 + 3 + 4 + 3 + 3 + 3 + 2 + 2);
}

TEST_CASE("what cannot be meant is refused in one sentence") {
  check_refused({"--wrong"}, "--wrong");
  check_refused({"--ranks"}, "--ranks");
  check_refused({"--ranks", "many"}, "many");
  check_refused({"--ranks", "0"}, "--ranks must be at least 1, not 0");
  check_refused({"--seed", "-1"}, "--seed");
  check_refused({"--lr", "-1"}, "--lr");
  check_refused({"--lr", "nan"}, "--lr");
  check_refused({"--strategy", "zero"}, "--strategy takes one of no_shard, shard_optimizer");
  check_refused({"--wrap", "size"}, "size:N");
  check_refused({"--wrap", "size:0"}, "--wrap size:N must be at least 1");
  check_refused({"--wrap", "all:3"}, "all:3");
  check_refused({"--batch", "48", "--ranks", "5"}, "--batch 48 does not divide by --ranks 5");
  check_refused({"--batch", "12", "--ranks", "4", "--accumulate", "2"}, "--accumulate 2");
  check_refused({"--heads", "3"}, "--width 128 does not divide by --heads 3");
  check_refused({"--shard-group", "2", "--ranks", "4"}, "full_shard");
  check_refused({"--strategy", "hybrid_shard", "--shard-group", "3", "--ranks", "4"},
                "--ranks 4 does not divide by --shard-group 3");
  check_refused({"--reduce", "replica_boundary"}, "replica");
  check_refused({"--scaler", "torch"}, "fp32 does not scale the loss");
  check_refused({"--precision", "fp16_mixed", "--scaler", "static"}, "static:X");
  check_refused({"--precision", "fp16_mixed", "--scaler", "static:0"}, "above 0");
  check_refused({"--precision", "fp16_mixed", "--scaler", "torch:2"}, "torch:2");
  check_refused({"--step-in-backward"}, "--clip 0");
  check_refused({"--vocab", "255"}, "--vocab must be at least 256, not 255");
  check_refused({"--offload", "nvme"}, "--offload takes one of none, cpu_all");
  check_refused({"--offload", "nvme_all"}, "need --nvme");
  check_refused({"--offload", "cpu_all", "--nvme", "folder"}, "need --nvme");
  check_refused({"--host-budget", "-1"}, "--host-budget must be at least 0");
  check_refused({"--device", "gpu"}, "--device takes one of host, cuda");
  check_refused({"--device", "cuda", "--precision", "fp64"}, "--device cuda computes in fp32");
  check_refused({"--device", "cuda", "--threads", "2"}, "host kernels");
  check_refused({"--device", "cuda", "--pin-threads"}, "--pin-threads needs --threads");
  check_refused({"--device", "cuda", "--threads", "2", "--pin-threads"}, "host kernels");
  check_refused({"--pin-threads"}, "--pin-threads needs --threads");
  check_refused({"--device", "cuda", "--stream", "threaded"}, "host kernels");
  check_refused({"file.txt"}, "file.txt");
}

TEST_CASE("a number is all of its text, and within its range") {
  for (const char* option :
       {"--layers", "--width", "--heads", "--context", "--batch", "--accumulate", "--steps",
        "--seed", "--ranks", "--shard-group", "--prefetch-forward", "--max-live", "--persist",
        "--threads", "--vocab", "--lr", "--weight-decay", "--clip", "--initial-scale"})
    for (const char* text : {"", " ", "x", "1x", "1 2", "+1", "0x10", "1e999"})
      check_refused({option, text}, option);
  for (const char* option : {"--steps", "--seed", "--max-live", "--persist", "--ranks"})
    check_refused({option, "99999999999999999999"}, "99999999999999999999 is out of range");
  CHECK(read({"--steps", "9223372036854775807"}).options.steps == INT64_MAX);
}

TEST_CASE("what no machine can do is refused") {
  check_refused({"--lr", "1e39"}, "--lr");
  check_refused({"--layers", "9223372036854775807"}, "--layers must be at most 10000");
  check_refused({"--vocab", "1073741825"}, "--vocab must be at most 1073741824");
  check_refused({"--ranks", "65537", "--batch", "65537"}, "--ranks must be at most 65536");
  check_refused({"--threads", "2147483647"}, "--threads must be at most 1024");
  check_refused({"--batch", "4611686018427387904"}, "memory");
  check_refused({"--context", "9223372036854775807"}, "memory");
  check_refused({"--width", "4611686018427387904"}, "memory");
  CHECK_NOTHROW(read({"--plan", "--batch", "4611686018427387904"}));
}

TEST_CASE("metrics do not overwrite the data") {
  const flatshard_test::ScratchFolder folder;
  const std::filesystem::path text = folder / "text";
  std::ofstream{text} << "text";
  const std::string same = text.parent_path() / "." / text.filename();
  check_refused({"--data", text.c_str(), "--metrics", same.c_str()}, "overwrite");
  CHECK_NOTHROW(read({"--data", text.c_str()}));
  std::filesystem::remove(text);
  CHECK_NOTHROW(read({"--data", text.c_str(), "--metrics", same.c_str()}));
}

TEST_CASE("checkpoints are saved into a folder, every so many steps or at the end") {
  const Options options = read({"--save", "runs", "--save-every", "3", "--resume", "old"}).options;
  CHECK(options.save == "runs");
  CHECK(options.save_every == 3);
  CHECK(options.resume == "old");
  CHECK(read({"--save", "runs"}).options.save_every == 0);
  check_refused({"--save-every", "3"}, "needs --save");
  check_refused({"--save", "runs", "--save-every", "-1"}, "at least 0");
}

TEST_CASE("--help names every option") {
  const std::string help = *read({"--help"}).answer;
  for (const char* option : {"--data",
                             "--vocab",
                             "--untied-head",
                             "--device",
                             "--ranks",
                             "--strategy",
                             "--shard-group",
                             "--precision",
                             "--optimizer",
                             "--layers",
                             "--width",
                             "--heads",
                             "--context",
                             "--batch",
                             "--accumulate",
                             "--accumulation",
                             "--reduce",
                             "--reduce-dtype",
                             "--steps",
                             "--save",
                             "--save-every",
                             "--resume",
                             "--seed",
                             "--lr",
                             "--weight-decay",
                             "--clip",
                             "--wrap",
                             "--prefetch-forward",
                             "--prefetch-backward",
                             "--max-live",
                             "--persist",
                             "--offload",
                             "--host-budget",
                             "--nvme",
                             "--scaler",
                             "--initial-scale",
                             "--step-in-backward",
                             "--stream",
                             "--threads",
                             "--metrics",
                             "--plan",
                             "--list"})
    CHECK(help.find(std::string{"  "} + option + " ") != std::string::npos);
}

TEST_CASE("a launcher says how many ranks there are") {
  const Variables mpi{{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}};
  for (const std::vector<const char*>& arguments :
       {std::vector<const char*>{}, std::vector<const char*>{"--ranks", "4"}}) {
    const Options o = read(arguments, mpi).options;
    CHECK(o.ranks == 4);
    CHECK(o.launched);
    CHECK(o.process == 2);
  }
  check_refused({"--ranks", "3"}, "--ranks 3 disagrees with the world size of Open MPI, 4", mpi);
  check_refused({"--batch", "6"}, "--batch 6 does not divide by --ranks 4", mpi);
  const Variables one{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}};
  check_refused({"--ranks", "2"}, "--ranks 2 disagrees with the world size of Open MPI, 1", one);
  // Slurm's names in a script that srun did not start: ranks are threads.
  const Variables script{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}};
  const Options threads = read({"--ranks", "4"}, script).options;
  CHECK(threads.ranks == 4);
  CHECK_FALSE(threads.launched);
}
