#!/bin/bash
# Runs every test that was built in $BUILD, and the scripts beside it: run.sh [KIND...], of python, build, cli, serve, kernels
# and unit. As many run at once as there are processors ($AT_ONCE), those of $alone one after the other behind them; what is
# printed is in the order of the list, and at the end which took longest.
# Every test speaks TAP ("ok 1 - name", "not ok ..."); what fails is shown, what passes is counted. Ends with one line,
# "N passed, N failed", also left in $BUILD/test-counts. Programs built for another processor run under $RUN, which is
# qemu-user, once for each of the processors that $CPUS names; $LEAVE_OUT names tests that make no sense there.
set -u
cd "$(dirname "$0")/.." || exit 1
export BUILD=${BUILD:-build} SAN=${SAN:-} CC=${CC:-cc}
case $BUILD in /*) WIDEOUT=$BUILD/wideout ;; *) WIDEOUT=$PWD/$BUILD/wideout ;; esac
export WIDEOUT CMOCKA_MESSAGE_OUTPUT=TAP
# Sanitizers: any report is a failure with an exit code of its own, and memory that cannot be had returns NULL.
export ASAN_OPTIONS=allocator_may_return_null=1:exitcode=99 UBSAN_OPTIONS=print_stacktrace=1:exitcode=99
export TSAN_OPTIONS=exitcode=99:allocator_may_return_null=1
AT_ONCE=${AT_ONCE:-$(nproc 2>/dev/null || echo 1)}
# What measures time or looks for a moment to disturb another program, and what runs make in $BUILD.
alone='unit/test_ceilings unit/test_evaluate unit/test_team unit/test_tune unit/test_tune_time
    build/install.sh build/make.sh cli/signals.sh cli/tune.sh serve/shards.py'
LEAVE_OUT=${LEAVE_OUT:-}
# What reads texts, kills programs, installs, or puts programs together that others test one by one: a sanitizer sees nothing
# there that it does not see in the rest.
[ -z "$SAN" ] || LEAVE_OUT+=' build/demo.sh build/install.sh build/lto.sh build/make.sh build/names.sh build/parameters.sh
    build/sentences.sh cli/drift.sh cli/kills.sh'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export work
[ $# -gt 0 ] || set -- python build cli serve kernels unit # the longest first

one() { # N COMMAND...: leaves output, exit code and seconds in files, and says that it did
    local start=$SECONDS
    "${@:2}" >"$work/$1.out" 2>&1
    echo "$? $((SECONDS - start))" >"$work/$1.tmp"
    mv "$work/$1.tmp" "$work/$1.end" # whole, for who looks
    echo "$1"
}
export -f one

report() { # NAME OUTPUT "CODE SECONDS": counts one program or script that printed TAP
    local ok bad code seconds
    read -r code seconds <<<"$3"
    ok=$(grep -cE '^ok ' "$2")
    bad=$(grep -E '^not ok ' "$2" | grep -vc '# SKIP') # cmocka says so of what is skipped
    # A program that died, or that ran no test, has failed whatever it printed before.
    if [ "$bad" -eq 0 ] && { [ "$code" -ne 0 ] || [ "$ok" -eq 0 ]; }; then bad=1; fi
    passed=$((passed + ok)) failed=$((failed + bad))
    printf '%-28s %4d ok' "$1" "$ok"
    [ "$bad" -eq 0 ] || printf ', %d FAILED' "$bad"
    [ "$seconds" -lt 5 ] || printf '  (%d s)' "$seconds"
    echo "$seconds $1" >>"$work/seconds"
    printf '\n'
    [ "$bad" -eq 0 ] || grep -vE '^ok |^1\.\.|^TAP ' "$2" | sed 's/^/    /' | head -60
}

list() { # KIND...: a line "NAME COMMAND..." for each test
    local kind test name
    for kind in "$@"; do
        for test in "$BUILD/tests/$kind"/test_*; do
            if [ -x "$test" ] && [ -f "$test" ]; then echo "${test#"$BUILD"/tests/} ${RUN:-} $test"; fi
        done
        for test in "tests/$kind"/*.sh; do
            [ ! -f "$test" ] || echo "${test#tests/} $test"
        done
        # The server's, where there is one; who waits for ever is stopped.
        if [ "$kind" = serve ] && [ -x /usr/bin/python3 ] && ! "$WIDEOUT" serve none 2>&1 | grep -q 'without a server'; then
            for test in tests/serve/*.py; do
                [ "$test" = tests/serve/lib.py ] || echo "${test#tests/} timeout 300 /usr/bin/python3 -B $test"
            done
        fi
    done | while read -r name test; do
        case " ${LEAVE_OUT//[[:space:]]/ } " in
        *" $name "*) echo "$name is left out" >&2 ;;
        *) echo "$name $test" ;;
        esac
    done
}

is_alone() { # NAME
    # shellcheck disable=SC2086 # a list of words
    printf '%s\n' $alone | grep -qxF "$1"
}

# Lines of the list with their numbers: what runs side by side before what runs alone. xargs starts them, because a shell's
# own background jobs ignore Ctrl-C, and so would all that they test.
run_all() { # KIND...: adds to $work/counts
    local line beside=() last=() i
    while read -r line; do
        if is_alone "${line%% *}"; then last+=("$line"); else beside+=("$line"); fi
    done < <(list "$@")
    names=("${beside[@]}" "${last[@]}")
    start() { # FROM TO AT_ONCE
        for ((i = $1; i < $2; i++)); do echo "$i ${names[i]#* }"; done | xargs -r -P "$3" -L 1 bash -c 'one "$@"' one
    }
    { start 0 ${#beside[@]} "$AT_ONCE" && start ${#beside[@]} ${#names[@]} 1; } | {
        passed=0 failed=0 next=0
        while read -r i; do
            while [ -e "$work/$next.end" ]; do
                report "${names[next]%% *}" "$work/$next.out" "$(cat "$work/$next.end")"
                rm "$work/$next.out" "$work/$next.end"
                next=$((next + 1))
            done
        done
        # One that never ended: xargs itself was stopped.
        [ $next -eq ${#names[@]} ] || failed=$((failed + 1))
        echo "$passed $failed" >>"$work/counts"
    }
}

for cpu in ${CPUS:-here}; do
    [ "$cpu" = here ] || { echo "on $cpu" && export QEMU_CPU=$cpu; }
    run_all "$@"
done
read -r passed failed < <(awk '{p += $1; f += $2} END {print p + 0, f + 0}' "$work/counts")
echo "$passed $failed" >"$BUILD/test-counts"
echo "longest: $(sort -rn "$work/seconds" | head -8 | awk '{printf "%s%s %d s", sep, $2, $1; sep = ", "}')"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
