#!/usr/bin/env python3
"""train_gpt with everything on NVMe: what a killed run leaves, and a model four times the memory.

Usage: nvme_test.py TRAIN_GPT [--memory]   (--memory: the second part too, for programs without sanitizers)
"""
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

TEXT = str(pathlib.Path(__file__).resolve().parents[2] / "LICENSE")
SMALL = "--layers 2 --width 64 --heads 2 --context 16 --batch 4".split() + ["--data", TEXT]
DEEP = "--layers 40 --width 192 --heads 2 --context 8 --batch 1 --steps 3".split() + ["--data", TEXT]
MIB = 1 << 20


def left_in(folder):
    """Every path below the folder."""
    return sorted(str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*"))


def faults_of_kill(program, folder):
    """A run that is killed in mid-step leaves empty folders; the next one sweeps them."""
    nvme = ["--offload", "nvme_all", "--nvme", folder]
    run = subprocess.Popen([program, *SMALL, *nvme, "--steps", "1000000", "--ranks", "2"], stdout=subprocess.PIPE)
    run.stdout.readline()  # says how it moves bytes
    if b"step 1/" not in run.stdout.readline():
        yield "the run did not begin"
    time.sleep(0.2)
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdout.close()
    left = left_in(folder)
    if len(left) != 4 or not all(re.fullmatch("flatshard-slots-[0-9a-f]{16}", name) for name in left):
        yield f"a killed run of two ranks left {left}"
    subprocess.run([program, *SMALL, *nvme, "--steps", "1"], check=True, stdout=subprocess.DEVNULL)
    if left_in(folder):
        yield f"the next run left {left_in(folder)}"


def bytes_of_plan(program, options):
    """All bytes per rank that the Plan prints for each kind of memory."""
    text = subprocess.run([program, *DEEP, *options, "--plan"], check=True, capture_output=True, text=True).stdout
    found, kind = {}, ""
    for line in text.splitlines():
        if line.startswith("bytes per rank, "):
            kind = line.removeprefix("bytes per rank, ").rstrip(":")
        elif line.startswith("  all "):
            found[kind] = int(line.split()[1])
    return found


def ends_well(program, options, limit):
    """True when the run ends, with the hash of its parameters, under a limit on its data segment."""
    def limited():
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        resource.setrlimit(resource.RLIMIT_STACK, (MIB, MIB))  # of each thread, of which fall-backs have many

    done = subprocess.run([program, *DEEP, *options], preexec_fn=limited, capture_output=True, text=True)
    return done.stdout.rsplit(" ", 1)[-1].strip() if done.returncode == 0 else None


def least_limit(program, options, low, high):
    """The least limit under which the run ends, to 2 MiB."""
    while high - low > 2 * MIB:
        middle = (low + high) // 2
        if ends_well(program, options, middle):
            high = middle
        else:
            low = middle
    return high


def faults_of_memory(program, folder):
    """Parameters, gradients and optimizer of four times the memory that the run may have."""
    nvme = ["--offload", "nvme_all", "--nvme", folder]
    whole, offloaded = bytes_of_plan(program, []), bytes_of_plan(program, nvme)
    model = offloaded["NVMe"]
    budget = model // 4
    resident = offloaded["device memory"] + offloaded["pinned host memory"]
    # What a run has beside its Plan: program, threads, activations. The least limit of the run that
    # has everything in memory says how much.
    beside = least_limit(program, [], whole["device memory"], whole["device memory"] + 256 * MIB) - whole["device memory"]
    limit = budget + beside
    print(f"model {model} bytes on NVMe, budget {budget}, resident by the Plan {resident}, beside it {beside}; "
          f"everything in memory {whole['device memory']}; limit {limit}")
    if resident > budget:
        yield "the Plan exceeds the budget"
    if ends_well(program, [], limit):
        yield "everything in memory fits too"
    expected = ends_well(program, [], 4096 * MIB)
    if not expected or ends_well(program, nvme, limit) != expected:
        yield "the run with everything on NVMe did not end well"


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        faults = [*faults_of_kill(program, folder)]
        if "--memory" in sys.argv:
            faults += faults_of_memory(program, folder)
        if os.listdir(folder):
            faults.append(f"left behind: {os.listdir(folder)}")
    print(*faults, sep="\n")
    sys.exit(1 if faults else 0)


main()
