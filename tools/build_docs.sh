#!/usr/bin/env bash
# Installs what is missing and builds the documentation: build-docs/html/index.html.
# Warnings of Doxygen and Sphinx are errors; links within the site are checked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash tools/install_dependencies.sh docs
out=build-docs
rm -rf "$out"
mkdir -p "$out"

echo "build_docs: reading the headers"
{ cat docs/doxygen/Doxyfile; echo "OUTPUT_DIRECTORY = $out"; } | doxygen -
.venv/bin/python docs/make_reference.py "$out/xml" docs/reference

echo "build_docs: writing pages"
FLATSHARD_XML="$PWD/$out/xml" .venv/bin/python -m sphinx -q -W --keep-going -b html \
  -d "$out/doctrees" docs "$out/html"
python3 tests/docs/check_links.py "$out/html"
echo "build_docs: $out/html/index.html"
