#!/usr/bin/env python3
"""Every option of FSDP and DeepSpeed that options.txt names is spoken of, by name, on its "coming from" page.

Usage: check_options.py DOCS | check_options.py --self-test
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


def self_test():
    wrong = [name for name, (text, pages, count) in BAD.items() if len(faults_of(text, pages)) != count]
    wrong += ["good pages"] * bool(faults_of(LIST, GOOD))
    print(f"self-test: wrong about {wrong}" if wrong else "self-test holds")
    return bool(wrong)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        return self_test()
    text = OPTIONS.read_text(encoding="utf-8")
    pages = {path.stem: path.read_text(encoding="utf-8") for path in pathlib.Path(sys.argv[1]).glob("*.rst")}
    faults = faults_of(text, pages)
    for fault in faults:
        print(fault)
    count = sum(map(len, read_options(text)[0].values()))
    print(f"{count} options, {len(faults)} faults")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
