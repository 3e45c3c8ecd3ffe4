#!/usr/bin/env python3
"""Kernel objects export no weak symbol outside a namespace named after their instruction set.

A linker keeps one of several equal weak symbols: one compiled for avx512 would crash elsewhere.
Usage: check.py FILE... (each file name holds its instruction set) | check.py --self-test COMPILER...
"""
import pathlib
import subprocess
import sys
import tempfile

INSTRUCTION_SETS = ["baseline", "avx2", "avx512"]
WEAK = "VWu"
HARMLESS = ("DW.ref.",)  # a pointer to the exception personality: data that is equal in every object


def weak_symbols(path):
    listing = subprocess.run(
        ["nm", "--defined-only", str(path)], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in listing.splitlines()]
    return [row[2] for row in rows if len(row) == 3 and row[1] in WEAK]


def instruction_set(path):
    matches = [name for name in INSTRUCTION_SETS if name in path.name]
    return matches[0] if len(matches) == 1 else None


def faults_of(path):
    name = instruction_set(path)
    if name is None:
        return [f"{path.name}: the file name holds none of {INSTRUCTION_SETS}"]
    own = f"{len(name)}{name}"  # the namespace in a mangled name
    return [
        f"{path.name}: weak symbol {symbol} lies outside namespace {name}"
        for symbol in weak_symbols(path)
        if own not in symbol and not symbol.startswith(HARMLESS)
    ]


ADD = "template <class T> T add(T a, T b) { return a + b; }"
USE = "int use(int a) { return %sadd(a, a); }"
CASES = {
    "avx2_inside": (f"namespace avx2 {{ {ADD} }}\n" + USE % "avx2::", False),
    "avx2_outside": (ADD + "\n" + USE % "", True),
    "avx2_other": (f"namespace avx512 {{ {ADD} }}\n" + USE % "avx512::", True),
    "avx2_strong": ("int add(int a, int b) { return a + b; }", False),
    "unnamed": ("int x;", True),
}


def self_test(compiler):
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (text, fails) in CASES.items():
            path = pathlib.Path(folder) / f"{name}.o"
            command = [*compiler, "-O0", "-c", "-x", "c++", "-", "-o", str(path)]
            subprocess.run(command, input=text, text=True, check=True)
            wrong += [] if bool(faults_of(path)) == fails else [name]
    print(f"self-test: wrong about {wrong}" if wrong else "self-test holds")
    return wrong


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        return 1 if self_test(sys.argv[2:]) else 0
    found = [fault for file in sys.argv[1:] for fault in faults_of(pathlib.Path(file))]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
