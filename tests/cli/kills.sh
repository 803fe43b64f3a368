#!/bin/bash
# kill -9 at random moments: the old output or the new one, never a third. SEED=N repeats the moments; KILLS=N for each command
# (default 4; in the long form, TORTURE=1, 100).
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
SCALE=20
# shellcheck source=tests/torture.sh
. tests/torture.sh
kills=${KILLS:-${TORTURE:+100}}
kills=${kills:-4}
SEED=${SEED:-$((RANDOM * 32768 + RANDOM))}
RANDOM=$SEED
echo "# SEED=$SEED"

# Runs "$@" and kills it after a part of the microseconds that it takes; prints what became of it.
killed() { # MICROSECONDS COMMAND...
    local pid
    "${@:2}" >stdout 2>stderr &
    pid=$!
    sleep "$(printf '%d.%06d' $(($1 / 1000000)) $(($1 % 1000000)))"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    echo $?
}

for name in "${names[@]}"; do
    begin "$name"
    start=${EPOCHREALTIME/./}
    "$WIDEOUT" "${line[@]}" >/dev/null
    takes=$((${EPOCHREALTIME/./} - start))
    first=$(find new/"$name" -type f -printf '%f\n' | sort | head -1)
    problems='' died=0 replaced=0
    for ((i = 0; i < kills; i++)); do
        begin "$name"
        code=$(killed $(((RANDOM * 32768 + RANDOM) % (takes + takes / 10 + 1))) "$WIDEOUT" "${line[@]}")
        [ "$code" != 137 ] || died=$((died + 1))
        rm -f out/*.tmp.* # what was on its way between its two names
        problems+=$(wrong "$name")
        ! cmp -s out/"$first" new/"$name/$first" || replaced=$((replaced + 1))
        case $code in 0 | 137) ;; *) problems+=" exit $code: $(cat stderr)" ;; esac
        # A run that was killed is resumed, or begun anew, to the very same network.
        case $name in train-*)
            [ ! -e out/net.checkpoint ] || line+=(--resume)
            "$WIDEOUT" "${line[@]}" >/dev/null 2>stderr || problems+=" $(cat stderr)"
            problems+=$(wrong "$name" new)
            ;;
        esac
    done
    same "$name: $kills kills, $died in time, $replaced outputs new" '' "$problems"
done
finish
