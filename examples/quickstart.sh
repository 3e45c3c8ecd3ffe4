#!/usr/bin/env bash
# Installs what is missing, builds, and trains a small GPT for about a minute on the project's own text.
#
#   bash examples/quickstart.sh [OPTION...]     options go to build/examples/train_gpt
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash tools/install_dependencies.sh
source tools/toolchain.sh
[ -f build/build.ninja ] || meson setup build -Dexamples=enabled -Dcuda=disabled
ninja -C build examples/train_gpt
for option in --ranks=2 --steps=300; do
  case " $* " in *" ${option%=*}"[\ =]*) ;; *) set -- "$option" "$@" ;; esac
done
exec build/examples/train_gpt "$@"
