#!/usr/bin/env python3
"""Adds up the test logs of build folders: count.py BUILD... prints 'PASSED FAILED'.

A doctest program counts its test cases, a check its own 'N passed, N failed', any other test one, one
that was skipped none. A folder whose tests could not be run at all counts one failure.
"""
import json
import pathlib
import re
import sys

DOCTEST = re.compile(r"^\[doctest\] test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed", re.MULTILINE)
CHECK = re.compile(r"^(\d+) passed, (\d+) failed$", re.MULTILINE)
GOOD = {"OK", "EXPECTEDFAIL"}


def count(row):
    if row["result"] == "SKIP":
        return 0, 0
    output = row.get("stdout", "")
    match = DOCTEST.search(output) or CHECK.search(output)
    good = row["result"] in GOOD
    passed, failed = map(int, match.groups()) if match else (int(good), 0)
    return passed, failed if good else max(failed, 1)


def counts(build):
    log = pathlib.Path(build) / "meson-logs/testlog.json"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [count(json.loads(line)) for line in lines] or [(0, 1)]


def main():
    found = [pair for build in sys.argv[1:] for pair in counts(build)]
    print(sum(passed for passed, _ in found), sum(failed for _, failed in found))


if __name__ == "__main__":
    main()
