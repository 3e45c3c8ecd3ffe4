"""How these tests start Open MPI: as any user, on few cores, never for longer than a limit."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

SKIPPED = 77
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",  # more ranks than cores
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",  # containers forbid it, with a warning
    "OMPI_MCA_btl": "self,vader,tcp",
    "OMPI_MCA_plm": "isolated",  # one host; there need be no ssh
}
LAUNCHERS = ("OMPI_COMM", "OMPI_UNIVERSE", "PMIX", "PMI_", "SLURM_", "RANK", "WORLD_SIZE", "FLATSHARD_")


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended, too


def skip(reason):
    print("skipped:", reason)
    sys.exit(SKIPPED)


def environment(**more):
    """This process's, without what a launcher may have left in it; the seed of random inputs stays."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(LAUNCHERS) or name == "FLATSHARD_TEST_SEED"}
    return {**kept, **SETTINGS, **more}


def mpirun():
    program = shutil.which("mpirun")
    if program is None:
        skip("there is no mpirun")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, env=environment())
    if "Open MPI" not in said.stdout:
        skip("this mpirun is not Open MPI's: " + said.stdout.splitlines()[0] if said.stdout else said.stderr)
    return program


def children_of(parent):
    """Processes below a process, by their ids."""
    below, found, todo = {}, [], [parent]
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            its_parent = int(status.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue  # gone meanwhile
        below.setdefault(its_parent, []).append(int(status.parent.name))
    while todo:
        here = below.get(todo.pop(), [])
        found += here
        todo += here
    return found


class Job:
    """A job of mpirun, which dies with it."""

    def __init__(self, command, variables=None):
        self.lines = []
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, env=variables or environment(), start_new_session=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    @property
    def output(self):
        return "".join(self.lines)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        """Ends mpirun and, since it leads them into process groups of their own, its ranks."""
        everybody = [self.process.pid, *children_of(self.process.pid)]
        for process in everybody:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()

    def wait_for(self, holds, limit):
        """Whether holds() comes true in time, or the job ends meanwhile."""
        end = time.monotonic() + limit
        while time.monotonic() < end and not holds():
            if self.process.poll() is not None:
                self.reader.join(1)
                break
            time.sleep(0.02)
        return holds()

    def finish(self, limit):
        """(status, output); status None when it had to be ended."""
        status = None
        try:
            status = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill()
        self.reader.join(5)
        return status, self.output


def run(ranks, program, limit, options=(), variables=None):
    """(status, output) of `program`, a list, on that many ranks."""
    with Job([mpirun(), *options, "-n", ranks, *program], variables) as job:
        return job.finish(limit)


def processes(job, ranks):
    """Process ids by rank, when all ranks of the test's program `rank` have said theirs."""
    def said():
        return {int(rank): int(process) for rank, process in re.findall(r"rank (\d+) is process (\d+)", job.output)}
    if not job.wait_for(lambda: len(said()) == ranks, 60):
        sys.exit(f"expected: every rank says its process\n{job.output}")
    return said()
