#!/usr/bin/env python3
"""Writes the corpus: files/, indexes/, sets/ and verdicts.tsv.

Usage: generate.py            writes beside this script
       generate.py --check    says whether what lies there is what this script writes
"""
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
from file_cases import file_cases  # noqa: E402
from set_cases import index_cases, set_cases  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = ["kind", "path", "strict", "compatible", "warnings", "reference", "remark"]


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def rows_of_files(root):
    for name, content, verdict, options in file_cases():
        path = f"files/{name}.safetensors"
        write(root / path, content)
        compatible = options.get("compatible", verdict)
        warnings = int(compatible == "accept" and verdict != "accept")
        reference = options.get("reference", "accept" if verdict == "accept" else "reject")
        yield "file", path, verdict, compatible, warnings, reference, options.get("what", "")


def rows_of_indexes(root):
    for name, text, verdict in index_cases():
        path = f"indexes/{name}.json"
        write(root / path, text.encode())
        yield "index", path, verdict, verdict, 0, "-", ""


def rows_of_sets(root):
    for name, files, verdict, warnings in set_cases():
        for file, content in files.items():
            write(root / "sets" / name / file, content)
        yield "set", f"sets/{name}", verdict, verdict, warnings, "-", ""


def generate(root):
    rows = [COLUMNS, *rows_of_files(root), *rows_of_indexes(root), *rows_of_sets(root)]
    paths = [row[1] for row in rows]
    assert len(paths) == len(set(paths)), "two cases have one name"
    text = "".join("\t".join(str(cell) for cell in row) + "\n" for row in rows)
    write(root / "verdicts.tsv", text.encode())
    return len(rows) - 1


def contents(root):
    kept = [root / "verdicts.tsv", *(path for part in ("files", "indexes", "sets") for path in (root / part).rglob("*"))]
    return {path.relative_to(root): path.read_bytes() for path in kept if path.is_file()}


def check():
    with tempfile.TemporaryDirectory() as folder:
        generate(pathlib.Path(folder))
        wanted, found = contents(pathlib.Path(folder)), contents(HERE)
    different = sorted(path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path))
    print(*different, sep="\n", end="\n" if different else "")
    print(f"{len(found)} files, {len(different)} not as generated")
    return bool(different)


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(check())
    if sys.argv[1:]:
        sys.exit(__doc__)
    print(f"{generate(HERE)} cases")
