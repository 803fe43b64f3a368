#!/bin/bash
# The n-th I/O call of a command fails, for some n (TORTURE=1: for every one): the command ends in one sentence and leaves the
# old output, or goes on and leaves the new one. So with kill -9 in the place of the call. Reads and writes that are interrupted, or do a part, change nothing.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
preload=$(realpath "$BUILD/tests/failing_io.so")
case ${SAN:-} in *address* | *thread*)
    ok 'calls that fail # skip: a sanitizer must be loaded first'
    finish
    exit
    ;;
esac
# shellcheck source=tests/torture.sh
. tests/torture.sh
here=$PWD

# Runs `line` with the n-th of the calls failing; prints what is wrong.
fault() { # NAME CALL N HOW: CALL may be empty, for any
    local code problem
    begin "$1"
    LD_PRELOAD=$preload IO_UNDER=$here/ IO_CALL=$2 IO_AT=$3 IO_HOW=$4 timeout 60 "$WIDEOUT" "${line[@]}" >stdout 2>stderr
    code=$?
    problem=
    case $code in
    0) problem=$(wrong "$1" new) ;;
    1)
        problem=$(wrong "$1")
        [ "$(wc -l <stderr)" = 1 ] && grep -q '^wideout: ' stderr || problem+=" it says: $(cat stderr)"
        case $4 in 4 | short) problem+=" it fails: $(cat stderr)" ;; esac
        ;;
    137) [ "$4" = kill ] && rm -f out/*.tmp.* && problem=$(wrong "$1") || problem="it was killed: $(cat stderr)" ;;
    *) problem="exit $code: $(cat stderr)" ;;
    esac
    [ -z "$problem" ] || echo "${2:-call} $3, $4: $problem"
}

counts() { # NAME CALL: how many there are
    begin "$1"
    : >calls
    LD_PRELOAD=$preload IO_UNDER=$here/ IO_CALL=$2 IO_LOG=$here/calls "$WIDEOUT" "${line[@]}" >/dev/null
    wc -l <calls
}

every() { # N MOST: numbers from 1 to N, at most MOST of them, evenly; all in the long form
    [ -z "${TORTURE:-}" ] || set -- "$1" "$1"
    awk -v n="$1" -v most="$2" 'BEGIN {step = n > most ? n / most : 1; for (at = step; at < n + 0.5; at += step) print int(at + 0.5)}' | uniq
}

for name in "${names[@]}"; do
    n=$(counts "$name" '')
    problems='' tried=0
    for at in $(every "$n" 8); do
        # No space is for calls that write; for others it is a failure like any.
        how=5
        [ $((at % 2)) = 0 ] || how=28
        # A file that cannot be deleted stays.
        if [ "$(sed -n "${at}s/ .*//p" calls)" = unlink ]; then continue; fi
        problems+=$(fault "$name" '' "$at" $how)
        tried=$((tried + 1))
    done
    same "$name: $tried of $n calls fail, one after the other" '' "$problems"
    problems='' tried=0
    for at in $(every "$n" 8); do
        problems+=$(fault "$name" '' "$at" kill)
        tried=$((tried + 1))
    done
    same "$name: kill -9 before $tried of them" '' "$problems"
    problems='' tried=0
    for call in read pread write pwrite; do
        n=$(counts "$name" $call)
        for how in 4 short; do # 4: EINTR
            for at in $(every "$n" 2); do
                problems+=$(fault "$name" $call "$at" $how)
                tried=$((tried + 1))
            done
        done
    done
    same "$name: $tried reads and writes are interrupted or short" '' "$problems"
done

# ---- Commands that only read -------------------------------------------------------------------------------------
"$WIDEOUT" build -q --layer in/xc.net --log in/xc.log -K 3 -L 2 --iterations 10 -o in/index >/dev/null
head -5 in/rows >in/few
declare -A reads=(
    [info]='info in/index'
    [info-text]='info in/x/valid.txt'
    [predict]='predict --index in/index in/xc.log'
    [predict-net]='predict --index in/index --net in/xc.net --format xc in/few'
    [eval]='eval --index in/index --log in/xc.log --no-timing -q'
    [generate]='generate --net in/lm.net --prompt w1 -n 5'
)
for name in info info-text predict predict-net eval generate; do
    read -ra line <<<"${reads[$name]}"
    : >calls
    LD_PRELOAD=$preload IO_UNDER=$here/ IO_LOG=$here/calls "$WIDEOUT" "${line[@]}" >expected 2>/dev/null
    n=$(wc -l <calls)
    problems='' tried=0
    for at in $(every "$n" 8); do
        for how in 5 short; do
            LD_PRELOAD=$preload IO_UNDER=$here/ IO_AT=$at IO_HOW=$how timeout 60 "$WIDEOUT" "${line[@]}" >stdout 2>stderr
            code=$?
            tried=$((tried + 1))
            [ $code = 0 ] && cmp -s <(sed 's/ in [0-9.]* s.*//' stdout) <(sed 's/ in [0-9.]* s.*//' expected) && continue
            # What was answered before stays: a beginning of all answers.
            [ $code = 1 ] && [ $how = 5 ] && [ "$(wc -l <stderr)" = 1 ] && grep -q '^wideout: ' stderr &&
                head -c "$(stat -c %s stdout)" expected | cmp -s - stdout && continue
            problems+="call $at, $how: exit $code: $(cat stderr) "
        done
    done
    same "$name: $tried calls fail or are short" '' "$problems"
done

# ---- Outputs without names ---------------------------------------------------------------------------------------
# A file system that has no files without names, and one that cannot give them any: EOPNOTSUPP, EPERM.
n=$(counts build-slide open)
unnamed=$(grep -n ' .*/out$' calls | head -1 | cut -d : -f 1)
same 'a file system without O_TMPFILE' '' "$(fault build-slide open "${unnamed:-0}" 95)$(wrong build-slide new)"
same 'a file that cannot be linked is copied' '' "$(fault build-slide linkat 1 1)$(wrong build-slide new)"
same 'a log, too' '' "$(fault embed-xc linkat 1 1)$(wrong embed-xc new)"

# ---- Recognising a file ------------------------------------------------------------------------------------------
for how in 4 short; do
    got=$(LD_PRELOAD=$preload IO_UNDER=$here/ IO_CALL=read IO_AT=1 IO_HOW=$how "$WIDEOUT" info in/x/valid.txt 2>&1)
    same "info: the first read, $how" "$("$WIDEOUT" info in/x/valid.txt)" "$got"
done
finish
