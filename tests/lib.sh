# Shared by the test scripts: TAP output, a scratch folder, the tool as $WIDEOUT. Source it from the project's root or not:
# it goes there.
# shellcheck shell=bash
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
export LC_ALL=C.UTF-8
BUILD=${BUILD:-build} CC=${CC:-cc}
case $BUILD in /*) : "${WIDEOUT:=$BUILD/wideout}" ;; *) : "${WIDEOUT:=$PWD/$BUILD/wideout}" ;; esac
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
n_tests=0 n_failed=0

ok() { # NAME
    n_tests=$((n_tests + 1))
    echo "ok $n_tests - $1"
}

not_ok() { # NAME [DETAIL...]
    n_tests=$((n_tests + 1)) n_failed=$((n_failed + 1))
    echo "not ok $n_tests - $1"
    shift
    [ $# -eq 0 ] || printf '%s\n' "$*" | sed 's/^/    /'
}

check() { # NAME COMMAND...: the command must succeed
    local name=$1 out
    shift
    if out=$("$@" 2>&1); then ok "$name"; else not_ok "$name" "$out"; fi
}

same() { # NAME EXPECTED GOT
    if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "expected: $2"$'\n'"got:      $3"; fi
}

# fails NAME CODE SENTENCE COMMAND...: exit code, nothing on stdout, and exactly this one line on stderr. Columns of JSON
# errors are left out: versions of jansson count them differently. So is what mpirun's libevent says of a rank's pipe that was closed already.
fails() {
    local name=$1 code=$2 sentence=$3 out err status
    shift 3
    out=$("$@" 2>"$scratch/.stderr")
    status=$?
    err=$(sed 's/, column [0-9]*:/:/; /^\[warn\] Epoll /d' "$scratch/.stderr")
    if [ "$status" -eq "$code" ] && [ -z "$out" ] && [ "$err" = "$sentence" ]; then
        ok "$name"
    else
        not_ok "$name" "expected: exit $code, $sentence"$'\n'"got:      exit $status, $out$err"
    fi
}

finish() {
    echo "1..$n_tests"
    [ "$n_failed" -eq 0 ]
}
