#!/usr/bin/env python3
"""Compares our safetensors reader and writer with Python's safetensors package, both directions.

Usage: safetensors_differential.py DRIVER

DRIVER is the program of safetensors_driver.cpp. Needs the packages safetensors and numpy, here or in the
repository's .venv (tools/install_dependencies.sh full); without them it says so and exits with 77.
"""
import csv
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77

try:
    import numpy
    import safetensors
    import safetensors.numpy
except ImportError:
    own = ROOT / ".venv/bin/python"
    if own.exists() and not os.environ.get("FLATSHARD_IN_VENV"):
        os.environ["FLATSHARD_IN_VENV"] = "1"
        os.execv(own, [str(own), *sys.argv])
    print("skipped: the Python packages safetensors and numpy are not here (tools/install_dependencies.sh full)")
    sys.exit(SKIPPED)

sys.path.insert(0, str(ROOT / "tests/corpus"))
sys.dont_write_bytecode = True
from file_cases import DTYPES  # noqa: E402

NUMPY_TYPES = ["bool", "uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32", "uint64", "int64", "float64"]
OLD_TYPES = {"BOOL", "U8", "I8", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "F64", "I64", "U64"}  # of every version
NAME_PIECES = ["h.0.", "größe", "層", "\U0001f600", '"', "\\", "/", "\n", "\x01", "\x7f", " ", "{}", "ln", "../"]


def ours(driver, *paths):
    """Per path: None, or {name: (dtype, shape, bytes)} in the order of the bytes."""
    done = subprocess.run([driver, "read", *paths], capture_output=True, text=True, check=True)
    found = []
    for line in done.stdout.splitlines():
        if line.startswith("reject"):
            found.append(None)
        elif line == "accept":
            found.append({})
        else:
            head, data = line.split(" : ") if " : " in line else (line.removesuffix(" :"), "")
            _, name, dtype, *shape = head.split(" ")
            found[-1][bytes.fromhex(name.strip("'")).decode()] = (dtype, [int(n) for n in shape], bytes.fromhex(data))
    return found


def theirs(content):
    try:
        tensors = safetensors.deserialize(content)
    except safetensors.SafetensorError:
        return None
    return {name: (t["dtype"], list(t["shape"]), bytes(t["data"])) for name, t in tensors}


def check_corpus(driver):
    with open(ROOT / "tests/corpus/verdicts.tsv", encoding="utf-8") as table:
        rows = [row for row in csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE) if row["kind"] == "file"]
    contents = [(ROOT / "tests/corpus" / row["path"]).read_bytes() for row in rows]
    paths = [str(ROOT / "tests/corpus" / row["path"]) for row in rows]
    for row, content, mine in zip(rows, contents, ours(driver, *paths)):
        reference = theirs(content)
        verdict = "reject" if reference is None else "accept"
        if row["reference"] not in (verdict, "varies"):
            yield f"{row['path']}: the package says {verdict}, the table {row['reference']}"
        if (mine is not None) != (row["strict"] == "accept"):
            yield f"{row['path']}: we say {mine}, the table {row['strict']}"
        if mine is not None and reference is not None and mine != reference:
            yield f"{row['path']}: both accept, the contents differ"
        if mine is not None and reference is None and row["reference"] != "varies":
            yield f"{row['path']}: we accept what the package refuses"


def random_names(generator):
    names = {"".join(generator.choices(NAME_PIECES, k=generator.randrange(4))) for _ in range(generator.randrange(9))}
    return sorted(names)


def random_arrays(generator):
    arrays = {}
    for name in random_names(generator):
        shape = [generator.randrange(5) for _ in range(generator.randrange(4))]
        dtype = numpy.dtype(generator.choice(NUMPY_TYPES))
        count = int(numpy.prod(shape, dtype=int))
        data = generator.randbytes(count * dtype.itemsize)
        arrays[name] = numpy.frombuffer(data, dtype=dtype).reshape(shape) if count else numpy.zeros(shape, dtype)
    return arrays


