#!/usr/bin/env python3
"""AdamW on the host: ours, PyTorch's fused step and DeepSpeed's CPU Adam, by turns.

Usage: cpu_adam.py HOST_STEP_BENCH [--elements N] [--threads T] [--rounds R]

HOST_STEP_BENCH is our program (build/bench/host_step_bench). Each contestant is a process with
memory of its own, in huge pages, on the same T cores. In every round each row takes four steps, of
which the first is not counted; medians over the rounds are compared. A package that cannot be
imported leaves its rows out, by name. (DeepSpeed compiles its step when it is first used.)
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

STEPS = 3  # counted, of each row in each round

# (work, bytes per element, contestant, row); ratios are to the first row of a work.
JOB = "bf16 gradient to fp32 master, bf16 copy"
SAME = "fp32 gradient to fp32 parameter"
NARROW = "bf16 gradient to bf16 parameter, fp32 states"
ROWS = [
    (JOB, 28, "ours", "bf16-gradient-bf16-copy"),
    (JOB, 40, "torch", "with-casts"),
    (JOB, 40, "deepspeed", "with-casts"),
    (JOB + "; theirs without casts", 28, "ours", "bf16-gradient-bf16-copy"),
    (JOB + "; theirs without casts", 28, "torch", "fp32"),
    (JOB + "; theirs without casts", 28, "deepspeed", "fp32"),
    (SAME, 28, "ours", "fp32-gradient"),
    (SAME, 28, "torch", "fp32"),
    (SAME, 28, "deepspeed", "fp32"),
    (NARROW, 22, "ours", "bf16-parameter-bf16-gradient"),
    (NARROW, 22, "deepspeed", "bf16"),
]


class PeerSteps:
    """The rows of a package, made when first asked for."""

    def __init__(self, package, count, threads):
        import torch

        self.torch, self.count, self.made = torch, count, {}
        torch.set_num_threads(threads)
        if package == "torch":
            self.make = lambda parameters: torch.optim.AdamW(parameters, fused=True)
        else:
            from deepspeed.ops.adam import DeepSpeedCPUAdam

            self.make = DeepSpeedCPUAdam
            self.make([torch.nn.Parameter(torch.zeros(1))])  # compiles it

    def values(self, dtype):
        return self.torch.empty(self.count, dtype=dtype).uniform_(-0.1, 0.1)

    def plain(self, dtype):
        parameter = self.torch.nn.Parameter(self.values(dtype))
        parameter.grad = self.values(dtype)
        return parameter, self.make([parameter]).step

    def with_casts(self):
        parameter, step = self.plain(self.torch.float32)
        gradient, copy = self.values(self.torch.bfloat16), self.values(self.torch.bfloat16)

        def job():
            with self.torch.no_grad():
                parameter.grad.copy_(gradient)
                step()
                copy.copy_(parameter)

        return job

    def step(self, row):
        if row not in self.made:
            makers = {
                "fp32": lambda: self.plain(self.torch.float32)[1],
                "bf16": lambda: self.plain(self.torch.bfloat16)[1],
                "with-casts": self.with_casts,
            }
            self.made[row] = makers[row]()
        begin = time.perf_counter()
        self.made[row]()
        return time.perf_counter() - begin


def serve(package, count, threads):
    """A contestant: names of rows come in by lines, seconds go out."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what packages print is not an answer
    try:
        steps = PeerSteps(package, count, threads)
    except Exception as error:  # whatever a package raises, its rows are left out
        print("absent:", " ".join(str(error).split())[:200], file=out)
        return
    print("present", file=out)
    for row in sys.stdin:
        print(f"{steps.step(row.strip()):.9f}", file=out)


class Contestant:
    def __init__(self, name, command, environment, cores, greets):
        pin = lambda: os.sched_setaffinity(0, cores)
        self.name, self.process = name, subprocess.Popen(
            command,
            env=environment,
            preexec_fn=pin,
            text=True,
            bufsize=1,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if greets else None,
        )
        greeting = self.process.stdout.readline().strip() if greets else "present"
        self.absence = None if greeting == "present" else greeting or "absent: it ended"

    def seconds(self, row):
        self.process.stdin.write(row + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"cpu_adam.py: {self.name} ended in row {row}")
        return float(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def start(arguments):
    cores = sorted(os.sched_getaffinity(0))[: arguments.threads]
    if len(cores) < arguments.threads:
        sys.exit(f"cpu_adam.py: {len(cores)} cores for {arguments.threads} threads")
    environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads))
    environment["THP_MEM_ALLOC_ENABLE"] = "1"  # PyTorch's arrays in huge pages, as ours are
    environment["PATH"] = os.path.dirname(sys.executable) + ":" + environment.get("PATH", "")
    numbers = [str(arguments.elements), str(arguments.threads)]
    peer = [sys.executable, os.path.abspath(__file__), "--serve"]
    commands = {"ours": [arguments.bench, *numbers, "float", "turns"]}
    commands.update({name: [*peer, name, *numbers] for name in ("torch", "deepspeed")})
    return {
        name: Contestant(name, command, environment, cores, name != "ours")
        for name, command in commands.items()
    }


def measure(contestants, rounds):
    rows = sorted({(who, row) for _, _, who, row in ROWS if not contestants[who].absence})
    times = {row: [] for row in rows}
    for turn in range(rounds + 1):
        for who, row in rows:
            time.sleep(0.05)  # threads that spin after their work would hold up the next one's
            seconds = [contestants[who].seconds(row) for _ in range(1 + STEPS)]
            if turn > 0:  # the first makes the arrays and touches them
                times[who, row].append(statistics.mean(seconds[1:]))
    return {row: statistics.median(taken) for row, taken in times.items()}


def print_table(times, contestants, elements):
    print("| work | whose | bytes per element | ms | GB/s | time, of ours |")
    print("|---|---|---|---|---|---|")
    for work, size, who, row in ROWS:
        if contestants[who].absence:
            print(f"| {work} | {who} | {size} | {contestants[who].absence} | | |")
            continue
        if who == "ours":
            ours = times[who, row]
        taken = times[who, row]
        ratio = f"{taken / ours:.2f}"
        print(f"| {work} | {who} | {size} | {taken * 1e3:.1f} | {size * elements / taken * 1e-9:.1f} | {ratio} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("bench", help="our program, host_step_bench")
    parser.add_argument("--elements", type=int, default=60_000_000)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    contestants = start(arguments)
    print(f"AdamW, {arguments.elements} elements, {arguments.threads} threads, median of {arguments.rounds}\n")
    print_table(measure(contestants, arguments.rounds), contestants, arguments.elements)
    for contestant in contestants.values():
        contestant.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
