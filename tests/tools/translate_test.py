#!/usr/bin/env python3
"""flatshard translate: every configuration of configurations/ gives the text beside it, what cannot be
meant is named, and a translation of a translation asks for the same.

The types that this version has are compiled as they are printed.

Usage: translate_test.py FLATSHARD INCLUDE COMPILER... | translate_test.py --update FLATSHARD (writes the texts)
"""
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent / "configurations"
CONFIGURATIONS = sorted(path for path in FOLDER.iterdir() if path.suffix in (".yaml", ".json"))
OPTIONS = {"fsdp_hybrid_zero2.yaml": ["--loaded-as", "bfloat16"], "ds_zero2.json": ["--mixed-precision", "bf16"]}

FSDP = "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"
FSDP_2 = "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
DEEPSPEED = "distributed_type: DEEPSPEED\ndeepspeed_config:\n"
# Suffix and text of a file, and words of the complaint.
BAD = [
    ("yaml", FSDP + "  fsdp_shard_strategy: 1\n", "fsdp_config.fsdp_shard_strategy is not a key.*fsdp_sharding_strategy"),
    ("yaml", "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: 6\n", "fsdp_sharding_strategy must be at most 5, not 6"),
    ("yaml", "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL\n", "must be one of FULL_SHARD.*not \"FULL\""),
    ("yaml", FSDP + "  fsdp_offload_params: maybe\n", "fsdp_offload_params must be true or false, not \"maybe\""),
    ("yaml", FSDP + "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n", "fsdp_min_num_params must be a number above 0"),
    ("yaml", FSDP + "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_min_num_params: -1\n", "must be at least 0, not -1"),
    ("yaml", FSDP + "  fsdp_cpu_ram_efficient_loading: true\n  fsdp_sync_module_states: false\n", "fsdp_sync_module_states cannot be false"),
    ("yaml", FSDP + "  fsdp_reshard_after_forward: true\n", "is a boolean only with fsdp_version 2"),
    ("yaml", FSDP + "  fsdp_reshard_after_forward: NO_SHARD\n", "contradicts fsdp_reshard_after_forward"),
    ("yaml", FSDP + "  fsdp_version: 3\n", "fsdp_version must be at most 2, not 3"),
    ("yaml", FSDP_2 + "  fsdp_forward_prefetch: true\n", "fsdp_forward_prefetch cannot be true with fsdp_version 2"),
    ("yaml", FSDP_2 + "  fsdp_reshard_after_forward: FULL_SHARD\n", "fsdp_reshard_after_forward must be true or false"),
    ("yaml", FSDP_2 + "  fsdp_state_dict_type: LOCAL_STATE_DICT\n", "cannot be LOCAL_STATE_DICT"),
    ("yaml", FSDP_2 + "num_processes: 8\nparallelism_config:\n  parallelism_config_dp_shard_size: 4\n", "asks for 4 ranks, but num_processes is 8"),
    ("yaml", FSDP + "parallelism_config:\n  parallelism_config_dp_shard_size: 4\n", "parallelism_config needs fsdp_version 2"),
    ("yaml", FSDP + "deepspeed_config:\n  zero_stage: 2\n", "deepspeed_config contradicts distributed_type FSDP"),
    ("yaml", FSDP + "num_processes: 3\nnum_machines: 2\n", "num_processes 3 does not divide by num_machines 2"),
    ("yaml", FSDP + "num_processes: 0\n", "num_processes must be at least 1"),
    ("yaml", FSDP + "mixed_precision: fp8\n", "fp8 is a precision that flatshard has not"),
    ("yaml", FSDP + "mixed_precison: bf16\n", "mixed_precison is not a key.*mixed_precision"),
    ("yaml", FSDP + "fsdp_config:\n  fsdp_version: 1\n", "line 4: the key 'fsdp_config' is given twice"),
    ("yaml", "distributed_type: [FSDP\n", "line"),
    ("yaml", "a: &a [1, 2]\n---\nb: 1\n", "more than one YAML document"),
    ("yaml", "distributed_type: MULTI_GPU\n", "must be FSDP or DEEPSPEED"),
    ("yaml", "- 1\n", "must be a map"),
    ("yaml", DEEPSPEED + "  zero_stage: 4\n", "zero_stage must be at most 3, not 4"),
    ("yaml", DEEPSPEED + "  zero_stage: 2\n  offload_param_device: cpu\n", "offload_param_device cpu needs stage 3, not 2"),
    ("yaml", DEEPSPEED + "  zero_stage: 2\n  offload_optimizer_device: nvme\n  offload_optimizer_nvme_path: /n\n", "offload_optimizer_device nvme needs stage 3, not 2"),
    ("yaml", DEEPSPEED + "  zero_stage: 0\n  offload_optimizer_device: cpu\n", "offload_optimizer_device cpu needs stage 1, 2 or 3, not 0"),
    ("yaml", DEEPSPEED + "  zero_stage: 3\n  offload_param_device: nvme\n", "offload_param_nvme_path is missing"),
    ("yaml", DEEPSPEED + "  gradient_accumulation_steps: 0\n", "gradient_accumulation_steps must be at least 1, not 0"),
    ("yaml", DEEPSPEED + "  gradient_clipping: -1\n", "gradient_clipping must be a finite number of at least 0, not -1"),
    ("yaml", DEEPSPEED + "  deepspeed_config_file: x.json\n  zero_stage: 3\n", "zero_stage contradicts deepspeed_config_file"),
    ("yaml", DEEPSPEED + "  zero_stages: 3\n", "deepspeed_config.zero_stages is not a key.*zero_stage"),
    ("json", '{"zero_optimization": {"stage": 5}}', "zero_optimization.stage must be at most 3, not 5"),
    ("json", '{"zero_optimization": {"stage": 2.5}}', "must be a whole number, not 2.5"),
    ("json", '{"zero_optimization": {"stage": 3, "stage3_live": 1}}', "stage3_live is not a key"),
    ("json", '{"zero_optimization": {"reduce_bucket_size": 0}}', "reduce_bucket_size must be at least 1, not 0"),
    ("json", '{"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}', "offload_param cpu needs stage 3, not 2"),
    ("json", '{"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}', "offload_param.nvme_path is missing"),
    ("json", '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "tape"}}}', "must be one of none, cpu, nvme"),
    ("json", '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 2}}}', "ratio must be at most 1"),
    ("json", '{"zero_optimization": {"stage": 2, "cpu_offload": true, "offload_optimizer": {"device": "cpu"}}}', "cpu_offload and offload_optimizer both"),
    ("json", '{"zero_optimization": {"stage": 3, "mics_shard_size": 2, "zero_hpz_partition_size": 2}}', "contradict each other"),
    ("json", '{"zero_optimization": {"stage": 2, "mics_shard_size": 2}}', "mics_shard_size needs stage 3, not 2"),
    ("json", '{"zero_optimization": {"stage": 3, "mics_shard_size": 3}, "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}', "mics_shard_size 3 does not divide the 8 processes"),
    ("json", '{"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2}', "train_batch_size 7 is no multiple"),
    ("json", '{"train_batch_size": "many"}', "train_batch_size must be a whole number, not \"many\""),
    ("json", '{"fp16": {"enabled": true}, "bf16": {"enabled": true}}', "fp16 and bf16 are both enabled"),
    ("json", '{"bf16": {"enabled": "auto"}}', "bf16.enabled is \"auto\".*--mixed-precision"),
    ("json", '{"fp16": {"enabled": true, "min_loss_scale": 0}}', "min_loss_scale must be above 0"),
    ("json", '{"fp16": {"enabled": true, "loss_scale_window": 0}}', "loss_scale_window must be at least 1"),
    ("json", '{"bf16": {"enabled": true, "bf16_optimizer_states": true}}', "needs bf16_master_weights_and_grads"),
    ("json", '{"optimizer": {"type": "AdamW", "params": {"betas": [0.9, 1.5]}}}', r"two numbers in \[0, 1\)"),
    ("json", '{"optimizer": {"type": "AdamW", "params": {"learning_rate": 1}}}', "learning_rate is not a key"),
    ("json", '{"optimizer": {}}', "optimizer.type is missing"),
    ("json", '{"gradient_cliping": 1.0}', "gradient_cliping is not a key.*gradient_clipping"),
    ("json", '{"bf16": {}, "bf16": {}}', "the key 'bf16' is given twice"),
    ("json", '{"bf16": ', "parse error"),
    ("json", '{"bf16": true}', "bf16 must be a map"),
    ("json", "[1]", "must be a map"),
    ("json", "[" * 101 + "]" * 101, "more than 100 levels"),
]


