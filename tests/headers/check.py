#!/usr/bin/env python3
"""Every public header compiles alone, and included twice, without a warning.

Usage: check.py INCLUDE_DIR COMPILER... | check.py --self-test COMPILER...
"""
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from checking import compiled, count  # noqa: E402

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]


def faults_of(compiler, include, header):
    text = f"#include <{header}>\n#include <{header}>\n"
    good, output = compiled(compiler, [*WARNINGS, "-I", str(include)], "-", text)
    return [] if good else ["does not compile alone and twice:\n" + output]


def headers_of(include):
    return sorted(path.relative_to(include).as_posix() for path in include.rglob("*.hpp"))


def check(compiler, include):
    return count(headers_of(include), lambda header: faults_of(compiler, include, header))


CASES = {
    "sound": ("#pragma once\n#include <cstddef>\nstruct Sound { std::size_t n; };", False),
    "not_alone": ("#pragma once\nstruct Unsound { std::string s; };", True),
    "not_twice": ("struct Twice {};", True),
    "warns": ("#pragma once\ninline int narrow(long x) { return x; }", True),
}


def self_test(compiler):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, (text, _) in CASES.items():
            (root / f"{name}.hpp").write_text(text + "\n")
        wrong = [
            name
            for name, (_, fails) in CASES.items()
            if bool(faults_of(compiler, root, f"{name}.hpp")) != fails
        ]
    print(f"self-test: wrong about {wrong}" if wrong else "self-test holds")
    return len(wrong)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    place, compiler = sys.argv[1], sys.argv[2:]
    failed = self_test(compiler) if place == "--self-test" else check(compiler, pathlib.Path(place))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
