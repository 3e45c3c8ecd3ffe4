# shellcheck shell=bash
# Sourced by the scripts: chooses the compiler and the Meson that they use.
needed_gcc=12
needed_meson=1.0.0

compiler_major() { "${CXX:-g++}" -dumpversion 2>/dev/null | cut -d. -f1; }

new_enough_meson() {
  local version
  version=$(meson --version 2>/dev/null) || return 1
  [ "$(printf '%s\n' "$needed_meson" "$version" | sort -V | head -n 1)" = "$needed_meson" ]
}

toolchain_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ -x "$toolchain_root/.venv/bin/meson" ] && ! new_enough_meson; then
  export PATH="$toolchain_root/.venv/bin:$PATH"
fi
if [ -z "${CXX:-}" ] && command -v "g++-$needed_gcc" >/dev/null &&
  [ "$(compiler_major)" -lt "$needed_gcc" ] 2>/dev/null; then
  export CXX="g++-$needed_gcc"
fi
