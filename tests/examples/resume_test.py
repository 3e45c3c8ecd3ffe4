#!/usr/bin/env python3
"""train_gpt: a run that was saved, ended and resumed in a new process leaves the bits of an unbroken one.

Usage: resume_test.py TRAIN_GPT
All pairs of strategies at one pair of world sizes, all pairs of world sizes for one strategy.
"""
import itertools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

TEXT = pathlib.Path(__file__).resolve().parents[2] / "LICENSE"  # a file that does not change between runs
SMALL = "--layers 1 --width 16 --heads 2 --context 8 --batch 24 --accumulation tree".split() + ["--data", str(TEXT)]
STRATEGIES = ["no_shard", "shard_optimizer", "shard_grad_op", "full_shard", "hybrid_shard", "hybrid_shard_grad_op",
              "full_shard_secondary"]
WORLDS = [1, 2, 3, 4, 8]
SPLIT = {1: 8, 2: 4, 3: 1, 4: 2, 8: 1}  # micro-steps, so that powers of two cut the batch alike


class Runner:
    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)

    def run(self, name, strategy, ranks, steps, *options):
        """The params_hash at the end."""
        metrics = self.folder / (name + ".json")
        command = [self.program, *SMALL, "--precision", "bf16_mixed", "--strategy", strategy, "--ranks", str(ranks),
                   "--accumulate", str(SPLIT[ranks]), "--steps", str(steps), "--metrics", str(metrics), *options]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
        if done.returncode != 0 or done.stderr:
            raise RuntimeError(" ".join(command) + "\n" + done.stdout + done.stderr)
        return json.loads(metrics.read_text().splitlines()[-1])["params_hash"]

    def resumed(self, name, saved, strategy, ranks):
        return self.run(name, strategy, ranks, 4, "--resume", str(saved))


def complaints(results, expected):
    return [f"{name}: {value} instead of {expected}" for name, value in results.items() if value != expected]


def check_strategies(runner, pool):
    """49 pairs from 2 ranks to 4; also from a step's own folder."""
    whole = runner.run("whole", "full_shard", 1, 4)
    for strategy in STRATEGIES:
        runner.run("first", strategy, 2, 2, "--save", str(runner.folder / strategy))
    jobs = {f"{before}-{after}": pool.submit(runner.resumed, f"{before}-{after}", runner.folder / before, after, 4)
            for before, after in itertools.product(STRATEGIES, STRATEGIES)}
    jobs["step"] = pool.submit(runner.resumed, "step", runner.folder / "no_shard" / "step-2", "full_shard", 2)
    return complaints({name: job.result() for name, job in jobs.items()}, whole)


def check_worlds(runner, pool):
    """25 pairs under full_shard. Where one hash is not promised, two strategies must agree."""
    found = []
    for before in WORLDS:
        runner.run("first", "full_shard", before, 2, "--save", str(runner.folder / f"w{before}"))
        for after in WORLDS:
            names = [(strategy, f"{before}-{after}-{strategy}") for strategy in ["full_shard", "no_shard"]]
            jobs = [pool.submit(runner.resumed, name, runner.folder / f"w{before}", strategy, after)
                    for strategy, name in names]
            results = {name: job.result() for (_, name), job in zip(names, jobs)}
            expected = results[names[1][1]]
            if before == after or 3 not in (before, after):
                expected = runner.run("whole", "full_shard", after, 4)
            found += complaints(results, expected)
    return found


def check_every_step(runner):
    """--save-every keeps a checkpoint of each; one that is damaged is passed over; totals are totals."""
    folder = runner.folder / "every"
    whole = runner.run("every", "full_shard", 2, 4, "--save", str(folder), "--save-every", "1")
    steps = sorted(path.name for path in folder.glob("step-*"))
    found = [] if steps == ["step-1", "step-2", "step-3", "step-4"] else [f"--save-every 1 left {steps}"]
    shutil.rmtree(folder / "step-4")
    (folder / "step-3" / "manifest.json").unlink()
    found += complaints({"fallen back": runner.resumed("back", folder, "hybrid_shard", 4)}, whole)
    late = subprocess.run([runner.program, *SMALL, "--precision", "bf16_mixed", "--ranks", "2", "--steps", "1",
                           "--resume", str(folder)], check=False, capture_output=True, text=True, timeout=60)
    if late.returncode == 0 or "has 2 steps already" not in late.stderr:
        found.append(f"--steps below the steps made: {late.returncode} {late.stderr}")
    return found


def main():
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        runner = Runner(sys.argv[1], folder)
        found = check_strategies(runner, pool) + check_worlds(runner, pool) + check_every_step(runner)
    print("\n".join(found) or "all alike")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
