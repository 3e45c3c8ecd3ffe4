#!/usr/bin/env python3
"""flatshard plan --gpt shows train_gpt's own Plan: plan_test.py FLATSHARD TRAIN_GPT"""
import json
import re
import subprocess
import sys

FLATSHARD, TRAIN_GPT = sys.argv[1:]
STRATEGIES = ["no_shard", "shard_optimizer", "shard_grad_op", "full_shard", "hybrid_shard", "hybrid_shard_grad_op",
              "full_shard_secondary"]
PRECISIONS = ["fp32", "fp64", "bf16", "fp16", "bf16_mixed", "deepspeed_bf16", "fp16_mixed", "bf16_stochastic"]
MODEL = "--layers 4 --width 128 --context 64 --batch 48".split()


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def numbers_of_train_gpt(options, world):
    text = output(TRAIN_GPT, "--plan", *MODEL, "--ranks", world, *options)
    roles = {name: int(count) for name, count in re.findall(r"^  (\S[a-z ]*?) +(\d+)$", text, re.MULTILINE)}
    traffic = re.findall(r"^  (\w+) +(\w+) +(\w[\w ]*?) +(\d+) calls +(\d+)$", text, re.MULTILINE)
    return roles.pop("all"), roles, traffic


def numbers_of_flatshard(options, world):
    answer = json.loads(output(FLATSHARD, "plan", "--gpt", "4,128,256,64", "--json", "--world", world, *options))
    roles = {name: count for name, count in answer["device_roles"].items() if count > 0}
    keys = ["what", "collective", "over", "calls", "bytes"]
    return answer["bytes"]["device"], roles, [tuple(str(entry[key]) for key in keys) for entry in answer["traffic"]]


def staging(*options):
    answer = output(FLATSHARD, "plan", "--gpt", "4,128,256,64", "--json", "--offload", "cpu_optimizer",
                    "--precision", "bf16_mixed", *options)
    return json.loads(answer)["host_roles"].get("staging", 0)


def faults_of_parts():
    """Two blocks of bf16 on their way up, or four parts; with a step in backward also four of fp32 on their way down."""
    two_blocks = 2 * 2 * (12 * 128 * 128 + 13 * 128)
    expected = {("--update-part", "0"): two_blocks, ("--update-part", "0", "--step-in-backward"): two_blocks,
                ("--update-part", "1000"): 4 * 2000, ("--update-part", "1000", "--step-in-backward"): 4 * 6000}
    found = {options: staging(*options) for options in expected}
    if found != expected:
        print("staging", found, expected, sep="\n  ")
    return found != expected


def main():
    faults = int(faults_of_parts())
    cases = [(["--strategy", strategy, "--precision", precision], world) for strategy in STRATEGIES
             for precision in PRECISIONS for world in "1248"]
    cases += [("--strategy full_shard --precision bf16_mixed --accumulate 6 --accumulation tree".split(), "4"),
              ("--strategy hybrid_shard --shard-group 4 --reduce replica_boundary --accumulate 2".split(), "8"),
              ("--strategy shard_grad_op --wrap all --persist 200 --optimizer sgd".split(), "3"),
              ("--strategy full_shard --prefetch-forward 2 --prefetch-backward none".split(), "6")]
    for options, world in cases:
        ours, theirs = numbers_of_flatshard(options, world), numbers_of_train_gpt(options, world)
        theirs[1].pop("alignment and skew", None)
        if ours != theirs:
            faults += 1
            print(options, world, ours, theirs, sep="\n  ")
    print(f"{len(cases)} plans and their parts, {faults} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
