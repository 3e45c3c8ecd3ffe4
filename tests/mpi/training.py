"""Short runs of train_gpt, and what they leave."""
import json
import pathlib
import subprocess
import sys

import launch

TEXT = pathlib.Path(__file__).resolve().parents[2] / "LICENSE"  # a file that does not change between runs
SMALL = "--layers 2 --width 32 --heads 2 --context 16 --batch 48 --clip 1".split() + ["--data", str(TEXT)]

STEPS = 10


def steps(number=STEPS):
    return ["--steps", str(number)]


def expect(condition, what, output=""):
    if not condition:
        sys.exit(f"expected: {what}\n{output}")


def lines_of(metrics):
    """The lines that a run wrote, which are removed."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    metrics.unlink()
    return lines


def hash_on_threads(program, options, metrics):
    """Of a run with four ranks as threads of one process."""
    command = [program, *SMALL, *steps(), *options, "--ranks", "4", "--metrics", str(metrics)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120, env=launch.environment())
    return lines_of(metrics)[-1]["params_hash"]
