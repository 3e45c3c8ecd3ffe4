# shellcheck shell=bash
# Sourced by tests/run.sh: programs of somebody else against the library as it is packaged.

# The library as a user without Meson takes it: installed, found by pkg-config and by CMake.
build_against_installed() {
  local prefix=build-full/installed flags
  rm -rf "$prefix" && meson install -C "$1" --no-rebuild || return 1
  flags=$(PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name flatshard.pc)") pkg-config --static --cflags --libs flatshard)
  # shellcheck disable=SC2086 # the flags are words
  "${CXX:-g++}" -std=c++20 tests/subproject/guest.cpp $flags -o build-full/guest && build-full/guest &&
    build_by_cmake "$PWD/$prefix" ON "$PWD/tests/subproject/guest.cpp"
}

# build_by_cmake PREFIX STATIC PROGRAM: STATIC is ON or OFF.
build_by_cmake() {
  local folder=build-full/cmake
  rm -rf "$folder" && cmake -S tests/packages -B "$folder" "-DCMAKE_PREFIX_PATH=$1" "-DFLATSHARD_USE_STATIC=$2" \
    "-DPROGRAM=$3" "-DCMAKE_CXX_COMPILER=${CXX:-g++}" && cmake --build "$folder" && "$folder/outside"
}

build_subproject() {
  local folder=build-full/subproject
  rm -rf "$folder" && mkdir -p "$folder/source/subprojects" &&
    cp tests/subproject/* "$folder/source" && ln -s "$PWD" "$folder/source/subprojects/flatshard" &&
    CXX=${CXX:-g++} meson setup "$folder/build" "$folder/source" --buildtype=debug -Db_pch=false -Dwerror=true -Dflatshard:cuda=disabled &&
    ninja -C "$folder/build" && "$folder/build/guest"
}

# As a subproject flatshard brings its library and nothing else.
only_the_library() {
  meson introspect --targets "$1" | python3 -c '
import json, sys
names = sorted(target["name"] for target in json.load(sys.stdin) if target["type"] != "static library")
print(names)
sys.exit(names != ["guest"])'
}

# As a wrap: Meson clones the repository when the program is configured. What it then compiles is what the
# subproject above compiled.
configure_wrap() {
  local folder=build-full/wrap
  rm -rf "$folder" && mkdir -p "$folder/source/subprojects" && cp tests/subproject/* "$folder/source" &&
    sed -e "s|^url = .*|url = file://$(git rev-parse --show-toplevel)|" tools/packages/flatshard.wrap >"$folder/source/subprojects/flatshard.wrap" &&
    CXX=${CXX:-g++} meson setup "$folder/build" "$folder/source" -Dflatshard:cuda=disabled &&
    ninja -C "$folder/build" -n guest
}

# Packages from what is committed, their shared library under CMake, and a fresh Debian that installs them.
debian_stages() {
  local packages=$PWD/build-full/debian status
  if ! command -v dpkg-buildpackage >/dev/null || ! command -v dh >/dev/null; then
    echo "== Debian packages: skipped, this system has no dpkg-buildpackage or no dh"
    return
  fi
  stage 'Debian packages: build' bash tools/build_debian_package.sh "$packages" || return
  stage 'Debian packages: the shared library under CMake' build_against_extracted "$packages"
  echo '== Debian packages: in a fresh Debian'
  bash tests/packages/try_debian_package.sh "$packages" >"$packages/trial.log" 2>&1 </dev/null
  status=$?
  if [ $status -eq 77 ]; then tail -n 1 "$packages/trial.log"; return; fi
  [ $status -eq 0 ] || tail -n 60 "$packages/trial.log"
  record 'Debian packages: in a fresh Debian' $status
}

build_against_extracted() {
  local root=$1/root package
  rm -rf "$root"
  for package in "$1"/*.deb; do dpkg-deb -x "$package" "$root" || return 1; done
  LD_LIBRARY_PATH=$(dirname "$(find "$root" -name libflatshard.so)") build_by_cmake "$root/usr" OFF "$PWD/examples/hello.cpp" &&
    readelf -d build-full/cmake/outside | grep 'NEEDED.*libflatshard.so'
}
