#!/usr/bin/env python3
"""Mixed precisions learn as fp32 does, fp16 recovers from overflow, bf16_stochastic has one hash.

Usage: precision_test.py TRAIN_GPT [OPTION...]   (options go to every run, after the small model's)
"""
import json
import pathlib
import subprocess
import sys
import tempfile

TEXT = pathlib.Path(__file__).resolve().parents[2] / "LICENSE"  # a file that does not change between runs
SMALL = "--layers 2 --width 64 --heads 2 --context 32 --batch 48".split() + ["--data", str(TEXT)]


def run(program, options, steps=100):
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "metrics"
        subprocess.run([program, *SMALL, "--steps", str(steps), *options, "--metrics", str(metrics)], check=True,
                       stdout=subprocess.DEVNULL, timeout=900)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        return lines[:-1], lines[-1]["params_hash"]


def mean_of_last(steps):
    """Mean loss of steps 81 to 100."""
    losses = [step["loss"] for step in steps if 81 <= step["step"] <= 100]
    return sum(losses) / len(losses)


def check(holds, what):
    print("ok    " if holds else "FAILED", what)
    return holds


def close_to_fp32(program, options):
    fp32 = mean_of_last(run(program, ["--ranks", "4", *options])[0])
    for precision in ["bf16_mixed", "deepspeed_bf16"]:
        mean = mean_of_last(run(program, ["--ranks", "4", "--precision", precision, *options])[0])
        yield check(abs(mean / fp32 - 1) < 0.01, f"{precision}: {mean:.4f} beside fp32's {fp32:.4f}")


def recovers_from_overflow(program, options):
    for scaler in ["torch", "deepspeed"]:
        steps, _ = run(program, ["--ranks", "4", "--precision", "fp16_mixed", "--scaler", scaler,
                                 "--initial-scale", str(2.0**28), *options])
        skipped = [step["step"] for step in steps if step["skipped"]]
        scales = [step["loss_scale"] for step in steps]
        learned = mean_of_last(steps) < steps[0]["loss"] - 1
        yield check(skipped and skipped[0] == 1 and not steps[-1]["skipped"] and learned,
                    f"fp16_mixed, {scaler}: skipped {len(skipped)} steps, scale {scales[0]:.0f} to {scales[-1]:.0f}")


def one_stochastic_hash(program, options):
    fixed = ["--precision", "bf16_stochastic", "--accumulation", "tree", *options]
    hashes = {}
    for ranks in [1, 2, 4, 8]:
        for strategy in ["no_shard", "shard_optimizer", "shard_grad_op", "full_shard", "hybrid_shard",
                         "hybrid_shard_grad_op", "full_shard_secondary"]:
            split = ["--ranks", str(ranks), "--accumulate", str(8 // ranks), "--strategy", strategy]
            hashes[ranks, strategy] = run(program, [*fixed, *split], 20)[1]
    for odd in [3, 6]:
        same = {run(program, [*fixed, "--ranks", str(odd), "--strategy", strategy], 20)[1]
                for strategy in ["no_shard", "shard_grad_op", "full_shard"]}
        yield check(len(same) == 1, f"bf16_stochastic at {odd} ranks: {sorted(same)}")
    yield check(len(set(hashes.values())) == 1, f"bf16_stochastic: {sorted(set(hashes.values()))}")


def main():
    program, options = sys.argv[1], sys.argv[2:]
    results = [*close_to_fp32(program, options), *recovers_from_overflow(program, options),
               *one_stochastic_hash(program, options)]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
