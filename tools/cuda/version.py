#!/usr/bin/env python3
"""Prints the version of an nvcc, as 13.0.88. (Its --version has several lines with numbers.)"""
import re
import subprocess
import sys

text = subprocess.run([sys.argv[1], "--version"], check=True, capture_output=True, text=True).stdout
print(re.search(r"\bV(\d+(?:\.\d+)+)", text).group(1))
