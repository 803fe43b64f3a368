#!/bin/bash
# The tree itself: include arrows, exported symbols, the public header in three languages, man pages, links in the docs.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

for example in "$BUILD"/examples/*; do
    [ -x "$example" ] && check "example $(basename "$example") runs" "$example"
done
[ -z "$SAN" ] || { finish; exit; } # the rest is texts

check 'includes follow the arrows' scripts/check-arrows.sh

# The check must be able to fail: a copy of the tree with one wrong include.
mkdir "$scratch/tree"
cp -r scripts src "$scratch/tree"
echo '#include "store/store.h"' >>"$scratch/tree/src/base/mem.c"
same 'a wrong include is found' 'src/base/mem.c: base must not include "store/store.h"' \
    "$("$scratch/tree/scripts/check-arrows.sh")"

# Files of src/ that call one another in a circle, by the symbols of their objects. A function that two files share lies
# below both.
circles() {
    nm -A -P "$@" | awk '
        { sub(/:$/, "", $1) }
        $3 == "U" { used[$1 " " $2] }
        $3 ~ /[A-TV-Z]/ { in_file[$2] = $1 }
        END {
            for (pair in used) {
                split(pair, of)
                if (of[2] in in_file && in_file[of[2]] != of[1]) print of[1], in_file[of[2]]
            }
        }' | LC_ALL=C tsort 2>&1 >/dev/null | sed -n 's|^tsort: .*/\(.*\.o\)$|\1|p'
}
objects=
for file in src/*/*.c; do # those of other processors have none
    object=$BUILD/obj/${file%.c}.o
    [ -f "$object" ] && objects="$objects $object"
done
# shellcheck disable=SC2086 # a list
same 'no files of src/ call one another in a circle' '' "$(circles $objects)"
# The check must be able to fail.
for names in 'a b' 'b c' 'c b'; do
    echo "void f_${names#* }(void); void f_${names% *}(void); void f_${names% *}(void) { f_${names#* }(); }" >"$scratch/${names% *}.c"
    ${CC:-cc} -c "$scratch/${names% *}.c" -o "$scratch/${names% *}.o"
done
same 'a circle is found' 'b.o c.o' "$(circles "$scratch"/[abc].o | LC_ALL=C sort | tr '\n' ' ' | sed 's/ $//')"

# The extension of Python, which knows wideout.h alone, has one too.
same 'there is one clock' 'src/base/clock.h python/core/call.c' \
    "$(grep -lE '(clock_gettime|gettimeofday|timespec_get) *\(' {src/*,text,net,serve,cli,mpi,bench,bench/peers,python/core}/*.[ch] |
        tr '\n' ' ' | sed 's/ $//')"
same 'and is read there alone' 2 "$(cat src/base/clock.h python/core/call.c | grep -c 'clock_gettime *(')"

same 'hits and agreement are counted by base/hits.h' '' \
    "$(grep -nE '(hits|common)[^=]*\+= ' {src/*,net,cli,mpi,bench,python/core}/*.[ch] |
        grep -vE '^src/base/hits.h:|woi_hits\(|\+= a\.common;')"

# Methods and the tuner put an index together by woi_index_begin(); what else makes one opens, updates or publishes it.
same 'an index is put together in one place' 'adapter_publish.c build.c open.c update.c' \
    "$(grep -lE 'wo_index \*made = .*woi_alloc|u\.to = woi_alloc' src/*/*.c | sed 's|.*/||' | LC_ALL=C sort | tr '\n' ' ' | sed 's/ $//')"

nm -D --defined-only "$BUILD/libwideout.so" | awk '{ print $3 }' | LC_ALL=C sort >"$scratch/exported"
check 'the shared library exports src/exports.txt, nothing else' diff src/exports.txt "$scratch/exported"
# Few dependencies are a promise: no BLAS, no OpenMP, no zlib.
same 'the shared library needs jansson and the C library alone' 'libc.so libjansson.so libm.so' \
    "$(readelf -d "$BUILD/libwideout.so" | sed -n 's/.*NEEDED.*\[\(lib[a-z]*\.so\).*/\1/p' | LC_ALL=C sort | tr '\n' ' ' | sed 's/ $//')"
