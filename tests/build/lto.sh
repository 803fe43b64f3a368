#!/bin/bash
# make LTO=1: the library and the tool in a folder of their own, what they answer, and a program without LTO on the archive.
# With -O1, because it is about the links: 35 s of processor time, with -O2 -g it were 60.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck disable=SC2086 # CC may be several words
if ! $CC --version | grep -q 'Free Software Foundation'; then
    ok "LTO=1 is gcc's, and CC is $CC # skip"
    finish
    exit
fi
made=$scratch/lto
check 'make LTO=1' env -u MAKEFLAGS -u MFLAGS make -s -j2 DEPS=0 LTO=1 CC="$CC" CFLAGS=-O1 BUILD="$made" "$made/libwideout.so" "$made/wideout"
check 'objects can be optimised across files' grep -q gnu.lto <(readelf -S "$made/obj/src/search/search.o")
check 'the shared library is whole' diff src/exports.txt <(nm -D --defined-only "$made/libwideout.so" | awk '{ print $3 }' | LC_ALL=C sort)

# Bit by bit what the build without answers, also where no instruction set may leak into the reference kernels.
answers() { # TOOL INDEX
    "$1" predict -q -t 1 --index "tests/golden/$2.safetensors" tests/golden/log.safetensors
}
for index in index-evidence-tree index-evidence-hash index-int8 index-prior index-screen index-full; do
    same "$index answers the same" "$(answers "$WIDEOUT" $index)" "$(answers "$made/wideout" $index)"
done
export WIDEOUT_CPU=ref
same 'with the reference kernels too' "$(answers "$WIDEOUT" index-evidence-tree)" "$(answers "$made/wideout" index-evidence-tree)"
unset WIDEOUT_CPU
check 'there are answers' test -n "$(answers "$made/wideout" index-full)"

# Fat objects: who links the archive need not know of LTO.
# shellcheck disable=SC2046,SC2086 # lists of words
check 'a program without LTO links the archive' $CC -std=c11 -fno-lto -Iinclude -o "$scratch/search" examples/search.c \
    "$made/libwideout.a" $(${PKG_CONFIG:-pkg-config} --libs jansson) -lm -pthread
check 'and runs' "$scratch/search"
finish
