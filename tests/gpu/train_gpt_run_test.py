#!/usr/bin/env python3
"""Training runs on a GPU as a user starts them: train_gpt_run_test.py TRAIN_GPT [offload: that alone]

In fp32 one GPU follows the host's losses; equal options give equal bits; two GPUs give one hash for
every strategy; 16-bit precisions learn as on the host; refusals are one sentence. Ends with 77 where there is no GPU.
"""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS, TOLERANCE = 20, 1e-4
STRATEGIES = ["no_shard", "shard_optimizer", "shard_grad_op", "full_shard", "hybrid_shard",
              "hybrid_shard_grad_op", "full_shard_secondary"]
LICENSE = Path(__file__).resolve().parents[2] / "LICENSE"
TEXT = ["--data", "words.txt"]


def write_words():
    """Words of the license in a random order. In the license itself some letters are so rare that
    AdamW steps by the rounding of their gradients: there even fp32 and fp64 on the host part, by 3e-5."""
    draw = random.Random(1)
    words = re.findall(r"[A-Za-z]+", LICENSE.read_text())
    Path("words.txt").write_text(" ".join(draw.choice(words) for _ in range(20000)))


def start(program, *options, steps=STEPS, batch=8):
    return subprocess.run([program, "--batch", str(batch), "--steps", str(steps), *options],
                          capture_output=True, text=True, timeout=250)


def losses(program, *options):
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder, "metrics.jsonl")
        done = start(program, *options, "--metrics", str(metrics))
        if done.returncode != 0:
            sys.exit(f"{' '.join(options)}: {done.stderr}")
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [line["loss"] for line in lines[:-1]], lines[-1]["params_hash"], lines[-2]


def check(holds, sentence):
    if not holds:
        sys.exit(sentence)


def check_refusals(program):
    for options, part in ((["--device", "cuda", "--precision", "fp64"], "fp64 needs --device host"),
                          (["--device", "cuda", "--ranks", "4096"], "one GPU per rank")):
        done = start(program, *options, batch=4096)
        check(done.returncode == 2 and part in done.stderr and done.stderr.count("\n") == 1,
              f"{options}: {done.returncode} {done.stderr}")


def check_strategies(program):
    """At two ranks a sum has one order: one params_hash, run to run."""
    hashes = {}
    for strategy in STRATEGIES:
        for _ in range(2):
            _, found, _ = losses(program, "--device", "cuda", "--ranks", "2", "--strategy", strategy,
                                 "--clip", "1", "--accumulate", "2", *TEXT)
            hashes.setdefault(found, []).append(strategy)
    print(f"seven strategies on two GPUs, twice each: {hashes}")
    check(len(hashes) == 1, "strategies differ on two GPUs")


def planned_bytes(program, *options):
    """Of the device, as --plan says."""
    text = start(program, "--device", "cuda", "--plan", *options).stdout
    return int(re.search(r"bytes per rank, device[^:]*:.*?\n  all +(\d+)", text, re.DOTALL)[1])


def check_offload(program):
    """The same losses and bits wherever parts rest; the device has as much less as the Plan."""
    for precision in ("fp32", "bf16_mixed"):
        options = [*TEXT, "--precision", precision, "--clip", "1", "--accumulate", "2"]
        expected, digest, last = losses(program, "--device", "cuda", *options)
        for place in ("cpu_all", "cpu_optimizer", "cpu_params"):
            for budget in ([], ["--host-budget", "100000"]):
                offload = ["--offload", place, *budget]
                found, again, end = losses(program, "--device", "cuda", *options, *offload)
                check(found == expected and again == digest, f"{precision} {offload} leaves the path")
                freed = last["peak_device_bytes"] - end["peak_device_bytes"]
                planned = planned_bytes(program, *options) - planned_bytes(program, *options, *offload)
                check(freed == planned, f"{offload}: {freed} bytes freed, {planned} planned")
    print("offload from the GPU: three places, with and without a budget, keep bits and Plan")


def main():
    program = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_words()
        compare(program)
        os.chdir("/")


def compare(program):
    probe = start(program, "--device", "cuda", steps=1)
    if probe.returncode == 2 and "no CUDA device" in probe.stderr:
        print(probe.stderr)
        sys.exit(77)
    check(probe.returncode == 0, probe.stderr)
    if sys.argv[2:] == ["offload"]:
        return check_offload(program)
    check_refusals(program)
    for model in (TEXT, ["--vocab", "1000", "--untied-head", "--accumulate", "2"]):
        host, _, _ = losses(program, *model)
        gpu, first, last = losses(program, "--device", "cuda", *model)
        worst = max(abs(a - b) / a for a, b in zip(host, gpu))
        print(f"{model[:2]}: host's and GPU's losses differ by at most {worst:.2e}")
        check(len(gpu) == STEPS and worst <= TOLERANCE, "the GPU left the host's path")
        check(last["peak_device_bytes"] > 0 and "mfu" in last, "metrics of the device are missing")
        _, again, _ = losses(program, "--device", "cuda", *model)
        check(first == again, "two runs of equal options differ")
    check_offload(program)
    if start(program, "--device", "cuda", "--ranks", "2", steps=1).returncode == 0:
        check_strategies(program)
    else:
        print("one GPU only: strategies on two GPUs are not compared")
    for precision in ("bf16_mixed", "fp16_mixed", "bf16"):
        host, _, _ = losses(program, *TEXT, "--precision", precision)
        gpu, _, _ = losses(program, "--device", "cuda", *TEXT, "--precision", precision)
        print(f"{precision}: {gpu[0]:.3f} to {gpu[-1]:.3f}, on the host {host[-1]:.3f}")
        check(gpu[-1] < gpu[0] - 2, f"--precision {precision} learns nothing")
        check(abs(gpu[-1] - host[-1]) < 0.02 * host[-1], f"--precision {precision} leaves the host's path")


if __name__ == "__main__":
    main()
