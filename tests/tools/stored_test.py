#!/usr/bin/env python3
"""flatshard inspect, verify, diff, convert, merge, split on files of this test's own writing, and verify on
the conformance corpus.

Usage: stored_test.py FLATSHARD
"""
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

CORPUS = pathlib.Path(__file__).resolve().parents[1] / "corpus"
SEED = int(os.environ.get("FLATSHARD_TEST_SEED", random.SystemRandom().getrandbits(32)))


def write_file(path, tensors, metadata=None):
    """tensors: {name: (dtype, shape, bytes)}; the format's own layout, nothing aligned."""
    header, data = {} if metadata is None else {"__metadata__": metadata}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_file(path):
    content = pathlib.Path(path).read_bytes()
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:begin])
    metadata = header.pop("__metadata__", {})
    at = {name: entry["data_offsets"] for name, entry in header.items()}
    tensors = {name: (entry["dtype"], entry["shape"], content[begin + at[name][0]:begin + at[name][1]])
               for name, entry in header.items()}
    return tensors, metadata, begin


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def bfloat16(values):
    """Rounded to nearest even by integer arithmetic; finite values only."""
    words = [struct.unpack("<I", struct.pack("<f", value))[0] for value in values]
    return struct.pack(f"<{len(words)}H", *((word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words))


class Test:
    def __init__(self, program, folder):
        self.program, self.folder, self.faults = program, folder, []

    def run(self, *arguments):
        return subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True, cwd=self.folder,
                              timeout=60)

    def expect(self, code, words, *arguments):
        done = self.run(*arguments)
        missing = [word for word in words if word not in done.stdout + done.stderr]
        if done.returncode != code or missing or (code >= 2) != bool(done.stderr):
            self.faults.append(f"{arguments}: {done.returncode}, not {code}; lacks {missing}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def check(self, holds, what):
        if not holds:
            self.faults.append(what)


def sample():
    generator = random.Random(SEED)
    numbers = [generator.uniform(-9, 9) for _ in range(3001)]
    return numbers, {
        "w": ("F32", [3001], floats(*numbers)),
        "b": ("F32", [2], floats(0.0, float("nan"))),
        "i": ("I64", [1], struct.pack("<q", 2**53 + 1)),
        "scalar": ("F16", [], struct.pack("<e", 1.5)),
        "none": ("F64", [0, 3], b""),
        "esc\x1b[31m": ("U8", [3], b"abc"),
        "f4": ("F4", [4], b"ab"),
    }


def inspects(test, tensors):
    text = test.expect(0, ["7 tensors", "metadata who = me", "[0, 3]", "esc\\u001b[31m"], "inspect", "a.safetensors")
    test.check("\x1b" not in text, "a control character came through")
    answer = json.loads(test.expect(0, [], "inspect", "a.safetensors", "--json"))
    found = {entry["name"]: entry for entry in answer["files"][0]["tensors"]}
    content = (test.folder / "a.safetensors").read_bytes()
    for name, (dtype, shape, values) in tensors.items():
        entry = found[name]
        at = entry["offset"]
        test.check((entry["dtype"], entry["shape"], entry["bytes"]) == (dtype, shape, len(values)), f"--json: {entry}")
        test.check(content[at:at + len(values)] == values, f"--json: offset of {name}")
    test.check(answer["bytes"] == sum(len(values) for _, _, values in tensors.values()), "--json: bytes")
    test.check(answer["checkpoint"] is None and answer["tensors"] == len(tensors), "--json: totals")


def differs(test, tensors):
    other = dict(tensors)
    other["i"] = ("I64", [1], struct.pack("<q", 2**53 + 2))  # the same as a double
    other["b"] = ("F32", [2], floats(-0.0, float("nan")))
    other["f4"] = ("F4", [4], b"ac")
    other["w"] = ("F32", [1, 3001], tensors["w"][2])
    del other["none"]
    other["more"] = ("U8", [0], b"")
    write_file(test.folder / "b.safetensors", other)
    text = test.expect(1, ["i: values differ, 1 of 1 elements, at most 1 absolute", "f4: bytes differ", "none: only in A",
                           "more: only in B", "w: shape differs (F32 [3001] and F32 [1, 3001])",
                           "b: values differ, 0 of 2 elements", "2 of 8 tensors are equal"],
                       "diff", "a.safetensors", "b.safetensors")
    test.check("scalar" not in text, "equal tensors are listed")
    answer = json.loads(test.run("diff", "a.safetensors", "b.safetensors", "--json").stdout)
    test.check((answer["tensors"], answer["equal"], len(answer["differing"])) == (8, 2, 6), f"diff --json: {answer}")
    test.expect(0, ["7 of 7 tensors"], "diff", "a.safetensors", "a.safetensors")


def converts(test, numbers, tensors):
    test.expect(0, ["c.safetensors: 7 tensors in 1 file"], "convert", "a.safetensors", "-o", "c.safetensors", "--dtype", "bfloat16")
    stored, metadata, begin = read_file(test.folder / "c.safetensors")
    test.check(stored["w"] == ("BF16", [3001], bfloat16(numbers)), "bfloat16 differs from rounding by hand")
    test.check(stored["i"] == tensors["i"] and stored["f4"] == tensors["f4"], "other types were changed")
    test.check(stored["none"] == ("BF16", [0, 3], b""), "a tensor without elements keeps its shape")
    test.check(metadata == {"who": "me", "format": "pt"} and begin % 4096 == 0, f"{metadata} {begin}")
    test.expect(1, ["w: dtype differs"], "diff", "a.safetensors", "c.safetensors")
    test.expect(3, ["c.safetensors exists already"], "convert", "a.safetensors", "-o", "c.safetensors")
    write_file(test.folder / "large.safetensors", {"x": ("F32", [3], floats(1e30, 1.0, float("inf")))})
    test.expect(0, ["1 finite elements became infinite"], "convert", "large.safetensors", "-o", "half.safetensors", "--dtype", "float16")


def splits_and_merges(test, tensors):
    test.expect(0, ["set: 7 tensors in 4 files"], "split", "a.safetensors", "-o", "set", "--shard-size", "10B")
    index = json.loads((test.folder / "set/model.safetensors.index.json").read_text())
    test.check(set(index["weight_map"]) == set(tensors), "the index lacks names")
    test.check(index["metadata"]["total_size"] == sum(len(values) for _, _, values in tensors.values()), "total_size")
    for name, file in index["weight_map"].items():
        test.check(read_file(test.folder / "set" / file)[0][name] == tensors[name], f"{name} in {file}")
    test.expect(0, ["valid, 7 tensors"], "verify", "set")
    test.expect(0, [], "merge", "set", "-o", "merged.safetensors")
    test.expect(0, ["7 of 7"], "diff", "merged.safetensors", "set/model.safetensors.index.json")
    write_file(test.folder / "d.safetensors", {"other": ("U8", [1], b"x")}, {"who": "you"})
    test.expect(0, ["metadata 'who': 'me' is kept", "8 tensors"], "merge", "a.safetensors", "d.safetensors", "-o", "both.safetensors")
    test.expect(2, ["tensor 'w' is in"], "merge", "a.safetensors", "set", "-o", "twice.safetensors")
    test.expect(2, ["several files need a folder"], "split", "a.safetensors", "-o", "x.safetensors", "--shard-size", "5GB")
    left = [path.name for path in test.folder.iterdir() if ".partial" in path.name or path.name in ("twice.safetensors", "x.safetensors")]
    test.check(not left, f"left behind: {left}")


def handles_many_parts(test):
    """Tensors beyond the buffers of diff and of writing, and an index of another name."""
    content = bytearray(random.Random(SEED).randbytes((8 << 20) + 5))
    write_file(test.folder / "large_a.safetensors", {"x": ("U8", [len(content)], bytes(content))})
    test.expect(0, [], "convert", "large_a.safetensors", "-o", "large_b.safetensors")
    test.check(read_file(test.folder / "large_b.safetensors")[0]["x"][2] == bytes(content), "a large copy differs")
    content[0] ^= 1
    write_file(test.folder / "large_b.safetensors", {"x": ("U8", [len(content)], bytes(content))})
    test.expect(1, ["x: values differ, 1 of"], "diff", "large_a.safetensors", "large_b.safetensors")
    (test.folder / "set").rename(test.folder / "odd")
    (test.folder / "odd/model.safetensors.index.json").rename(test.folder / "odd/other.safetensors.index.json")
    test.expect(0, ["7 of 7"], "diff", "odd", "merged.safetensors")


def refuses(test):
    content = (test.folder / "a.safetensors").read_bytes()
    (test.folder / "cut.safetensors").write_bytes(content[:-1])
    test.expect(1, ["invalid: cut.safetensors", "IncompleteBuffer"], "verify", "cut.safetensors")
    for command in (["inspect"], ["diff", "a.safetensors"], ["merge", "-o", "never.safetensors"]):
        test.expect(3, ["IncompleteBuffer"], *command, "cut.safetensors")
    test.check(not (test.folder / "never.safetensors").exists(), "a damaged input left an output")
    write_file(test.folder / "a_float.safetensors", {"h.0.w": ("F32", [4, 4], bytes(64)), "ids": ("I64", [2], bytes(16))})
    test.expect(2, ["'f4' is F4"], "plan", "a.safetensors")
    test.expect(3, ["No such file"], "verify", "missing.safetensors")
    test.expect(3, ["safetensors files: name one of them"], "inspect", ".")
    (test.folder / "kept.safetensors.partial").write_bytes(b"")
    test.expect(3, ["is left from a run"], "convert", "a.safetensors", "-o", "kept.safetensors")
    test.check((test.folder / "kept.safetensors.partial").exists(), "another run's file was removed")
    for arguments in ([], ["inspect"], ["convert", "a.safetensors"], ["nonsense"], ["split", "a.safetensors", "-o", "x"],
                      ["split", "a.safetensors", "-o", "x", "--shard-size", "0"],
                      ["convert", "a.safetensors", "-o", "x", "--dtype", "int8"]):
        test.expect(2, [], *arguments)
    for option, value in (("--world", ""), ("--world", "-1"), ("--world", "2x"), ("--world", "99999999999999999999"),
                          ("--link", "0"), ("--link", "inf"), ("--latency", "-1"), ("--tokens", "1.5"),
                          ("--prefetch-forward", "1001"), ("--offload", "cpu")):
        test.expect(2, [option], "plan", "--gpt", "1,8,8", option, value)
    test.expect(2, ["--shard-size takes"], "split", "a.safetensors", "-o", "x", "--shard-size", "5XB")
    test.expect(2, ["--shard-size takes"], "split", "a.safetensors", "-o", "x", "--shard-size", "99999999TB")
    test.expect(0, ["  all "], "plan", "a_float.safetensors", "--world", "2")
    for command in ("inspect", "verify", "diff", "convert", "merge", "split", "translate", "plan"):
        test.expect(0, [f"Usage: flatshard {command}", "Exit codes: 0 done"], command, "--help")


def full_device(test):
    with open("/dev/full", "w") as full:
        done = subprocess.run([test.program, "inspect", "a.safetensors"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=test.folder)
    test.check(done.returncode == 3 and "standard output cannot be written" in done.stderr, f"/dev/full: {done}")


def agrees_with_corpus(test):
    rows = [line.split("\t") for line in (CORPUS / "verdicts.tsv").read_text().splitlines()[1:]]
    count = 0
    for kind, path, strict, *_ in rows:
        names = ["model.safetensors", "model.safetensors.index.json"]
        if kind == "index" or kind == "set" and not any((CORPUS / path / name).exists() for name in names):
            continue  # the command takes a folder's only safetensors file, whatever its name
        count += 1
        test.expect(0 if strict == "accept" else 1, [] if strict == "accept" else ["invalid: "], "verify", CORPUS / path)
    test.check(count > 50, f"the corpus has only {count} cases")


def main():
    with tempfile.TemporaryDirectory() as name:
        test = Test(str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(name))
        numbers, tensors = sample()
        write_file(test.folder / "a.safetensors", tensors, {"who": "me"})
        inspects(test, tensors)
        differs(test, tensors)
        converts(test, numbers, tensors)
        splits_and_merges(test, tensors)
        handles_many_parts(test)
        refuses(test)
        full_device(test)
        agrees_with_corpus(test)
    print(*test.faults, sep="\n")
    print(f"seed {SEED}, {len(test.faults)} faults")
    sys.exit(1 if test.faults else 0)


if __name__ == "__main__":
    main()
