#!/bin/sh
# Installs the missing packages of the named groups (see packages.txt): deps.sh GROUP...
# Says first what it will install; uses sudo only where needed; runs 'apt-get update' only where the lists are missing.
set -eu
list=$(dirname "$0")/packages.txt

# A program of that name will do too: node and npm, say, come from others as one package, which Debian's npm conflicts with.
have() {
    command -v "$1" >/dev/null || dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null | grep -q '^ii'
}

wanted=$(for group in "$@"; do awk -v group="$group" '$1 == group { print $2 }' "$list"; done | sort -u)
if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    echo "deps: no apt-get here; install what your system calls: $(echo "$wanted" | tr '\n?' '  ')"
    exit 0
fi

missing=
for package in $wanted; do
    name=${package#\?}
    have "$name" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "deps: run as root: apt-get install$(echo "$missing" | tr -d '?')" >&2
        exit 1
    fi
    as_root=sudo
fi

if ! ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1; then
    echo "deps: fetching the package lists (${as_root:+$as_root }apt-get update)"
    $as_root apt-get update -qq
fi

install=
for package in $missing; do
    name=${package#\?}
    if [ "$name" != "$package" ] && ! apt-cache show "$name" >/dev/null 2>&1; then continue; fi
    install="$install $name"
done
[ -n "$install" ] || exit 0

echo "deps: installing$install (${as_root:+$as_root }apt-get; DEPS=0 skips this)"
# shellcheck disable=SC2086 # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends $install >/dev/null
