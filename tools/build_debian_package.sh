#!/usr/bin/env bash
# Builds the Debian packages libflatshard0.1, libflatshard-dev and flatshard from what is committed.
#
#   bash tools/build_debian_package.sh [FOLDER]     FOLDER: where the packages go, default build-debian
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "${1:-$root/build-debian}"
folder=$(cd "${1:-$root/build-debian}" && pwd)

if ! command -v dpkg-buildpackage >/dev/null || ! command -v dh >/dev/null; then
  echo "build_debian_package: needs dpkg-buildpackage and dh; install them: apt-get install dpkg-dev debhelper" >&2
  exit 1
fi

version=$(sed -n "s/^  version: '\(.*\)',$/\1/p" "$root/meson.build" | head -n 1)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
source="$place/flatshard-$version"
mkdir "$source"
git -C "$root" archive HEAD | tar -x -C "$source"
cp -r "$source/tools/packages/debian" "$source/debian"
cat >"$source/debian/changelog" <<EOF
flatshard ($version) unstable; urgency=medium

  * See CHANGELOG.md.

 -- The flatshard authors <flatshard@localhost>  $(git -C "$root" log -1 --format=%aD)
EOF

(cd "$source" && DEB_BUILD_OPTIONS="noautodbgsym ${DEB_BUILD_OPTIONS:-}" dpkg-buildpackage --build=binary --no-sign)
rm -f "$folder"/*flatshard*.deb
cp "$place"/*.deb "$folder"
ls -l "$folder"/*.deb