# It prints nothing, ends no process and changes no setting of one; strerror and its kin may be of one thread alone.
same 'and asks it for nothing that a library should not' '' "$(nm -D --undefined-only "$BUILD/libwideout.so" | awk '{ sub(/@.*/, "", $2); print $2 }' |
    grep -xE '(__)?(v?f?printf|f?puts|f?putc|putchar|perror|stdout|stderr)(_chk)?|_?_?(exit|Exit|assert_fail)|abort|raise|kill|atexit|setenv|putenv|unsetenv|setlocale|signal|sigaction|setrlimit|sched_setaffinity|umask|chdir|srand|fesetround|strerror|strtok|rand')"
# A thread that sleeps in it must find its code when it wakes.
check 'dlclose leaves the shared library in memory' grep -q NODELETE <(readelf -d "$BUILD/libwideout.so")

for language in c11 c17 c++17; do
    case $language in
    c++*) compiler=c++ kind=c++ ;;
    *) compiler=${CC:-cc} kind=c ;;
    esac
    echo '#include "wideout.h"' >"$scratch/header.c"
    # shellcheck disable=SC2086 # CC may be several words
    check "wideout.h as $language without warnings" $compiler -x $kind -std=$language -Wall -Wextra -Wpedantic -Wconversion \
        -Werror -Iinclude -c "$scratch/header.c" -o "$scratch/header.o"
done

# A struct that may grow lies inside no other, whose later fields would move, and in no array without a stride.
nested() { # HEADER
    awk '/^typedef struct [a-z_]+ [{]/ { inside = $3; next }
        /^[}]/ { inside = "" }
        inside && $1 == "size_t" && $2 == "struct_size;" { sized[inside] }
        inside { sub(/^ +(const )?(struct )?/, ""); kind = $0; sub(/ .*/, "", kind); if ($0 ~ /^[a-z_]+ [a-z]/) member[inside " has a " kind] = kind }
        END { for (what in member) if (member[what] in sized) print what }' "$1"
}
same 'no struct with a size lies inside another' '' "$(nested include/wideout.h)"
{
    cat include/wideout.h
    printf '%s\n' 'typedef struct wo_new {' '    size_t struct_size;' '    wo_progress progress;' '    const wo_open_options open;' \
        '    const wo_layer_options *layer;' '} wo_new;'
} >"$scratch/nested.h"
same 'one that does is found' 'wo_new has a wo_open_options' "$(nested "$scratch/nested.h")"

same 'the public header knows classes, not neurons' '' "$(grep -i neuron include/wideout.h)"
# The manual says so too, but for the word of an option of lss and a column of its trace: its paper says neuron.
same 'users read of classes, not of neurons' '' \
    "$(sed -E 's/max(_|\\-)neurons|judged_neurons//g' docs/man/* | grep -i neuron)"
# Nor do we, but in the paper's hash and loss, which lss keeps a step of.
same 'neurons are the paper'"'"'s alone' '' "$(grep -rliwE 'neurons?' src net text cli serve mpi |
    grep -vE '^src/(route/(hash|iul)|fill/by_hash|build/[a-z_]*lss[a-z_]*)\.[ch]$|^cli/index_text\.c$')"

# Every option that --help prints is in the command's man page.
"$WIDEOUT" --help | sed -n 's/^  \([a-z0-9 ]*[a-z0-9]\)   *.*/\1/p' >"$scratch/commands"
while read -r command; do
    page=docs/man/wideout-${command// /-}.1
    missing=
    # shellcheck disable=SC2086 # the command may be two words
    for option in $("$WIDEOUT" $command --help | grep -oE '^ +(-[a-zA-Z], )? *--[a-z0-9-]+' | grep -oE '[-]-[a-z0-9-]+'); do
        sed 's/\\-/-/g' "$page" 2>/dev/null | grep -qe "$option" || missing="$missing $option"
    done
    same "the man page of '$command' has every option" '' "$missing"
    check "the overview page names '$command'" grep -q "wideout.${command// /.}" docs/man/wideout.1
done <"$scratch/commands"
for page in docs/man/*; do
    same "$page renders" '' "$(man --warnings -l "$page" 2>&1 >/dev/null | head -3)"
done

# Files that the documents point to exist.
for document in README.md CONTRIBUTING.md docs/*.md; do
    broken=
    # shellcheck disable=SC2013 # links have no spaces
    for link in $(grep -oE '\]\([^)#]+' "$document" | cut -c3- | grep -v '^https\?:'); do
        [ -e "$(dirname "$document")/$link" ] || broken="$broken $link"
    done
    same "links in $document" '' "$broken"
done

finish
