#!/usr/bin/env python3
"""fp32 training leaves the same bits whatever the strategy, wrapping, streams or split into ranks.

Usage: one_hash_test.py TRAIN_GPT [OPTION...]   (options go to every run, after the small model's)
"""
import atexit
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TEXT = pathlib.Path(__file__).resolve().parents[2] / "LICENSE"  # a file that does not change between runs
SMALL = "--layers 2 --width 32 --heads 2 --context 16 --batch 48 --steps 20 --clip 1".split() + ["--data", str(TEXT)]
STRATEGIES = ["no_shard", "shard_optimizer", "shard_grad_op", "full_shard", "full_shard_secondary"]
HYBRIDS = ["hybrid_shard", "hybrid_shard_grad_op"]
NVME = tempfile.mkdtemp(prefix="flatshard_nvme_")
GROUPS = {1: [1], 2: [1, 2], 4: [1, 2, 4], 8: [2, 4]}


def variants_of(ranks):
    """Option lists that must not change a bit at this world size."""
    for strategy in STRATEGIES:
        for moment in ["micro", "boundary"]:
            yield ["--strategy", strategy, "--reduce", moment]
    for strategy in HYBRIDS:
        for group in GROUPS[ranks]:
            for moment in ["micro", "boundary", "replica_boundary"]:
                yield ["--strategy", strategy, "--shard-group", str(group), "--reduce", moment]
    for strategy in ["full_shard", "shard_grad_op", "hybrid_shard"]:
        yield ["--strategy", strategy, "--wrap", "all"]
        yield ["--strategy", strategy, "--wrap", "size:20000", "--stream", "threaded"]
        yield ["--strategy", strategy, "--prefetch-forward", "0", "--prefetch-backward", "none"]
        yield ["--strategy", strategy, "--prefetch-forward", "2", "--prefetch-backward", "post"]
        yield ["--strategy", strategy, "--persist", "100", "--threads", "2", "--pin-threads"]
    yield ["--strategy", "full_shard", "--max-live", "60000", "--stream", "threaded"]
    for strategy in ["full_shard", "shard_optimizer"]:
        for offload in ["cpu_all", "cpu_optimizer", "cpu_params"]:
            yield ["--strategy", strategy, "--offload", offload, "--stream", "threaded"]
    for offload in ["nvme_all", "nvme_optimizer", "nvme_params"]:
        yield ["--offload", offload, "--nvme", NVME, "--stream", "threaded"]


class Runner:
    def __init__(self, program, options):
        self.program, self.options = program, options

    def hash_of(self, options):
        with tempfile.TemporaryDirectory() as folder:
            metrics = pathlib.Path(folder) / "metrics"
            command = [self.program, *SMALL, *self.options, *options, "--metrics", str(metrics)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)
            return json.loads(metrics.read_text().splitlines()[-1])["params_hash"]


def differing(runner, fixed, variants):
    """Runs every variant; returns the one hash, or complains and returns None."""
    runs = {" ".join(fixed + variant): runner.hash_of(fixed + variant) for variant in variants}
    hashes = set(runs.values())
    if len(hashes) == 1:
        return hashes.pop()
    for options, value in runs.items():
        print(value, options)
    return None


def main():
    atexit.register(os.rmdir, NVME)  # every run has left it empty
    runner = Runner(sys.argv[1], sys.argv[2:])
    found = {}
    for ranks in [1, 2, 4, 8]:
        fixed = ["--ranks", str(ranks), "--accumulate", str(8 // ranks), "--accumulation", "tree"]
        found[ranks] = differing(runner, fixed, variants_of(ranks))
    odd = [
        differing(runner, ["--ranks", str(ranks)],
                  [["--strategy", strategy] for strategy in STRATEGIES]
                  + [["--strategy", strategy, "--shard-group", str(group)] for strategy in HYBRIDS])
        for ranks, group in [(3, 1), (6, 2)]
    ]
    print(found, odd)
    changed = runner.hash_of(["--ranks", "2", "--accumulate", "4", "--accumulation", "tree", "--lr", "0.0010001"])
    right = len(set(found.values())) == 1 and None not in found.values() and None not in odd
    sys.exit(0 if right and changed not in found.values() else 1)


if __name__ == "__main__":
    main()