def random_file(generator):
    """Bytes of a file with every dtype of the format, written by hand."""
    entries, data = [], b""
    for name in random_names(generator):
        dtype, bits = generator.choice(DTYPES)
        shape = [generator.randrange(4) for _ in range(generator.randrange(3))] + [4]
        size = int(numpy.prod(shape, dtype=int)) * bits // 8
        label = "".join(f"\\u{ord(c):04x}" if c in '"\\' or ord(c) < 32 else c for c in name)
        entries.append(f'"{label}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{len(data)},{len(data) + size}]}}')
        data += generator.randbytes(size)
    generator.shuffle(entries)
    header = ("{" + ",".join(entries) + "}").encode()
    return struct.pack("<Q", len(header)) + header + data


def check_theirs_to_ours(driver, folder, generator, rounds):
    """What the package writes we read, and what both read is equal."""
    paths = []
    for number in range(rounds):
        paths.append(str(folder / f"theirs{number}"))
        safetensors.numpy.save_file(random_arrays(generator), paths[-1], {"format": "np", "k\n": "v\"ü"})
    for number in range(rounds):
        paths.append(str(folder / f"by_hand{number}"))
        pathlib.Path(paths[-1]).write_bytes(random_file(generator))
    for path, mine in zip(paths, ours(driver, *paths)):
        reference = theirs(pathlib.Path(path).read_bytes())
        if mine is None or (reference is not None and mine != reference):
            yield f"{path}: we read {mine}, the package {reference}"
        if reference is None and path.startswith(str(folder / "theirs")):
            yield f"{path}: the package refuses its own file"


def check_copies(driver, folder, generator, rounds):
    """A copy by our writer has the contents of its source, whatever its dtypes."""
    for number in range(rounds):
        source, target = folder / f"any{number}", folder / f"copy_of_any{number}"
        source.write_bytes(random_file(generator))
        subprocess.run([driver, "copy", source, target], check=True)
        before, after = theirs(source.read_bytes()), theirs(target.read_bytes())
        mine = ours(driver, str(target))[0]
        if before != after or mine is None or (after is not None and after != mine):
            yield f"{target}: not the tensors of {source}"


def check_ours_to_theirs(driver, folder, generator, rounds):
    """What we write the package reads: every tensor's bytes, and the metadata."""
    for number in range(rounds):
        source, target = folder / f"source{number}", folder / f"target{number}"
        arrays = random_arrays(generator)
        safetensors.numpy.save_file(arrays, source, {"k\n": "v\"ü"})
        subprocess.run([driver, "copy", source, target], check=True)
        if theirs(target.read_bytes()) != theirs(source.read_bytes()):
            yield f"{target}: not the tensors of {source}"
        with safetensors.safe_open(target, framework="np") as file:
            if file.metadata() != {"format": "pt", "k\n": "v\"ü"}:
                yield f"{target}: metadata {file.metadata()}"
            for name, array in arrays.items():
                found = file.get_tensor(name)
                if found.dtype != array.dtype or found.shape != array.shape or found.tobytes() != array.tobytes():
                    yield f"{target}: tensor {name!r} differs"


def check_mutilated(driver, folder, generator, rounds):
    """A file with one byte changed: what we accept the package accepts, with the same contents."""
    paths = []
    for number in range(rounds):
        content = bytearray(random_file(generator))
        content[generator.randrange(len(content))] = generator.choice([generator.randrange(256), *b'0123456789"{}[],: \\'])
        paths.append(str(folder / f"mutilated{number}"))
        pathlib.Path(paths[-1]).write_bytes(content)
    accepted = 0
    for path, mine in zip(paths, ours(driver, *paths)):
        if mine is None:
            continue
        accepted += 1
        reference = theirs(pathlib.Path(path).read_bytes())
        recent = any(dtype not in OLD_TYPES for dtype, _, _ in mine.values())
        if reference != mine and not (reference is None and recent):
            yield f"{path}: we read {mine}, the package {reference}: {pathlib.Path(path).read_bytes()!r}"
    print(f"of {rounds} files with one byte changed we accept {accepted}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    seed = int(os.environ.get("FLATSHARD_TEST_SEED") or random.SystemRandom().randrange(2**32))
    generator = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        faults = [
            *check_corpus(sys.argv[1]),
            *check_theirs_to_ours(sys.argv[1], folder, generator, 100),
            *check_copies(sys.argv[1], folder, generator, 50),
            *check_ours_to_theirs(sys.argv[1], folder, generator, 50),
            *check_mutilated(sys.argv[1], folder, generator, 1000),
        ]
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"safetensors {safetensors.__version__}: {len(faults)} differences (FLATSHARD_TEST_SEED={seed})")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
