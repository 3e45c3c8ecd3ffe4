#!/usr/bin/env python3
"""Prints where a file really lies."""
import os
import sys

print(os.path.realpath(sys.argv[1]))
