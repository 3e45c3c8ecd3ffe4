#!/usr/bin/env python3
"""Every file here has two halves: the good one compiles; the bad one (#ifdef BAD) does not, and says why.

  // expect: words      must stand in what the compiler says of the bad half (one line each, at least one)
  // flags: -fno-x      further flags, for the bad half only

What the compiler says is under 40 lines long.
Usage: check.py INCLUDE_DIR COMPILER... | check.py --self-test INCLUDE_DIR COMPILER...
"""
import pathlib
import re
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from checking import compiled, count  # noqa: E402

LINES = 40


def marks(text, name):
    return re.findall(rf"^// {name}: (.+?)\s*$", text, re.MULTILINE)


def faults_of(compiler, include, path):
    text = path.read_text(encoding="utf-8")
    flags = ["-I", str(include)]
    expected = marks(text, "expect")
    good, good_output = compiled(compiler, flags, path)
    bad_flags = [flag for line in marks(text, "flags") for flag in line.split()]
    bad, bad_output = compiled(compiler, [*flags, "-DBAD", *bad_flags], path)
    lines = len(bad_output.splitlines())
    faults = []
    if not expected:
        faults.append("has no '// expect: words' line")
    if not good:
        faults.append("the good half does not compile:\n" + good_output)
    if bad:
        faults.append("the bad half compiles")
    missing = [words for words in expected if words not in " ".join(bad_output.split())]
    if missing and not bad:
        faults.append(f"the bad half does not say {missing}, but:\n{bad_output}")
    if lines >= LINES:
        faults.append(f"the bad half says {lines} lines, not under {LINES}")
    return faults


def check(compiler, include, folder):
    files = sorted(folder.glob("*.cpp"))
    by_name = {path.name: path for path in files}
    return count(list(by_name), lambda name: faults_of(compiler, include, by_name[name]))


SOUND = '// expect: only even\n#ifdef BAD\nstatic_assert(false, "only even");\n#endif\n'
LONG = "\n".join(f"nothing_{line} x{line};" for line in range(LINES))
# file: (content, words of the expected fault; None: no fault)
CASES = {
    "sound.cpp": (SOUND, None),
    "flags.cpp": ("// expect: ASKED\n// flags: -DASKED=1\n#ifdef ASKED\n#error ASKED\n#endif\n", None),
    "bad_compiles.cpp": ("// expect: only even\nint x;\n", "the bad half compiles"),
    "wrong_words.cpp": (SOUND.replace("expect: only even", "expect: only odd"), "does not say ['only odd']"),
    "too_long.cpp": ("// expect: nothing_0\n#ifdef BAD\n" + LONG + "\n#endif\n", "lines, not under"),
    "good_fails.cpp": (SOUND + '#ifndef BAD\n#error "no"\n#endif\n', "good half does not compile"),
    "no_words.cpp": (SOUND.replace("// expect", "// e"), "has no"),
}


def self_test(compiler, include):
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (content, expected) in CASES.items():
            path = pathlib.Path(folder) / name
            path.write_text(content)
            found = faults_of(compiler, include, path)
            good = not found if expected is None else len(found) == 1 and expected in found[0]
            wrong += [] if good else [f"{name}: expected {expected}, found {found}"]
    print(*(wrong or ["self-test holds"]), sep="\n")
    return len(wrong)


def main():
    arguments = sys.argv[1:]
    testing_itself = arguments[:1] == ["--self-test"]
    place, *compiler = arguments[testing_itself:] or [None]
    if not compiler:
        sys.exit(__doc__)
    include = pathlib.Path(place).resolve()
    return 1 if (self_test(compiler, include) if testing_itself else check(compiler, include, HERE)) else 0


if __name__ == "__main__":
    sys.exit(main())
