#!/bin/sh
# Unpacks the arm64 packages that the tests for Arm need (group arm-root of packages.txt) into a folder: arm-root.sh FOLDER
# They are not installed: libz's would take openssl, Kerberos and the kernel's headers of this machine to another version.
# apt's lists of arm64 live in the folder too, so that neither root nor 'dpkg --add-architecture' is needed.
set -eu
root=$1
packages=$(awk '$1 == "arm-root" { print $2 }' "$(dirname "$0")/packages.txt")
# shellcheck disable=SC2086 # a list of words
wanted=$(printf '%s ' $packages)
[ "$(cat "$root/unpacked" 2>/dev/null)" = "$wanted" ] && exit 0
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "arm-root: no apt-get here; unpack these for arm64 into $root: $wanted" >&2
    exit 1
fi
echo "arm-root: fetching arm64's $wanted(into $root, nothing is installed)"
rm -rf "$root"
mkdir -p "$root/apt/lists/partial" "$root/apt/archives/partial"
root=$(cd "$root" && pwd)
apt() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::Lists="$root/apt/lists" \
        -o Dir::State::Status=/dev/null -o Dir::Cache="$root/apt" -o APT::Sandbox::User="$(id -un)" "$@"
}
apt update
# shellcheck disable=SC2086
(cd "$root/apt" && apt download $packages)
for package in "$root"/apt/*.deb; do dpkg-deb -x "$package" "$root"; done
rm -rf "$root/apt"
echo "$wanted" >"$root/unpacked"
