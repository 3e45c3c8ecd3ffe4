#!/usr/bin/env bash
# The Debian packages of a folder, installed in a fresh Debian, in which the README's program then compiles and runs.
#
#   bash tests/packages/try_debian_package.sh FOLDER     as root; exit status 77: not possible here, with the reason
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
packages=$(cd "$1" && pwd)

compgen -G "$packages/*flatshard*.deb" >/dev/null || { echo "no packages in $packages"; exit 1; }

skip() {
  echo "skipped: $*"
  exit 77
}
[ "$(id -u)" -eq 0 ] || skip "a chroot needs root"
command -v debootstrap >/dev/null || skip "no debootstrap (apt-get install debootstrap)"
# shellcheck disable=SC1091
. /etc/os-release
[ "${ID:-}" = debian ] || skip "this system is ${ID:-unknown}: its packages are not Debian's"
mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' | awk -v release="$VERSION_CODENAME" '$2 == release {print $1; exit}')
[ -n "$mirror" ] || skip "apt knows no mirror of $VERSION_CODENAME"

system=$(mktemp -d)
trap 'rm -rf "$system"' EXIT
chmod 755 "$system" # apt leaves root for its downloads
limit=1200
timeout $limit debootstrap --variant=minbase --include=ca-certificates "$VERSION_CODENAME" "$system" "$mirror" >"$packages/debootstrap.log" 2>&1 || {
  status=$?
  tail -n 20 "$packages/debootstrap.log"
  [ $status -ne 124 ] || skip "debootstrap did not make a system within $limit s"
  skip "debootstrap could not make a system"
}
cp /etc/resolv.conf "$system/etc/resolv.conf"
mkdir "$system/packages" "$system/program"
cp "$packages"/*flatshard*.deb "$system/packages"
cp "$root"/examples/{hello.cpp,linear.hpp} "$system/program"

inside() { timeout 900 chroot "$system" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@" </dev/null; }
inside apt-get update -q
inside sh -c 'apt-get install -y -q --no-install-recommends g++ pkg-config /packages/*.deb'
inside flatshard --version
inside sh -c 'cd /program && g++ -std=c++20 -O2 hello.cpp -o shared $(pkg-config --cflags --libs flatshard) && ./shared'
inside sh -c 'cd /program && g++ -std=c++20 -O2 hello.cpp -o static $(pkg-config --cflags flatshard) -Wl,-Bstatic -lflatshard -Wl,-Bdynamic -lfmt -luring -pthread && ./static' >"$system/static.txt"
inside sh -c 'ldd /program/shared' | grep libflatshard.so.0.1
if inside ldd /program/static | grep libflatshard; then exit 1; fi
diff "$system/static.txt" <(inside /program/shared)
