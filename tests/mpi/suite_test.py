#!/usr/bin/env python3
"""Runs a test program on several numbers of ranks: suite_test.py LIMIT RANKS[,RANKS...] PROGRAM [ARGUMENT...]."""
import os
import random
import sys
import time

import launch


def main():
    limit, sizes, program = float(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
    seed = os.environ.get("FLATSHARD_TEST_SEED") or str(random.SystemRandom().getrandbits(63))
    failed = False
    for size in sizes:
        start = time.monotonic()
        status, output = launch.run(size, program, limit, variables=launch.environment(FLATSHARD_TEST_SEED=seed))
        print(f"{size} ranks: {time.monotonic() - start:.1f} s, status {status}")
        if status != 0:
            failed = True
            print(output, f"again: FLATSHARD_TEST_SEED={seed}", sep="\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
