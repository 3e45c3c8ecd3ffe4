#!/usr/bin/env python3
"""mpirun train_gpt: the bits of ranks as threads; who disagrees is refused. train_gpt_test.py TRAIN_GPT."""
import pathlib
import subprocess
import sys
import tempfile

import launch
from training import SMALL, STEPS, expect, hash_on_threads, lines_of, steps

RUNS = [
    [],
    ["--strategy", "no_shard", "--accumulate", "3"],
    ["--strategy", "hybrid_shard", "--shard-group", "2", "--precision", "bf16_mixed", "--stream", "threaded"],
    ["--strategy", "shard_grad_op", "--precision", "fp16_mixed", "--wrap", "all", "--prefetch-forward", "2"],
]


def hash_on_processes(program, options, metrics):
    status, output = launch.run(4, [program, *SMALL, *steps(), *options, "--metrics", metrics], 60)
    expect(status == 0, "a run that ends", output)
    lines = lines_of(metrics)
    expect(len(lines) == STEPS + 1, "one process's metrics, every step and the end", lines)
    expect(output.count("params_hash") == 1, "the report of one rank", output)
    return lines[-1]["params_hash"]


def equal_hashes(program, folder):
    metrics = folder / "metrics"
    for options in RUNS:
        threads, processes = hash_on_threads(program, options, metrics), hash_on_processes(program, options, metrics)
        print(threads, processes, *options)
        expect(threads == processes, "equal parameters")


def resumed(program, folder):
    """Saved by processes, gone on with by threads."""
    metrics, saved = folder / "metrics", folder / "saved"
    status, output = launch.run(4, [program, *SMALL, *steps(5), "--save", saved], 60)
    expect(status == 0, "a checkpoint", output)
    whole = hash_on_threads(program, [], metrics)
    expect(hash_on_threads(program, ["--resume", str(saved), "--strategy", "no_shard"], metrics) == whole,
           "the parameters of one run")
    status, output = launch.run(2, [program, *SMALL, *steps(), "--resume", saved, "--metrics", metrics], 60)
    expect(status == 0 and len(lines_of(metrics)) == STEPS - 5 + 1, "processes that go on from it", output)


def refused(program):
    """Every refusal is status 2 and one sentence."""
    status, output = launch.run(4, [program, *SMALL, "--ranks", "3"], 60)
    expect(status == 2 and "--ranks 3 disagrees with the world size of Open MPI, 4" in output, "a refusal", output)
    status, output = launch.run(4, [program, *SMALL, *steps(1), "--ranks", "4"], 60)
    expect(status == 0, "--ranks that agrees", output)
    alone = {"FLATSHARD_RANK": "0", "FLATSHARD_WORLD_SIZE": "2"}
    torchrun = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    for variables, sentence in [(alone, "FLATSHARD_* says rank 0 of 2, MPI says rank 0 of 1"),
                                (torchrun, "torchrun started 2 ranks; on the host they talk over MPI")]:
        done = subprocess.run([program, *SMALL], capture_output=True, text=True, timeout=60,
                              env=launch.environment(**variables))
        expect(done.returncode == 2 and sentence in done.stderr, sentence, done.stderr)


def main():
    program = sys.argv[1]
    launch.mpirun()
    with tempfile.TemporaryDirectory() as folder:
        equal_hashes(program, pathlib.Path(folder))
        resumed(program, pathlib.Path(folder))
        refused(program)


if __name__ == "__main__":
    main()
