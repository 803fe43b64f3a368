#!/bin/bash
# The Makefile's variables: folders, ar, the soname; and what a plain 'make' does not do.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
version=$("$WIDEOUT" version --json | jq -r .version)

# Every folder of its own, one of them outside PREFIX.
root=$scratch/root
folders=(PREFIX=/opt/wo BINDIR=/opt/wo/tools LIBDIR=/opt/wo/lib/some-triplet INCLUDEDIR=/srv/include MANDIR=/opt/wo/man)
check 'make install into folders of their own' make -s DEPS=0 BUILD="$BUILD" CC="$CC" DESTDIR="$root" "${folders[@]}" install
same 'the files are there' "opt/wo/lib/some-triplet/libwideout.a
opt/wo/lib/some-triplet/libwideout.so
opt/wo/lib/some-triplet/libwideout.so.${version%.*}
opt/wo/lib/some-triplet/libwideout.so.$version
opt/wo/lib/some-triplet/pkgconfig/wideout.pc
opt/wo/man/man1/wideout.1
opt/wo/man/man3/wideout.3
opt/wo/tools/wideout
srv/include/wideout.h" "$(cd "$root" && find . ! -type d | cut -c3- | grep -Ev 'share/|man1/wideout-|tools/wideout-mpi' | LC_ALL=C sort)"
# shellcheck disable=SC2016 # pkg-config's own variables
same 'wideout.pc follows' 'prefix=/opt/wo
libdir=${prefix}/lib/some-triplet
includedir=/srv/include' "$(head -3 "$root/opt/wo/lib/some-triplet/pkgconfig/wideout.pc")"
check 'make uninstall' make -s DEPS=0 BUILD="$BUILD" DESTDIR="$root" "${folders[@]}" uninstall
same 'leaves no file' '' "$(find "$root" ! -type d)"

same 'before 1.0 the soname has the minor version' "libwideout.so.${version%.*}" \
    "$(objdump -p "$BUILD/libwideout.so" | awk '$1 == "SONAME" { print $2 }')"

# AR and RANLIB: the archive of objects that are here already is made by programs that leave a note.
for tool in ar ranlib; do
    printf '#!/bin/sh\necho %s >>"%s/used"\nexec %s "$@"\n' $tool "$scratch" $tool >"$scratch/my-$tool"
    chmod +x "$scratch/my-$tool"
done
mkdir "$scratch/copy"
cp -a "$BUILD/obj" "$BUILD/.flags" "$scratch/copy"
check 'make with AR and RANLIB' make -s DEPS=0 BUILD="$scratch/copy" CC="$CC" AR="$scratch/my-ar" RANLIB="$scratch/my-ranlib" \
    "$scratch/copy/libwideout.a"
same 'both made the archive' 'ar ranlib' "$(tr '\n' ' ' <"$scratch/used" | sed 's/ $//')"
same 'which is the same as by default' "$(ar t "$BUILD/libwideout.a" | sort)" "$(ar t "$scratch/copy/libwideout.a" | sort)"

# The C++ compiler is asked for the peers by what links them, and by nothing else.
printf '#!/bin/sh\ntouch "%s/asked"\n' "$scratch" >"$scratch/my-c++"
chmod +x "$scratch/my-c++"
make -n DEPS=0 BUILD="$scratch/none" CXX="$scratch/my-c++" all >"$scratch/plan"
check 'make compiles the library' grep -q 'src/base/error.c' "$scratch/plan"
check 'and does not ask the C++ compiler' test ! -e "$scratch/asked"
make -n DEPS=0 BUILD="$scratch/none" CXX="$scratch/my-c++" "$scratch/none/wideout-bench" >/dev/null
check 'which the benchmark does' test -e "$scratch/asked"

# Kernels of another kind of processor are not compiled.
case $($CC -dumpmachine) in x86_64*) own=avx other=neon ;; *) own=neon other=avx ;; esac
check "kernels of this processor are compiled" grep -q "src/kernels/$own" "$scratch/plan"
check "and those of others are not" test -z "$(grep "src/kernels/$other" "$scratch/plan")"

# Sentences with errno under both kinds of strerror_r.
cat >"$scratch/errno.c" <<'C'
#include "base/error.h"
#include <errno.h>
#include <stdio.h>
int main(void)
{
    wo_error err;
    woi_error_set_errno(&err, "file", ENOENT);
    return puts(err.text) < 0;
}
C
for kind in _GNU_SOURCE _XOPEN_SOURCE=700; do
    # shellcheck disable=SC2086 # CC may be several words
    check "error.c with -D$kind" $CC -std=c17 -D$kind -Wall -Wextra -Werror -Iinclude -Isrc -o "$scratch/errno" "$scratch/errno.c" \
        src/base/error.c src/base/utf8.c
    same 'and its sentence' 'file: No such file or directory' "$("$scratch/errno")"
done
finish
