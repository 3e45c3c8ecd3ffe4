#!/usr/bin/env python3
"""A rank that throws, and one that is killed, are told to the others by name, in time: failure_test.py RANK_PROGRAM."""
import os
import re
import signal
import sys
import time

import launch

RANKS = 4
IN_TIME = 10  # seconds


def expect(condition, what, output):
    if not condition:
        sys.exit(f"expected: {what}\n{output}")


def told(output):
    return re.findall(r"told: (.*)", output)


def thrown(program):
    start = time.monotonic()
    status, output = launch.run(RANKS, [program, "fail"], 60)
    expect(status == 0, "every rank is told", output)
    expect(told(output) == ["rank 1: out of ideas"] * RANKS, "the failure of rank 1 on every rank", output)
    print(f"an exception: {time.monotonic() - start:.1f} s with mpirun's start")


def killed(program, victim, options):
    """(seconds, output) from the death of a rank to the end of the job."""
    with launch.Job([launch.mpirun(), *options, "-n", RANKS, program, "work"]) as job:
        ids = launch.processes(job, RANKS)
        time.sleep(0.5)
        os.kill(ids[victim], signal.SIGKILL)
        start = time.monotonic()
        _, output = job.finish(30)
        return time.monotonic() - start, output


def main():
    program = sys.argv[1]
    thrown(program)
    seconds, output = killed(program, 1, [])  # mpirun ends the others, and names who died
    expect(seconds < IN_TIME, f"an end within {IN_TIME} s, not {seconds:.1f}", output)
    expect(re.search(r"rank 1 with PID|rank 1: ", output), "the name of rank 1", output)
    print(f"killed under mpirun: {seconds:.1f} s")
    for victim in [0, 2]:  # mpirun lets the others be: they find out by themselves
        seconds, output = killed(program, victim, ["--enable-recovery"])
        expect(seconds < IN_TIME, f"an end within {IN_TIME} s, not {seconds:.1f}", output)
        expect(len(told(output)) == RANKS - 1, "the others are told", output)
        for text in told(output):
            expect(text.startswith(f"rank {victim}: its process ended"), f"the name of rank {victim}", output)
        print(f"rank {victim} killed, the others left alone: {seconds:.1f} s")


if __name__ == "__main__":
    main()
