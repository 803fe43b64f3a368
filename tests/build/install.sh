#!/bin/bash
# 'make install' into an empty folder, a program built against what is there, and 'make uninstall'.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
[ -z "$SAN" ] || { ok 'install is tested without sanitizers'; finish; exit; }
root=$scratch/root
check 'make install' make -s DEPS=0 BUILD="$BUILD" CC="$CC" DESTDIR="$root" PREFIX=/opt/wo install
same 'what is installed' "bin/wideout
include/wideout.h
lib/libwideout.a
lib/libwideout.so
lib/libwideout.so.$("$WIDEOUT" version | awk 'NR==1{sub(/[.][0-9]+$/, "", $2); print $2}')
lib/libwideout.so.$("$WIDEOUT" version | awk 'NR==1{print $2}')
lib/pkgconfig/wideout.pc" "$(cd "$root/opt/wo" && find bin include lib ! -type d | LC_ALL=C sort)"
check 'man pages are installed' test -f "$root/opt/wo/share/man/man1/wideout.1" -a -f "$root/opt/wo/share/man/man3/wideout.3"
check 'the bash completion is a script' bash -n "$root/opt/wo/share/bash-completion/completions/wideout"
check 'the zsh completion is there' grep -q '#compdef wideout' "$root/opt/wo/share/zsh/site-functions/_wideout"

cat >"$scratch/user.c" <<'C'
#include <stdio.h>
#include <wideout.h>
int main(void)
{
    wo_cpu_info info = {.struct_size = sizeof info};
    wo_error err;
    if (wo_cpu_query(&info, &err)) return 1;
    return printf("%s\n", wo_version()) < 0;
}
C
export PKG_CONFIG_PATH=$root/opt/wo/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
# shellcheck disable=SC2046,SC2086 # lists of words
check 'a program links the shared library' $CC "$scratch/user.c" -o "$scratch/shared" \
    $(pkg-config --cflags --libs wideout) "-Wl,-rpath,$root/opt/wo/lib"
same 'and runs' "$("$WIDEOUT" version --json | jq -r .version)" "$("$scratch/shared")"
# shellcheck disable=SC2046,SC2086
check 'a program links the static library' $CC "$scratch/user.c" -o "$scratch/static" -I"$root/opt/wo/include" \
    "$root/opt/wo/lib/libwideout.a" $(pkg-config --static --libs wideout | sed 's/-lwideout//')
check 'and runs too' "$scratch/static"

# The program of wideout.3, as a reader would copy it.
sed -n '/^#include <stdio.h>/,/^[.]EE/p' docs/man/wideout.3 | sed 's/\\-/-/g; s/\\e/\\/g; /^[.]EE/d' >"$scratch/five.c"
# shellcheck disable=SC2046,SC2086
check "the manual's program compiles" $CC -std=c11 -Wall -Wextra -Werror "$scratch/five.c" -o "$scratch/five" \
    $(pkg-config --cflags --libs wideout) "-Wl,-rpath,$root/opt/wo/lib"
layer=tests/golden/layer.safetensors log=tests/golden/log.safetensors
same 'and answers as the tool does' "$("$WIDEOUT" build -q --method evidence --layer $layer --log $log -o "$scratch/tool.index" >"$scratch/built" &&
    "$WIDEOUT" predict --index "$scratch/tool.index" $log | head -1 | tr '\t' '\n' | paste -d ' ' - -)" \
    "$("$scratch/five" $layer $log $log "$scratch/five.index")"

check 'make uninstall' make -s DEPS=0 BUILD="$BUILD" DESTDIR="$root" PREFIX=/opt/wo uninstall
same 'leaves no file' '' "$(find "$root" ! -type d)"
finish
