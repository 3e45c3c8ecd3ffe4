#!/usr/bin/env python3
"""What a rank's device memory holds: the Plan's bytes, ours, and the driver's figure.

Usage: memory.py TRAIN_GPT [--models 163M,1417M] [--gpus 2]

Trains the models of train_gpt.py by FullShard, bf16_mixed, for some steps and prints one table, in
MiB of GPU 0: what the Plan promises for our arena, what the device's resource handed out at its peak
(the arena, scratch of sums, and the model's own activations), and what the driver says is in use,
before and at most during the run (context, kernels, cuBLAS and NCCL included).
"""
import argparse
import json
import re
import subprocess
import tempfile
import time
from pathlib import Path

from train_gpt import CONTEXT, MODELS, VOCABULARY


def driver_mib():
    return int(subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"],
                              capture_output=True, text=True, check=True).stdout)


def options(name, gpus):
    layers, width, heads, batch = MODELS[name]
    return ["--device", "cuda", "--precision", "bf16_mixed", "--strategy", "full_shard",
            "--layers", str(layers), "--width", str(width), "--heads", str(heads),
            "--context", str(CONTEXT), "--vocab", str(VOCABULARY), "--untied-head", "--clip", "1",
            "--ranks", str(gpus), "--batch", str(batch * gpus), "--steps", "30"]


def planned_bytes(program, given):
    out = subprocess.run([program, *given, "--plan"], capture_output=True, text=True, check=True).stdout
    return int(re.search(r"device memory:.*?\n  all +(\d+)", out, re.S).group(1))


def trained(program, given):
    """Peaks of our resource (bytes) and of the driver's figure (MiB)."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder, "metrics.jsonl")
        run = subprocess.Popen([program, *given, "--metrics", str(metrics)], stdout=subprocess.DEVNULL)
        used = 0
        while run.poll() is None:
            used = max(used, driver_mib())
            time.sleep(0.1)
        if run.returncode != 0:
            raise SystemExit(f"{program} ended with {run.returncode}")
        steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    return steps[-2]["peak_device_bytes"], used


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--gpus", type=int, default=2)
    given = parser.parse_args()
    print("| model | Plan: arena | resource's peak | driver before | driver's peak |\n|---|---|---|---|---|")
    for name in given.models.split(","):
        before = driver_mib()
        plan = planned_bytes(given.program, options(name, given.gpus))
        peak, used = trained(given.program, options(name, given.gpus))
        print(f"| {name} | {plan / 2**20:.1f} | {peak / 2**20:.1f} | {before} | {used} |", flush=True)


if __name__ == "__main__":
    main()
