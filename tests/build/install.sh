#!/bin/bash
# 'make install' into an empty folder, a program built against what is there, and 'make uninstall'; then 'make install' as it
# is written, in a root of its own, with README's compile line behind it.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
root=$scratch/root
check 'make install' make -s DEPS=0 BUILD="$BUILD" CC="$CC" DESTDIR="$root" PREFIX=/opt/wo install
# wideout-mpi is there where an MPI is.
mpi=$([ ! -x "$BUILD/wideout-mpi" ] || printf '\nbin/wideout-mpi\nbin/wideout-mpirun')
same 'a stage is not for the dynamic linker yet' "install: staged in $root; run ldconfig where it is unpacked" \
    "$(DESTDIR=$root scripts/ldconfig.sh /opt/wo/lib libwideout.so.0)"
same 'what is installed' "bin/wideout$mpi
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
"$WIDEOUT" build -q --method evidence --layer $layer --log $log -o "$scratch/tool.index" >"$scratch/built"
answers() { # K: the tool's for the first query, one a line
    "$WIDEOUT" predict --index "$scratch/tool.index" -k "$1" $log | head -1 | tr '\t' '\n' | paste -d ' ' - -
}
same 'and answers as the tool does' "$(answers 5)" "$("$scratch/five" $layer $log $log "$scratch/five.index")"

# README's snippet, with the query that it has from elsewhere and a print of what it found.
mkdir "$scratch/app"
cp "$scratch/tool.index" "$scratch/app/index"
cp $log "$scratch/app/log"
{
    printf '%s\n' '#include <stdio.h>' '#include <wideout.h>' 'int main(void)' '{' '    wo_log *log = NULL;' \
        '    if (wo_log_open("log", &log, NULL)) return 2;' '    const float *query = wo_log_queries(log);'
    # shellcheck disable=SC2016 # the fence of a code block
    sed -n '/^```c$/,/^```$/p' README.md | sed '/^```/d; s/^/    /'
    printf '%s\n' '    for (int i = 0; i < 10 && ids[i] >= 0; i++) printf("%d %.6g\n", (int)ids[i], (double)scores[i]);' \
        '    wo_searcher_free(searcher);' '    wo_index_free(index);' '    wo_log_free(log);' '    return 0;' '}'
} >"$scratch/app/app.c"
check "README's snippet is there" grep -q wo_search "$scratch/app/app.c"
# shellcheck disable=SC2046,SC2086
check "README's snippet compiles" $CC -std=c11 -Wall -Wextra -Werror "$scratch/app/app.c" -o "$scratch/readme" \
    $(pkg-config --cflags --libs wideout) "-Wl,-rpath,$root/opt/wo/lib"
same 'and answers as the tool does' "$(answers 10)" "$(cd "$scratch/app" && "$scratch/readme")"

check 'make uninstall' make -s DEPS=0 BUILD="$BUILD" DESTDIR="$root" PREFIX=/opt/wo uninstall
same 'leaves no file' '' "$(find "$root" ! -type d)"
unset PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR

# ---- In a root of its own --------------------------------------------------------------------------------------------
# This machine's files with a layer above them that takes what is written, so that /usr/local can be installed into and
# ld.so.cache be replaced. Mounts and layer belong to a namespace of their own and vanish with it.
own=$scratch/own
mkdir "$own"
cat >"$scratch/enter" <<'SH'
set -e
own=$1
shift
mount -t tmpfs none "$own"
mkdir "$own/root" "$own/up" "$own/work"
mount -t overlay -o "lowerdir=/,upperdir=$own/up,workdir=$own/work" none "$own/root"
for folder in /proc /dev "$@"; do # what lies on a file system of its own is not in the layer below
    [ -z "$(ls -A "$own/root$folder" 2>/dev/null)" ] || continue
    mkdir -p "$own/root$folder"
    mount --rbind "$folder" "$own/root$folder"
done
chroot "$own/root" /bin/bash -s
SH
spaces=(--mount)
[ "$(id -u)" -eq 0 ] || spaces+=(--user --map-root-user)
in_root() { # runs the commands that come as standard input
    unshare "${spaces[@]}" bash "$scratch/enter" "$own" "$PWD" "$(realpath "$BUILD")" "$scratch" 2>&1
}
installed() { # what the machine itself has
    find /usr/local -name '*wideout*' -newer "$scratch/enter" 2>/dev/null
}
compile=$(sed -n 's/^    \(cc app\.c .*\)/\1/p' README.md)
check 'README has one compile line' test "$(wc -l <<<"$compile")" -eq 1 -a -n "$compile"
if [ "$(in_root <<<'touch /usr/local/lib/wideout-was-here && echo writes')" != writes ] || [ -n "$(installed)" ]; then
    ok 'README is not walked in a root of its own: namespaces and overlays cannot be made here # skip'
else
    in_root >"$scratch/walk" <<SH
rm -f /usr/local/lib/libwideout* /usr/local/lib/pkgconfig/wideout.pc /usr/local/include/wideout.h
ldconfig
cd '$PWD' && make -s DEPS=0 BUILD='$BUILD' CC='$CC' install 2>&1 | grep '^install:' # make itself may talk of jobs
cd '$scratch/app' && $compile && ./a.out
echo "away: \$('$PWD/scripts/ldconfig.sh' /srv/lib libwideout.so.0 | head -1)"
SH
    same 'make install tells the dynamic linker' "install: ldconfig was run, the dynamic linker knows /usr/local/lib/libwideout.so.$("$WIDEOUT" version |
        awk 'NR==1{sub(/[.][0-9]+$/, "", $2); print $2}')" "$(grep '^install:' "$scratch/walk")"
    same "and README's compile line gives a program that starts" "$(answers 10)" "$(grep -Ev '^(install|away):' "$scratch/walk")"
    same 'a folder where it does not look is said to be one' 'away: install: the dynamic linker does not look into /srv/lib:' \
        "$(grep -o '^away: .*/srv/lib:' "$scratch/walk")"
    same 'the machine itself has nothing new' '' "$(installed)"
fi
finish
