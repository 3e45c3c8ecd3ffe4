#!/usr/bin/env python3
"""Writes the reference: a page for each public header, a list of pages for each layer.

Usage: make_reference.py XML FOLDER     XML: what Doxygen wrote; FOLDER: made anew
"""
import pathlib
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"
LAYERS = {
    "core": "types, errors, exact arithmetic, streams, memory, devices",
    "tensor": "dtypes and views",
    "layout": "models, units, slices, the order of the norm",
    "ops": "what a step does to elements; optimizers",
    "io": "files",
    "comm": "ranks and collectives",
    "policy": "strategy, precision, offload",
    "sharder": "the Plan, the engine, the Sharder",
    "checkpoint": "what is saved and loaded",
}
REFERENCE = """
Every public name, by layer; a header uses its own layer and those above it here. ``flatshard/flatshard.hpp`` includes
all.

.. toctree::
   :maxdepth: 1

   config
"""
NOT_SHOWN = {"flatshard/flatshard.hpp", "flatshard/fwd.hpp"}


def heading(text, sign):
    return f"{text}\n{sign * len(text)}\n"


def introduction(header):
    """The comment at the top of a header, as reStructuredText: indented lines are code."""
    lines = []
    for line in header.read_text(encoding="utf-8").split("\n"):
        if not line.startswith("//"):
            break
        lines.append(line[2:].removeprefix(" "))
    text, code = [], False
    for line in lines:
        indented = line.startswith("  ")
        if indented and not code:
            text += ["", ".. code-block:: text", ""]
        elif code and line and not indented:
            text.append("")
        code = indented or (code and not line)
        text.append(line if code else re.sub(r"([\\*_|`])", r"\\\1", line))
    return "\n".join(text) + "\n"


def name_files_by_path(xml):
    """In Doxygen's index a file has the last part of its path for a name, which several may share."""
    index = ElementTree.parse(xml / "index.xml")
    for compound in index.iter("compound"):
        if compound.get("kind") == "file":
            location = ElementTree.parse(xml / f"{compound.get('refid')}.xml").find("compounddef/location")
            compound.find("name").text = location.get("file")
    index.write(xml / "index.xml", encoding="utf-8")


def has_comment(compound):
    parts = (compound.find(part) for part in ("briefdescription", "detaileddescription"))
    return any("".join(part.itertext()).strip() for part in parts)


def concepts(xml):
    """Concepts by header, which a file's own page leaves out and Doxygen does not warn of."""
    result = {}
    for path in sorted(xml.glob("concept*.xml")):
        compound = ElementTree.parse(path).find("compounddef")
        header = compound.find("location").get("file")
        if not has_comment(compound):
            sys.exit(f"{header}: concept {compound.findtext('compoundname')} is not documented.")
        line = int(compound.find("location").get("line"))
        result.setdefault(header, []).append((line, compound.findtext("compoundname")))
    return {header: [name for _, name in sorted(names)] for header, names in result.items()}


def page(name, concept_names):
    text = heading(name, "=") + "\n" + introduction(INCLUDE / name)
    for concept in concept_names:
        text += f"\n.. doxygenconcept:: {concept}\n"
    return text + f"\n.. doxygenfile:: {name}\n"


def write_layer(folder, layer, purpose, names, concepts_of):
    (folder / layer).mkdir()
    text = heading(f"{layer}: {purpose}", "=") + "\n.. toctree::\n   :maxdepth: 1\n\n"
    for name in names:
        stem = pathlib.Path(name).stem
        (folder / layer / f"{stem}.rst").write_text(page(name, concepts_of.get(name, [])), encoding="utf-8")
        text += f"   {layer}/{stem}\n"
    (folder / f"{layer}.rst").write_text(text, encoding="utf-8")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    xml, folder = map(pathlib.Path, sys.argv[1:])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    name_files_by_path(xml)
    concepts_of = concepts(xml)
    names = {path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*.hpp")} - NOT_SHOWN
    text = heading("Reference", "=") + REFERENCE
    (folder / "config.rst").write_text(page("flatshard/config.hpp", []), encoding="utf-8")
    for layer, purpose in LAYERS.items():
        own = sorted(name for name in names if name.startswith(f"flatshard/{layer}/"))
        write_layer(folder, layer, purpose, own, concepts_of)
        text += f"   {layer}\n"
        names -= set(own)
    (folder / "index.rst").write_text(text, encoding="utf-8")
    unplaced = names - {"flatshard/config.hpp"}
    return f"these headers are in no layer that make_reference.py knows: {sorted(unplaced)}" if unplaced else 0


if __name__ == "__main__":
    sys.exit(main())
