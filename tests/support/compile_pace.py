"""Prints how long this machine compiles just now, in percent of one that takes REFERENCE_SECONDS of
processor time for reference_compile.cpp: 100 where it is as fast or faster, at most 150."""
import os
import resource
import shlex
import subprocess
import sys

REFERENCE_SECONDS = 3.2  # with g++ 12 by -O2, on an idle machine on which the budgets were set


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def compile_seconds(compiler):
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference_compile.cpp")
    before = processor_seconds()
    subprocess.run(shlex.split(compiler) + ["-std=c++20", "-O2", "-c", source, "-o", os.devnull], check=True)
    return processor_seconds() - before


def main():
    seconds = min(compile_seconds(sys.argv[1]) for _ in range(3))
    print(round(100 * min(max(seconds / REFERENCE_SECONDS, 1), 1.5)))


main()
