#!/bin/bash
# build --memory: what is larger than memory lies in files; the limit is the system's, not a promise.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
case $BUILD in /*) built=$BUILD ;; *) built=$PWD/$BUILD ;; esac
cd "$scratch" || exit 1
"$WIDEOUT" data synthetic -m 300000 -d 64 -n 5000 -o made -q >/dev/null
# Rows of 57 MB, all in one thread: the stacks of others count too.
build=(build --layer made/layer.safetensors --log made/train.log.safetensors --method evidence --router tree --nodes 8 --leaves 8
    --source labels --weights int8-bf16 --threads 1 -q)
"$WIDEOUT" "${build[@]}" -o free >/dev/null
check 'a limit of 16 MB' "$WIDEOUT" "${build[@]}" --memory 16M -o kept
check 'the same index' cmp free kept
same 'nothing is left beside it' 'free kept made' "$(echo * .[!.]*  | sed 's/ \.\[.*//; s/ \.stderr//')"
if [ -z "${SAN:-}" ]; then
    fails 'without it, a process of 40 MB has too little' 1 'wideout: out of memory: 38400000 bytes asked for' \
        prlimit --data=40000000 "$WIDEOUT" "${build[@]}" -o none
    check 'with it, 20 MB do' prlimit --data=20000000 "$WIDEOUT" "${build[@]}" --memory 16M -o kept
    check 'again the same index' cmp free kept
    # Where FULL is asked, by hyperplanes, and with the stack of a second thread.
    "$WIDEOUT" data synthetic -m 200000 -d 64 -n 600 -o less -q >/dev/null
    hash=(build --layer less/layer.safetensors --log less/train.log.safetensors --router hash -K 5 -L 2 --iterations 20
        --source both --weights int8-bf16 -q)
    "$WIDEOUT" "${hash[@]}" -t 1 -o free2 >/dev/null
    check '20 MB, with two threads, hyperplanes and FULL' prlimit --data=20000000 "$WIDEOUT" "${hash[@]}" -t 2 --memory 8M -o kept2
    check 'the same index too' cmp free2 kept2
    rm -rf less
    "$WIDEOUT" eval --index kept --layer made/layer.safetensors --log made/test.log.safetensors --no-timing --json -q >judged
    check 'its answers are good' jq -e '.p_at_1 > 0.3 * .full_p_at_1' judged
fi
# Stopped when all is found and the index is to be written, it goes on; with other options it does not.
if [ -z "${SAN:-}" ]; then
    mkdir stopped
    fails 'a full disk' 1 'wideout: stopped/index: the file cannot be written: No space left on device' env LD_PRELOAD="$built/tests/failing_io.so" \
        IO_UNDER="$scratch/stopped" IO_CALL=write IO_AT=2 IO_HOW=28 "$WIDEOUT" "${build[@]}" --memory 16M -o stopped/index
    same 'what took long stays' index.checkpoint "$(ls -A stopped)"
    fails 'a build with other options' 1 'wideout: stopped/index.checkpoint: the checkpoint is of a build with other options, and does not go on with these: cap differs' "$WIDEOUT" "${build[@]}" --cap 3 --resume -o stopped/index
    check 'a build that goes on' "$WIDEOUT" "${build[@]}" --resume -o stopped/index
    check 'makes the same index' cmp free stopped/index
    same 'and leaves nothing behind' index "$(ls -A stopped)"
fi
fails 'tuning begins anew' 2 "wideout build: --resume goes with a build that is named exactly: tuning begins anew (see 'wideout build --help')" \
    "$WIDEOUT" build --layer made/layer.safetensors --log made/train.log.safetensors --resume -o x
for size in 0 4 1K -1G nan 4g 1GB ''; do
    fails "a size of '$size'" 2 "wideout build: --memory takes a size like 500M or 4G, at least 1M, not '$size' (see 'wideout build --help')" \
        "$WIDEOUT" "${build[@]}" --memory "$size" -o none
done
# No room for the files: a sentence, and the old index stays.
if mkdir small && mount -t tmpfs -o size=20M none small 2>/dev/null; then
    echo old >small/index
    "$WIDEOUT" "${build[@]}" --memory 16M -o small/index >said 2>&1
    same 'a full disk: a sentence' "1 wideout: out of memory: 38400000 bytes asked for" "$? $(cat said)"
    same 'and the old file' 'old index' "$(cat small/index) $(ls -A small)"
    umount small
else
    ok 'a full disk # SKIP no file system can be mounted here'
fi
finish