def translate(flatshard, *arguments):
    return subprocess.run([flatshard, "translate", *arguments], capture_output=True, text=True, cwd=FOLDER, timeout=60)


def faults_of_texts(flatshard, update):
    for path in CONFIGURATIONS:
        done = translate(flatshard, path.name, *OPTIONS.get(path.name, []))
        expected = path.with_name(path.name + ".expected")
        if update:
            expected.write_text(done.stdout)
        if done.returncode != 0 or done.stderr:
            yield f"{path.name}: {done.returncode} {done.stderr}"
        elif done.stdout != expected.read_text():
            yield f"{path.name}: not as expected:\n{done.stdout}"


def faults_of_bad_files(flatshard, folder):
    for suffix, text, words in BAD:
        path = folder / f"bad.{suffix}"
        path.write_text(text)
        done = translate(flatshard, path)
        if done.returncode != 2 or done.stdout or not re.search(words, done.stderr) or done.stderr.count("\n") != 1:
            yield f"{text!r} should be refused with {words!r}: {done.returncode} {done.stdout}{done.stderr}"


def strategy_of(text):
    return re.search(r"flatshard::strategy::(\w+)", text).group(1)


# What the other framework cannot say comes back as its nearest.
NEAREST = {"ShardOptimizer": "ShardGradOp", "FullShardSecondary": "FullShard", "HybridShardGradOp": "HybridShard"}


