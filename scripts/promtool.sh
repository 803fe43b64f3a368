#!/bin/sh
# Puts Prometheus's own checker of metrics into a folder: promtool.sh FOLDER
# Debian has it in the package of the whole server (96 MB), which is not installed: it would start one, and bring what its pages
# need. One program of it is unpacked.
set -eu
folder=$1
[ -x "$folder/promtool" ] && exit 0
if command -v promtool >/dev/null; then
    mkdir -p "$folder"
    ln -sf "$(command -v promtool)" "$folder/promtool"
    exit 0
fi
package=$(awk '$1 == "promtool" { print $2 }' "$(dirname "$0")/packages.txt")
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "promtool: no apt-get here; put promtool into $folder" >&2
    exit 1
fi
echo "promtool: fetching $package (one program of it into $folder, nothing is installed)"
rm -rf "$folder"
mkdir -p "$folder/deb"
(cd "$folder/deb" && apt-get -qq -o APT::Sandbox::User="$(id -un)" download "$package")
dpkg-deb --fsys-tarfile "$folder"/deb/*.deb | tar -xO ./usr/bin/promtool >"$folder/deb/promtool"
chmod +x "$folder/deb/promtool"
mv "$folder/deb/promtool" "$folder/promtool"
rm -rf "$folder/deb"
