#!/usr/bin/env python3
"""Fails when an include points upwards: core < tensor < layout < ops < io < comm < policy < sharder < checkpoint.

Usage: layering.py ROOT | layering.py --self-test
"""
import pathlib
import re
import sys
import tempfile

LAYERS = ["core", "tensor", "layout", "ops", "io", "comm", "policy", "sharder", "checkpoint"]
LEVEL = {name: level for level, name in enumerate(LAYERS)}
BOTTOM = {"config.hpp": -2, "fwd.hpp": -1}  # below every layer; every header may include them
UMBRELLA = "flatshard.hpp"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
# What a public header must not bring into its user's program.
FOREIGN = re.compile(r"^(cub/|thrust/|cuda/|cuda_|cuda\.h|nccl|fmt/|nlohmann/|CLI/)")


def level_of(path):
    """Level of a file named as in an include, without the leading 'flatshard/'; None: no such layer."""
    if path == UMBRELLA:
        return len(LAYERS)
    if path in BOTTOM:
        return BOTTOM[path]
    folder, slash, _ = path.partition("/")
    return LEVEL.get(folder) if slash else None


def faults_of_include(where, level, own, kind, target, root):
    if own is not None and FOREIGN.match(target):
        yield f"{where}: a public header includes <{target}>"
    if not target.startswith("flatshard/"):
        return
    inner = target.removeprefix("flatshard/")
    target_level = level_of(inner)
    if kind == '"':
        yield f'{where}: write <{target}>, not "{target}"'
    if target_level is None:
        yield f"{where}: <{target}> belongs to no known layer"
    elif target_level > level or (level < 0 and target_level == level and inner != own):
        yield f"{where}: upward arrow to <{target}>"
    elif not (root / "include" / target).is_file():
        yield f"{where}: <{target}> does not exist"


def faults_of_file(root, path, inner, is_header):
    where = path.relative_to(root).as_posix()
    level = level_of(inner)
    if level is None:
        return [f"{where}: lies in no known layer"]
    text = path.read_text(encoding="utf-8")
    return [
        fault
        for kind, target in INCLUDE.findall(text)
        for fault in faults_of_include(where, level, inner if is_header else None, kind, target, root)
    ]


def faults_of_umbrella(root, headers):
    umbrella = root / "include/flatshard" / UMBRELLA
    if not umbrella.is_file():
        return []
    named = {target for _, target in INCLUDE.findall(umbrella.read_text(encoding="utf-8"))}
    wanted = {"flatshard/" + inner for inner in headers} - {"flatshard/" + UMBRELLA}
    wanted -= {"flatshard/" + inner for inner in BOTTOM}
    return [f"{UMBRELLA}: does not include <{missing}>" for missing in sorted(wanted - named)]


def faults(root):
    """Every fault of a tree, as sentences."""
    found = []
    headers = []
    for path in sorted((root / "include/flatshard").rglob("*.hpp")):
        inner = path.relative_to(root / "include/flatshard").as_posix()
        headers.append(inner)
        found += faults_of_file(root, path, inner, True)
    for path in sorted((root / "src").rglob("*.[ch]pp")):
        found += faults_of_file(root, path, path.relative_to(root / "src").as_posix(), False)
    for path in sorted((root / "kernels/host").rglob("*.[ch]pp")):
        found += faults_of_file(root, path, "ops/" + path.name, False)
    return found + faults_of_umbrella(root, headers)


# (file, content, words of the expected fault; None: no fault)
CASES = [
    ("include/flatshard/tensor/a.hpp", "#include <flatshard/core/low.hpp>", None),
    ("include/flatshard/core/a.hpp", "#include <flatshard/core/low.hpp>", None),
    ("include/flatshard/core/a.hpp", "#include <flatshard/tensor/high.hpp>", "upward arrow"),
    ("src/core/a.cpp", " #  include <flatshard/tensor/high.hpp>", "upward arrow"),
    ("kernels/host/a.cpp", "#include <flatshard/sharder/top.hpp>", "upward arrow"),
    ("include/flatshard/config.hpp", "#include <flatshard/core/low.hpp>", "upward arrow"),
    ("include/flatshard/core/a.hpp", "#include <flatshard/flatshard.hpp>", "upward arrow"),
    ("include/flatshard/core/a.hpp", "#include <flatshard/attic/x.hpp>", "no known layer"),
    ("src/attic/a.cpp", "", "no known layer"),
    ("include/flatshard/core/a.hpp", "#include <flatshard/core/none.hpp>", "does not exist"),
    ("include/flatshard/core/a.hpp", '#include "flatshard/core/low.hpp"', "write <"),
    ("include/flatshard/ops/a.hpp", "#include <cub/cub.cuh>", "public header"),
    ("include/flatshard/ops/a.hpp", "#include <cuda_runtime.h>", "public header"),
    ("include/flatshard/comm/a.hpp", "#include <nccl.h>", "public header"),
    ("include/flatshard/flatshard.hpp", "#include <flatshard/core/low.hpp>", "does not include"),
]
SOUND = ["core/low.hpp", "tensor/high.hpp", "sharder/top.hpp"]


def check_case(file, content, expected):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for inner in [f"include/flatshard/{name}" for name in SOUND] + [file]:
            (root / inner).parent.mkdir(parents=True, exist_ok=True)
            (root / inner).write_text("#pragma once\n")
        (root / file).write_text(content + "\n")
        found = faults(root)
    good = not found if expected is None else any(expected in fault for fault in found)
    return [] if good else [f"self-test: {file} with '{content}': expected {expected}, found {found}"]


def main():
    if sys.argv[1:] == ["--self-test"]:
        found = [fault for case in CASES for fault in check_case(*case)]
    elif len(sys.argv) == 2:
        found = faults(pathlib.Path(sys.argv[1]).resolve())
    else:
        sys.exit(__doc__)
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
