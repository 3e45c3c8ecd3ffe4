#!/usr/bin/env python3
"""Removes each validation of the safetensors reader in turn and requires that a test fails each time.

Usage: mutate_reader.py BUILD_FOLDER [COMPILER...] | mutate_reader.py --list

Takes the library and the objects of the checkpoint tests from a built folder, compiles the reader's sources
and one changed one at a time, and links them in front of the library, whose own compilations hold several
sources: the first definition counts. Sources and comments stay as they are.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCES = [
    "json_events", "header", "header_checks", "header_handler", "header_reader", "header_writer", "index_handler",
    "shard_index", "set_opener", "tensor_set",
]  # fmt: skip
TESTS = ["corpus", "header_reader", "header_writer", "shard_index", "tensor_set"]
FEWEST = 80  # mutants; fewer: this script no longer finds the validations

CONDITION = re.compile(r"\bif \((?P<condition>[^;{}]*?)\)\s+(?:refuse\w*\(|throw FormatError|return std::nullopt;)")
EXPECTATION = re.compile(r"\bFLATSHARD_EXPECTS\(")
CALL = re.compile(r"^[ ]+(?P<call>refuse\w*\([^;]*\);)", re.MULTILINE)
REFUSER = re.compile(r"^[^\s].*\brefuse\w*\(.*\{$|^ +\[\[noreturn\]\] void refuse\w*\(.*\{$", re.MULTILINE)


def closing(text, start):
    """Position of the bracket or comma, outside of strings, that ends the first argument from `start`."""
    depth, quoted, at = 0, None, start
    while True:
        c = text[at]
        if quoted:
            at += c == "\\"
            quoted = None if c == quoted else quoted
        elif c in "\"'":
            quoted = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            return at
        at += 1


def refuser_bodies(text):
    """Spans of the functions that only raise: a mutant there would be no removed validation."""
    for match in REFUSER.finditer(text):
        indent = re.match(r" *", match.group()).group()
        yield match.start(), text.index(f"\n{indent}}}", match.end())


def mutants_of(text):
    """(position, end, replacement) of each validation."""
    bodies = list(refuser_bodies(text))
    spans = []
    for match in CONDITION.finditer(text):
        spans.append((*match.span("condition"), f"({match['condition']}) && false"))
    for match in EXPECTATION.finditer(text):
        end = closing(text, match.end())
        spans.append((match.end(), end, f"({text[match.end():end]}) || true"))
    conditional = [text.find(";", end) for _, end, _ in spans]
    for match in CALL.finditer(text):
        if match.end() - 1 not in conditional:
            spans.append((*match.span("call"), ";"))
    return sorted(span for span in spans if not any(begin <= span[0] <= end for begin, end in bodies))


class Bench:
    """Builds and runs the tests with one source changed."""

    def __init__(self, build, compiler, folder):
        self.build, self.compiler, self.folder = build, compiler, pathlib.Path(folder)
        objects = build / "tests/unit/unit_checkpoint.p"
        self.objects = [next(objects.glob(f"checkpoint_{name}_test.cpp.o")) for name in TESTS]
        self.objects += objects.glob("*scratch_folder.cpp.o")
        self.libraries = ["-Wl,--allow-multiple-definition", build / "tests/libtest_main.a", build / "libflatshard.a"]
        self.libraries += ["-lfmt", "-lpthread"]
        self.originals = {name: self.compiled(name, text_of(name), "original") for name in SOURCES}

    def run(self, *command, timeout=None):
        command = [str(part) for part in command]
        environment = dict(os.environ, FLATSHARD_TEST_SEED="1")
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout)

    def compiled(self, name, text, tag):
        place = self.folder / f"{name}_{tag}"
        place.with_suffix(".cpp").write_text(text)
        flags = ["-std=c++20", "-O0", "-w", "-I", ROOT / "include", "-I", ROOT / "src/checkpoint"]
        self.build_by(*flags, "-c", place.with_suffix(".cpp"), "-o", place.with_suffix(".o"))
        return place.with_suffix(".o")

    def build_by(self, *arguments):
        built = self.run(*self.compiler, *arguments)
        if built.returncode != 0:
            raise RuntimeError(f"does not build: {arguments[-1]}\n{built.stderr}")

    def tests_pass(self, name, text, tag):
        """True when every test passes; raises when the text does not compile."""
        changed = self.compiled(name, text, tag)
        place = changed.with_suffix("")
        others = [original for other, original in self.originals.items() if other != name]
        self.build_by(*self.objects, changed, *others, *self.libraries, "-o", place)
        try:
            return self.run(place, "--abort-after=1", timeout=300).returncode == 0
        except subprocess.TimeoutExpired:
            return False  # a loop that a validation would have ended
        finally:
            for suffix in ("", ".o"):
                place.with_suffix(suffix).unlink()


def text_of(name):
    return (ROOT / f"src/checkpoint/{name}.cpp").read_text()


def all_mutants():
    for name in SOURCES:
        text = text_of(name)
        for begin, end, replacement in mutants_of(text):
            line = text.count("\n", 0, begin) + 1
            yield name, line, text[:begin] + replacement + text[end:], text[begin:end]


def check(build, compiler):
    mutants = list(all_mutants())
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        bench = Bench(build, compiler, folder)
        if not bench.tests_pass("header_handler", text_of("header_handler"), "unchanged"):
            sys.exit("the tests fail without any change")
        jobs = [pool.submit(bench.tests_pass, name, text, number) for number, (name, _, text, _) in enumerate(mutants)]
        survivors = [mutant for mutant, job in zip(mutants, jobs) if job.result()]
    for name, line, _, removed in survivors:
        print(f"src/checkpoint/{name}.cpp:{line}: no test misses: {' '.join(removed.split())}")
    print(f"{len(mutants)} validations removed one at a time, {len(mutants) - len(survivors)} noticed by a test")
    return bool(survivors) or len(mutants) < FEWEST


def main():
    if sys.argv[1:] == ["--list"]:
        for name, line, _, removed in all_mutants():
            print(f"{name}.cpp:{line}: {' '.join(removed.split())}")
        return 0
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    return check(pathlib.Path(sys.argv[1]), sys.argv[2:] or [os.environ.get("CXX", "g++")])


if __name__ == "__main__":
    sys.exit(main())
