#!/bin/bash
# SIGINT and SIGTERM where no work asks whether it is to stop: while a file is saved, while input is awaited, at the very end.
# The process dies of the signal within seconds, the old output stays, and nothing else is there.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
preload=$(realpath "$BUILD/tests/failing_io.so")
cd "$scratch" || exit 1
export OMP_WAIT_POLICY=passive

# ---- Waiting -----------------------------------------------------------------------------------------------------
mkfifo pipe
"$WIDEOUT" data deb822 - -o waiting <pipe 2>waiting.err &
reader=$!
exec 9>pipe
printf 'Package: a\nDepends: b\n\n' >&9
sleep 0.5
kill -INT $reader
# The pipe stays open: nothing more comes, nor an end.
(sleep 20 && kill -9 $reader) >/dev/null 2>&1 &
guard=$!
wait $reader
same 'SIGINT while input is awaited' 130 $?
kill $guard 2>/dev/null
exec 9>&-
check 'nothing is written' test ! -e waiting

# ---- Saving ------------------------------------------------------------------------------------------------------
case ${SAN:-} in *address* | *thread*)
    ok 'saving # skip: a sanitizer must be loaded first'
    finish
    exit
    ;;
esac
"$WIDEOUT" data synthetic -q -m 50 -d 8 -n 100 -o s >/dev/null
"$WIDEOUT" data synthetic -q --as text -m 50 -n 100 -o x >/dev/null
"$WIDEOUT" train xc -q --train x/train.txt -d 4 -t 1 -e 1 -o x.net >/dev/null
declare -A commands=(
    [build-full]='build -q --layer s/layer.safetensors --method full -o build-full/result'
    [build-slide]='build -q --layer s/layer.safetensors --method slide -o build-slide/result'
    [embed]='embed -q x.net --data x/test.txt -o embed/result'
    [train]='train xc -q --train x/train.txt -d 4 -t 1 -e 1 -o train/result'
)
declare -A signals=([build-full]=INT [build-slide]=TERM [embed]=INT [train]=TERM)
begin() { # NAME HOW: until its first fsync, which takes its time
    local line
    read -ra line <<<"${commands[$1]}"
    mkdir -p "$1"
    rm -f "$1.calls"
    LD_PRELOAD=$preload IO_UNDER=$scratch/$1/ IO_CALL=fsync IO_AT=1 IO_HOW=$2 IO_LOG=$scratch/$1.calls \
        "$WIDEOUT" "${line[@]}" >"$1.stdout" 2>"$1.stderr" &
    run=$!
    for _ in $(seq 200); do
        [ ! -s "$1.calls" ] || break
        sleep 0.05
    done
}
# In the middle of saving: the disk takes 20 seconds. All of them at once, since each is waited for.
declare -A runs
for name in "${!commands[@]}"; do
    mkdir "$name"
    echo old >"$name/result"
    begin "$name" sleep
    runs[$name]=$run
done
start=$SECONDS
for name in "${!commands[@]}"; do kill -"${signals[$name]}" "${runs[$name]}"; done
for name in "${!commands[@]}"; do
    wait "${runs[$name]}"
    code=$?
    same "$name: SIG${signals[$name]} while it saves" $((128 + $(kill -l "${signals[$name]}"))) $code
    same "$name: the old file stays, alone" 'old result' "$(cat "$name"/*) $(ls -A "$name")"
done
check 'it takes seconds' test $((SECONDS - start)) -lt 15
# Several files that belong together: the second of them is on its way to the disk.
declare -A together=([once]=TERM [twice]='INT INT')
for name in "${!together[@]}"; do
    mkdir "$name"
    LD_PRELOAD=$preload IO_UNDER=$scratch/$name/ IO_CALL=fsync IO_AT=2 IO_HOW=sleep IO_LOG=$scratch/$name.calls \
        "$WIDEOUT" data synthetic -q -m 50 -d 8 -n 100 -o "$name" >/dev/null 2>&1 &
    runs[$name]=$!
done
for name in "${!together[@]}"; do
    for _ in $(seq 200); do
        [ "$(wc -l <"$name.calls" 2>/dev/null)" != 2 ] || break
        sleep 0.05
    done
    for signal in ${together[$name]}; do
        kill -"$signal" "${runs[$name]}"
        sleep 0.1
    done
done
for name in "${!together[@]}"; do
    wait "${runs[$name]}"
    code=$?
    same "several files, signalled $name while they are synced" "$((128 + $(kill -l "${together[$name]##* }"))) " "$code $(ls -A "$name")"
done
# Shards of a layer: the second of them is getting its name. All are there then, and nothing else.
mkdir shards
LD_PRELOAD=$preload IO_UNDER=$scratch/shards/ IO_CALL=rename IO_AT=2 IO_HOW=nap IO_LOG=$scratch/shards.calls \
    "$WIDEOUT" shard -q --layer s/layer.safetensors -n 3 -o shards/part >/dev/null 2>&1 &
run=$!
for _ in $(seq 200); do
    [ "$(grep -c . shards.calls 2>/dev/null)" != 2 ] || break
    sleep 0.05
done
kill -TERM $run
wait $run
code=$?
same 'shard: SIGTERM while they get their names' \
    "143 $(printf 'part-%05d-of-00003.safetensors ' 1 2 3)" "$code $(cd shards && printf '%s ' *)"
# A signal that comes when all is nearly done: the command is done, and still dies of it, so that a script stops.
rm build-full/result
begin build-full nap
kill -INT $run
wait $run
same 'a signal at the very end' 130 $?
check 'what was made is whole' "$WIDEOUT" info build-full/result
finish