def faults_of_return(flatshard, folder):
    for path in CONFIGURATIONS:
        output = folder / f"{path.name}.other"
        there = translate(flatshard, path.name, "--output", output, *OPTIONS.get(path.name, []))
        back = translate(flatshard, output)
        if there.returncode or back.returncode:
            yield f"{path.name}: there and back: {there.stderr}{back.stderr}"
            continue
        strategy = strategy_of(there.stdout)
        if strategy_of(back.stdout) != NEAREST.get(strategy, strategy):
            yield f"{path.name}: {strategy} came back as {strategy_of(back.stdout)}"
        if translate(flatshard, path.name, "--output", output, *OPTIONS.get(path.name, [])).returncode != 3:
            yield f"{path.name}: an existing file was written over"


def faults_of_files(flatshard):
    missing = translate(flatshard, "no/such/file.yaml")
    if missing.returncode != 3 or "no/such/file.yaml cannot be opened" not in missing.stderr:
        yield f"missing file: {missing.returncode} {missing.stderr}"
    for option in (["--loaded-as", "int8"], ["--mixed-precision", "fp8"], ["--nonsense"]):
        if translate(flatshard, "ds_zero2.json", *option).returncode != 2:
            yield f"{option} was accepted"
    asked = translate(flatshard, "ds_zero2.json", "--mixed-precision", "fp16")
    if "Fp16MixedScaling" not in asked.stdout and "bf16" in asked.stderr:
        yield f"--mixed-precision: {asked.stdout}{asked.stderr}"


def faults_of_code(include, compiler, folder):
    program = "#include <flatshard/flatshard.hpp>\n"
    for number, path in enumerate(CONFIGURATIONS):
        code = path.with_name(path.name + ".expected").read_text().split("\nflatshard\n")[1].split("\nDtypes")[0]
        program += f"void f{number}(flatshard::Communicator& communicator, const flatshard::Model& model) {{\n{code}}}\n"
    (folder / "printed.cpp").write_text(program)
    command = [*compiler, "-std=c++20", "-fsyntax-only", "-I", include, folder / "printed.cpp"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    if done.returncode or program.count("Trainer trainer") < 5:
        yield f"what is printed does not compile: {done.stderr}"


def main():
    update = sys.argv[1] == "--update"
    flatshard = str(pathlib.Path(sys.argv[2 if update else 1]).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        faults = [*faults_of_texts(flatshard, update), *faults_of_bad_files(flatshard, folder),
                  *faults_of_return(flatshard, folder), *faults_of_files(flatshard)]
        if not update:
            faults += faults_of_code(sys.argv[2], sys.argv[3:], folder)
    print(*faults, sep="\n")
    print(f"{len(CONFIGURATIONS)} configurations, {len(BAD)} refusals, {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
