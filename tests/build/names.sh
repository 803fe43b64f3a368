#!/bin/bash
# What the documents name is there: files, functions, types. Documents fall behind silently; here they fail.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
code=(src text net serve cli mpi python include bench tests)
rooms='src|text|net|serve|cli|mpi|python|include|bench|tests|docs|scripts|examples'
grep -rhowE '[A-Za-z_][A-Za-z0-9_]*' "${code[@]}" --include='*.[ch]' --include='*.cpp' --include='*.def' | sort -u >"$scratch/words"
grep -rhoE '\b[A-Za-z_][A-Za-z0-9_]*[(]' "${code[@]}" --include='*.[ch]' --include='*.cpp' | sort -u >"$scratch/called"
find src text net serve cli mpi python include bench tests docs scripts -type f | sed 's|.*/||' | sort -u >"$scratch/files"

# paths DOCUMENT: those that begin with a folder of ours, and are not there. A * may stand for anything; NAME and what is
# in <> is the reader's; a result is there where a script writes it.
paths() {
    grep -oE "(^|[^A-Za-z0-9_./<-])($rooms)/[A-Za-z0-9_./*-]*[A-Za-z0-9_*/][^ ]?" "$1" | grep -v '[<]$' |
        grep -oE "($rooms)/[A-Za-z0-9_./*-]*[A-Za-z0-9_*/]" | grep -v NAME | sort -u |
        while read -r path; do
            # shellcheck disable=SC2086 # a pattern
            set -- $path
            [ -e "$1" ] || { [[ $path == bench/results/* ]] && grep -qF "$path" bench/*.sh bench/*.py; } || echo "$path"
        done
}

# files DOCUMENT: names of files in backticks without a folder, which none has
files() {
    # shellcheck disable=SC2016 # backticks of Markdown
    grep -oE '`[a-z0-9_]+[.](c|h|def|sh|cpp|py)`' "$1" | tr -d '`' | sort -u | comm -23 - "$scratch/files"
}

# words DOCUMENT: wo_ and woi_ names that are not in the code
words() {
    grep -owE '(wo|woi|WO|WOI)_[A-Za-z0-9_]*[A-Za-z0-9]' "$1" | sort -u | comm -23 - "$scratch/words"
}

# functions DOCUMENT: name() that nobody calls or defines
functions() {
    grep -oE '\b[A-Za-z_][A-Za-z0-9_]*[(][)]' "$1" | tr -d ')' | sort -u | comm -23 - "$scratch/called" | sed 's/$/)/'
}

# places DOCUMENT: lines that end with a file, and name a function that is not in it
places() {
    grep -E "[(][)].* ($rooms)/[a-z0-9_/]+[.]c\$" "$1" | while read -r line; do
        for name in $(grep -oE '\b[A-Za-z_][A-Za-z0-9_]*[(][)]' <<<"$line" | tr -d '()'); do
            grep -qE "\\b${name}[(]" "${line##* }" || echo "$name() ${line##* }"
        done
    done
}

# moved FILE...: what their comments name by its room, room/file.c anywhere and room/file at the head of a test, and is not there
moved() {
    local ours
    ours="$(cd src && printf '%s|' * | sed 's/exports.txt|//')text|net|serve|cli|mpi"
    grep -nHoE "\\b($ours)/[a-z0-9_*]+[.](c|h|def)\\b|^/\\* ($ours)/[a-z0-9_]+:" "$@" | sed 's|/[*] ||; s/:$//' |
        while IFS=: read -r file line path; do
            compgen -G "src/$path*" >/dev/null || compgen -G "$path*" >/dev/null || echo "$file:$line: $path"
        done
}

all() { # DOCUMENT
    paths "$1"
    files "$1"
    words "$1"
    functions "$1"
    places "$1"
}

same 'all that ARCHITECTURE names is there' '' "$(all docs/ARCHITECTURE.md)"
check 'ARCHITECTURE has at most 300 lines' test "$(wc -l <docs/ARCHITECTURE.md)" -le 300
for document in README.md CONTRIBUTING.md CHANGELOG.md docs/SERVING.md docs/SCALING.md docs/FORMAT.md docs/PYTHON.md docs/PERFORMANCE.md docs/BENCHMARKING.md docs/EXPERIMENTS.md; do
    same "files that $document names are there" '' "$(paths "$document")"
    same "names of the library in $document too" '' "$(words "$document")"
done

# shellcheck disable=SC2046 # names without spaces
same 'files that comments name are in their rooms' '' "$(moved $(find "${code[@]}" -name '*.[ch]' -o -name '*.def' -o -name '*.cpp'))"
{
    echo '/* index/rows: this was the head of a test. */'
    echo '/* See store/text.h, base/error.c and search/search*.c. */'
    echo '/* build/rows: this is one. */'
} >"$scratch/old.c"
same 'and what is not is found' 'old.c:1: index/rows
old.c:2: store/text.h' "$(moved "$scratch/old.c" | sed 's|.*/old|old|')"

# The checks can fail: one made-up thing of each kind.
{
    sed 's/$/ /' docs/ARCHITECTURE.md # a space: no line ends with a file
    cat <<'END'
A file `src/index/none.c`, a result bench/results/none.json, another in src/nowhere/, one that is `nowhere.c`; any of src/none*.c; src/index/<name>.c is yours.
A type `woi_none`, a constant WO_NONE_AT_ALL, a call of `calls_none()`.
    woi_exact_topk()      is elsewhere     src/build/build.c
END
} >"$scratch/wrong.md"
same 'what is made up is found' 'bench/results/none.json
src/index/none.c
src/none*.c
src/nowhere/
nowhere.c
WO_NONE_AT_ALL
woi_none
calls_none()
woi_exact_topk() src/build/build.c' "$(all "$scratch/wrong.md")"

# The overview of the library names all that it exports.
missing() { # PAGE
    sed 's/\\-/-/g' "$1" | grep -owE 'wo_[a-z0-9_]+' | sort -u | comm -23 src/exports.txt -
}
same 'wideout.3 names every function' '' "$(missing docs/man/wideout.3)"
same 'and no other' '' "$(words docs/man/wideout.3)"
grep -v wo_index_open_memory docs/man/wideout.3 >"$scratch/short.3"
same 'a function that it lacks is found' wo_index_open_memory "$(missing "$scratch/short.3")"
finish
