#!/usr/bin/env python3
"""Two hosts of two ranks each: two network namespaces, made and removed here. two_hosts_test.py TRAIN_GPT RANK_PROGRAM.

Skipped where namespaces may not be made. What is started in them is gone when the test is.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import launch
from training import SMALL, expect, hash_on_threads, lines_of, steps

NETWORK = "10.213.7.0/24"
ADDRESSES = ["10.213.7.1", "10.213.7.2"]
IN_TIME = 10  # seconds

# For the ranks, not for mpirun: Open MPI's own warnings of a dead peer go through mpirun, which crashes over one now and
# then (4.1.4, in pmix_server_log_fn), and the ranks with it.
QUIET_RANKS = ["-x", "OMPI_MCA_orte_execute_quiet=1"]

# Called by mpirun as it would call ssh: AGENT HOST COMMAND...
AGENT = """#!/bin/sh
shift
exec ip netns exec {space} unshare --uts sh -c 'hostname {space} && eval "$*"' agent "$@"
"""


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True, timeout=20)


class Hosts:
    """Two network namespaces joined by a cable."""

    def __init__(self):
        self.names = [f"flatshard{os.getpid()}{end}" for end in "ab"]

    def __enter__(self):
        try:
            self.make()
        except (OSError, subprocess.SubprocessError) as error:
            self.remove()
            launch.skip(f"network namespaces cannot be made here: {getattr(error, 'stderr', '') or error}")
        return self

    def __exit__(self, *_):
        self.remove()

    def make(self):
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", "fs0", "netns", self.names[0], "type", "veth", "peer", "name", "fs0", "netns", self.names[1])
        for name, address in zip(self.names, ADDRESSES):
            ip("-n", name, "address", "add", address + "/24", "dev", "fs0")
            for link in ["lo", "fs0"]:
                ip("-n", name, "link", "set", link, "up")
        subprocess.run(["unshare", "--uts", "hostname", self.names[0]], check=True, capture_output=True, timeout=20)

    def remove(self):
        for name in self.names:
            for process in ip("netns", "pids", name, check=False).stdout.split():
                try:
                    os.kill(int(process), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            ip("netns", "delete", name, check=False)

    def bytes_between(self):
        text = ip("-n", self.names[0], "-s", "link", "show", "fs0").stdout
        return int(re.search(r"RX:.*\n\s*(\d+)", text)[1])

    def command(self, folder, options, program):
        """mpirun on the first host, two ranks on each."""
        agent = folder / "agent"
        agent.write_text(AGENT.format(space=self.names[1]))
        agent.chmod(0o755)
        inside = [launch.mpirun(), "--host", ",".join(address + ":2" for address in ADDRESSES), "-n", "4",
                  "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", str(agent),
                  "--mca", "oob_tcp_if_include", NETWORK, "--mca", "btl_tcp_if_include", NETWORK, *QUIET_RANKS,
                  *options, *program]
        return ["ip", "netns", "exec", self.names[0], "unshare", "--uts", "sh", "-c",
                f'hostname {self.names[0]} && exec "$@"', "host", *inside]


def trains(hosts, folder, program):
    metrics = folder / "metrics"
    threads = hash_on_threads(program, [], metrics)
    before, start = hosts.bytes_between(), time.monotonic()
    with launch.Job(hosts.command(folder, [], [program, *SMALL, *steps(), "--metrics", metrics])) as job:
        status, output = job.finish(60)
    expect(status == 0, "a run that ends", output)
    processes, moved = lines_of(metrics)[-1]["params_hash"], hosts.bytes_between() - before
    expect(processes == threads, f"the hash of threads, {threads}, not {processes}")
    expect(moved > 1_000_000, f"parameters and gradients over the cable, not {moved} bytes")
    print(f"two hosts: {threads}, {moved} bytes from the other host, {time.monotonic() - start:.1f} s")


def seconds_to_tell(hosts, folder, program, options, is_told):
    """From the death of rank 3, on the other host, until is_told(output); and the output."""
    with launch.Job(hosts.command(folder, options, [program, "work"])) as job:
        ids = launch.processes(job, 4)
        time.sleep(0.5)
        os.kill(ids[3], signal.SIGKILL)
        start = time.monotonic()
        told = job.wait_for(lambda: is_told(job), 30)
        seconds = time.monotonic() - start
        expect(told, f"that ranks are told; after {seconds:.1f} s they are not", job.output)
        expect(seconds < IN_TIME, f"that ranks are told within {IN_TIME} s, not {seconds:.1f}", job.output)
        return seconds, job.output


def dies(hosts, folder, program):
    seconds, output = seconds_to_tell(hosts, folder, program, [], lambda job: job.process.poll() is not None)
    expect("rank 3" in output, "the name of rank 3", output)
    print(f"rank 3 killed on the other host: the job ended in {seconds:.1f} s")
    # mpirun lets the others be (and does not end itself, across hosts): they find out by themselves.
    seconds, output = seconds_to_tell(hosts, folder, program, ["--enable-recovery"],
                                      lambda job: job.output.count("told: rank 3: its process ended") == 3)
    print(f"rank 3 killed on the other host, the others left alone: {seconds:.1f} s")


def main():
    train_gpt, rank = sys.argv[1:]
    launch.mpirun()
    for tool in ["ip", "unshare", "hostname"]:
        if shutil.which(tool) is None:
            launch.skip(f"there is no {tool}")
    with tempfile.TemporaryDirectory() as folder, Hosts() as hosts:
        trains(hosts, pathlib.Path(folder), train_gpt)
        dies(hosts, pathlib.Path(folder), rank)


if __name__ == "__main__":
    main()
