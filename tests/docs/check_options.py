#!/usr/bin/env python3
"""Every option of FSDP and DeepSpeed that options.txt names is spoken of, by name, on its "coming from" page; so is
every subcommand of the flatshard command on the page about it. No page has C++ of its own: it shows tested files.

Usage: check_options.py ROOT | check_options.py --self-test
"""
import pathlib
import re
import sys

OPTIONS = pathlib.Path(__file__).resolve().parent / "options.txt"


def read_options(text):
    """{page: [option, ...]}; what is wrong with the list itself."""
    pages, faults, page = {}, [], None
    for line in (line.strip() for line in text.split("\n")):
        if line.startswith("[") and line.endswith("]"):
            page = pages.setdefault(line[1:-1], [])
        elif line and not line.startswith("#"):
            if page is None:
                faults.append(f"options.txt: {line} is on no page")
            elif line in page:
                faults.append(f"options.txt: {line} is there twice")
            else:
                page.append(line)
    faults += [f"options.txt: page {name} has no options" for name, names in pages.items() if not names]
    return pages, faults if pages else faults + ["options.txt: names no page"]


def faults_of(text, pages):
    """`pages`: {page: its text}. An option counts where it stands by itself as ``literal``."""
    listed, faults = read_options(text)
    for name, options in listed.items():
        literals = set(re.findall(r"``([^`\n]+)``", pages.get(name, "")))
        faults += [f"docs/{name}.rst does not speak of {option}" for option in options if option not in literals]
    return faults


def command_faults(source, page):
    """`source`: of the command line. On the page a subcommand is a literal with an indented text below it."""
    names = re.findall(r'Command command\(\s*app,\s*"(\w+)"', source)
    shown = re.findall(r"^``(\w+)[ `].*\n  \S", page, re.MULTILINE)
    faults = [] if names else ["command_line.cpp: no subcommand is found"]
    faults += [f"docs/the_command.rst does not speak of {name}" for name in names if name not in shown]
    return faults + [f"docs/the_command.rst speaks of {name}, which is none" for name in shown if name not in names]


def loose_code(name, page):
    found = re.search(r"^.. code-block:: *(?:c\+\+|cpp|cuda|c)$|^\s+#include\b|^(?!\s*\.\.).*::$", page, re.MULTILINE)
    return [f"docs/{name}.rst has code of its own: {found[0].strip()}"] if found else []


LIST = "# all\n[one]\na_b\nc.d\n[two]\ne\n"
GOOD = {"one": "``a_b`` and ``c.d``", "two": "``e``"}
BAD = {
    "missing option": (LIST, {**GOOD, "one": "``a_b`` and ``c.d2``"}, 1),
    "part of a word": (LIST, {**GOOD, "two": "``ee``"}, 1),
    "not a literal": (LIST, {**GOOD, "two": "e"}, 1),
    "missing page": (LIST, {"one": GOOD["one"]}, 1),
    "on the other page": (LIST, {"one": GOOD["two"], "two": GOOD["one"]}, 3),
    "empty list": ("# nothing\n", GOOD, 1),
    "twice": (LIST + "e\n", GOOD, 1),
    "empty page": (LIST + "[three]\n", GOOD, 1),
}


LOOSE = [".. code-block:: c++\n\n  int x;", ".. code-block:: text\n\n  #include <a>", "So::\n\n  int x;"]
NOT_LOOSE = ".. code-block:: sh\n\n  a\n\n.. literalinclude:: a.cpp\n   :language: c++\n\n.. list-table::\n"
SOURCE = 'Command command(\n      app, "a", "what"'
BAD_COMMANDS = {
    "missing command": (SOURCE, "``b X``\n  text", 2),
    "no command": ("", "", 1),
    "unknown command": (SOURCE, "``a``\n  text\n``c X``\n  text", 1),
}


def self_test():
    wrong = [name for name, (text, pages, count) in BAD.items() if len(faults_of(text, pages)) != count]
    wrong += ["good pages"] * bool(faults_of(LIST, GOOD))
    wrong += [name for name, (text, page, count) in BAD_COMMANDS.items() if len(command_faults(text, page)) != count]
    wrong += [text for text in LOOSE if not loose_code("a", text)] + ["no code"] * bool(loose_code("a", NOT_LOOSE))
    wrong += ["good command"] * bool(command_faults(SOURCE, "``a X``\n  text"))
    print(f"self-test: wrong about {wrong}" if wrong else "self-test holds")
    return bool(wrong)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        return self_test()
    text = OPTIONS.read_text(encoding="utf-8")
    root = pathlib.Path(sys.argv[1])
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (root / "docs").glob("*.rst")}
    command_line = (root / "tools/flatshard/command_line.cpp").read_text(encoding="utf-8")
    faults = faults_of(text, pages) + command_faults(command_line, pages["the_command"])
    faults += [fault for name, page in pages.items() for fault in loose_code(name, page)]
    for fault in faults:
        print(fault)
    count = sum(map(len, read_options(text)[0].values()))
    print(f"{count} options, {len(faults)} faults")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
