#!/bin/bash
# What an attacker did: an index written over or cut short while it is in use, files whose claims are out of proportion to
# their bytes, signed anew so that no checksum helps.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
case $BUILD in /*) sign=$BUILD/tests/tools/sign ;; *) sign=$PWD/$BUILD/tests/tools/sign ;; esac
golden=$PWD/tests/golden
cd "$scratch" || exit 1

"$WIDEOUT" data synthetic -q --as text -m 400 -n 2000 -o x >/dev/null
"$WIDEOUT" train xc --train x/train.txt -o x.net -q -t 1 -d 32 --lr 0.02 -e 2 >/dev/null
"$WIDEOUT" embed x.net --data x/train.txt -o x.log >/dev/null
"$WIDEOUT" build -q --layer x.net --log x.log -K 4 -L 2 --iterations 10 -o x.idx >/dev/null
tail -n 1 x/test.txt >row

# ---- In use ------------------------------------------------------------------------------------------------------
serve() { # NAME: an index that is open, and has answered
    local line=
    cp x.idx served.idx
    coproc talk { "$WIDEOUT" predict --index served.idx --net x.net -k 3 2>err; }
    # shellcheck disable=SC2154 # bash sets it
    run=$talk_PID
    cat row >&"${talk[1]}"
    read -r -t 20 line <&"${talk[0]}"
    check "$1: it answers" test -n "$line"
}
ends() { # one more row, and the end; the exit code is in $code
    local to=${talk[1]}
    cat row >&"$to"
    exec {to}>&-
    wait "$run"
    code=$?
}
serve 'cut short'
truncate -s 4096 served.idx
ends
same 'cut short: a sentence, not a signal' \
    "1 wideout: $scratch/served.idx: a part of the file is gone: it was shortened, or cannot be read, while it was in use" \
    "$code $(cat err)"
serve 'written over'
bytes=$(stat -c %s served.idx)
head -c "$bytes" /dev/zero | tr '\0' '\177' | dd of=served.idx conv=notrunc status=none
ends
same 'written over: whatever it answers, it ends well' yes "$([ "$code" -le 1 ] && echo yes || echo "no, $code: $(cat err)")"
serve 'another in its place'
"$WIDEOUT" build -q --layer x.net --log x.log -K 6 -L 3 --learner none --seed 5 -o other.idx >/dev/null
cat other.idx >served.idx # as cp does: cut to nothing, then written
ends
same 'another in its place: it ends well' yes "$([ "$code" -le 1 ] && echo yes || echo "no, $code: $(cat err)")"

# ---- Out of proportion -------------------------------------------------------------------------------------------
u64() {
    local value=$1 i
    for i in 0 1 2 3 4 5 6 7; do printf '%b' "\\x$(printf %02x $(((value >> (8 * i)) & 255)))"; done
}
dense() { # NAME TEXT: a header of 99 MB of that text
    { u64 99000000; { printf '{"a":['; yes "$1" | tr -d '\n'; } | head -c 98999990; printf '0]       }'; } >dense 2>/dev/null
}
peak() { # of the command: KiB of memory, at most; its output is left in out
    "$WIDEOUT" "$@" >out 2>&1 &
    local most=0 now pid=$!
    while now=$(awk '/VmHWM/ {print $2}' "/proc/$pid/status" 2>/dev/null) && [ -n "$now" ]; do most=$now; done
    wait "$pid"
    echo "$most"
}
for text in '[],' '{},' '0,' '[[[['; do
    dense "$text"
    most=$(peak info dense)
    same "a header of '$text': refused before it is parsed" \
        'wideout: dense: header: its 99000000 bytes hold more lists, objects and numbers than a model'\''s would' "$(cat out)"
    [ -n "$SAN" ] || check "a header of '$text': in little memory" test "$most" -lt 400000
done
rm dense

# A header of a few bytes that asks for terabytes. With less than there are, a tool that tried would fail with another
# sentence, and take no machine down.
printf '1 2147483647 2147483647\n0 0:1\n' >terabytes
out=$([ -n "$SAN" ] || ulimit -v 4000000; "$WIDEOUT" train xc --train terabytes -o y.net -q -d 64 2>&1)
check 'a network that no memory holds is refused before it is begun' grep -qxE \
    'wideout: terabytes: training a network of 2147483647 features, 64 dimensions and 2147483647 labels takes 3326452169203 bytes of memory, and there are [0-9]+' \
    <<<"$out"

"$sign" --curve 60000 "$golden/index-tuned.safetensors" curve.idx
check 'a curve of 60,000 rows is no work' timeout 20 "$WIDEOUT" info curve.idx
same 'and all of them are there' 60001 "$("$WIDEOUT" info --curve curve.idx | wc -l)"

# ---- Checkpoints -------------------------------------------------------------------------------------------------
"$WIDEOUT" train xc --train x/train.txt -o y.net -q -t 1 -d 32 -e 200 >/dev/null 2>&1 &
run=$!
for ((i = 0; i < 400; i++)); do [ ! -e y.net.checkpoint ] || break; sleep 0.05; done
kill -KILL "$run"
wait "$run" 2>/dev/null
done=$(head -c 4000 y.net.checkpoint | grep -aoE '"epochs_done":"[0-9]+"')
resume() { # NAME WORDS: what the checkpoint says
    "$sign" y.net.checkpoint y.net.checkpoint "$done" "$2"
    fails "$1" 1 "wideout: y.net: its checkpoint: $3" \
        "$WIDEOUT" train xc --train x/train.txt -o y.net -q -t 1 -d 32 -e 200 --resume
    done=$2
}
if [ "${#done}" -eq 17 ]; then # one digit: epoch 1 to 9
    resume 'epochs that are a word' '"epochs_done":"a"' "has 'a' epochs done, expected a number"
    resume 'no epoch at all' '"epochs_done":"0"' 'has 0 epochs done, expected 1 to 200'
elif [ "${#done}" -eq 19 ]; then # three
    resume 'epochs that are a word' '"epochs_done":"abc"' "has 'abc' epochs done, expected a number"
    resume 'more epochs than were asked for' '"epochs_done":"999"' 'has 999 epochs done, expected 1 to 200'
else
    resume 'epochs that are a word' '"epochs_done":"ab"' "has 'ab' epochs done, expected a number"
fi

finish
