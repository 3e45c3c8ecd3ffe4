#!/usr/bin/env python3
"""The README's program learns: hello_test.py HELLO."""
import re
import subprocess
import sys

done = subprocess.run(sys.argv[1:2], capture_output=True, text=True, check=True)
losses = [float(loss) for loss in re.findall(r"loss (\S+)", done.stdout)]
print(done.stdout, end="")
sys.exit(not (len(losses) == 4 and losses[-1] < losses[0] / 10))
