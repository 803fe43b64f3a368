#!/bin/bash
# Runs every test that was built in $BUILD, and the scripts beside it: run.sh [KIND...], of unit, kernels, build, cli and
# python.
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
passed=0 failed=0
[ $# -gt 0 ] || set -- unit kernels build cli python

run() { # NAME COMMAND...: one program or script that prints TAP
    local name=$1 start=$SECONDS out status ok bad
    shift
    out=$("$@" 2>&1)
    status=$?
    ok=$(grep -cE '^ok ' <<<"$out")
    bad=$(grep -E '^not ok ' <<<"$out" | grep -vc '# SKIP') # cmocka says so of what is skipped
    # A program that died, or that ran no test, has failed whatever it printed before.
    if [ "$bad" -eq 0 ] && { [ "$status" -ne 0 ] || [ "$ok" -eq 0 ]; }; then bad=1; fi
    passed=$((passed + ok))
    failed=$((failed + bad))
    printf '%-28s %4d ok' "$name" "$ok"
    [ "$bad" -eq 0 ] || printf ', %d FAILED' "$bad"
    [ $((SECONDS - start)) -lt 5 ] || printf '  (%d s)' $((SECONDS - start))
    printf '\n'
    [ "$bad" -eq 0 ] || grep -vE '^ok |^1\.\.|^TAP ' <<<"$out" | sed 's/^/    /' | head -60
}

for cpu in ${CPUS:-here}; do
    [ "$cpu" = here ] || { echo "on $cpu" && export QEMU_CPU=$cpu; }
    for kind in "$@"; do
        for test in "$BUILD/tests/$kind"/test_*; do
            if [ ! -x "$test" ] || [ ! -f "$test" ]; then continue; fi
            name=${test#"$BUILD"/tests/}
            case " ${LEAVE_OUT:-} " in *" $name "*) echo "$name is left out" && continue ;; esac
            # shellcheck disable=SC2086 # RUN is several words
            run "$name" ${RUN:-} "$test"
        done
        for script in "tests/$kind"/*.sh; do
            [ -f "$script" ] && run "${script#tests/}" "$script"
        done
    done
done

echo "$passed $failed" >"$BUILD/test-counts"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
