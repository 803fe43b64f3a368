#!/bin/bash
# Makes the golden files, one of every kind that a version writes, all tiny, in a folder: tests/golden/make.sh FOLDER.
# The files in tests/golden were made so, once, and are never made again: every later version must read them, and answer
# as FILE.answers says, which the version that wrote them wrote too. What is new in the format gets files of its own
# beside them: index-prior has a tree whose nodes differ in size, and a prior, index-fallback a screen for queries that know
# little, index-partition what log Z is made of, and index-mixture a mixture; they answer with probabilities. index-updated keeps queries,
# and has classes that were added and removed. The trees of the others were made when all nodes had as many leaves; made again they are others.
# index-rows has cells that classes' own rows chose too; shard-layer and shard-index are the second of two, made by wideout-mpi,
# which cannot be asked alone: the unit test does. They are left out where there is no MPI.
# log.journal is what tests/unit/test_journal.c writes. A tuned index has times in it, so that it differs every time, and a
# checkpoint depends on when its run was stopped.
set -eu
# shellcheck source=tests/mpi/one_machine.sh
. "$(dirname "$0")/../mpi/one_machine.sh"
: "${WIDEOUT:=build/wideout}"
WIDEOUT=$(realpath "$WIDEOUT")
mkdir -p "$1"
out=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
run() { "$WIDEOUT" "$@" -q -t 1 >/dev/null; }

# A layer of 64 classes in 16 dimensions, and the queries that its indexes are built from and asked.
run data synthetic -m 64 -d 16 -n 320 --seed 5 -o s
cp s/layer.safetensors "$out/layer.safetensors"
cp s/test.log.safetensors "$out/log.safetensors"

# Tokens, and a network of each kind on data of its own; a checkpoint is what Ctrl-C leaves.
awk 'BEGIN{x = 1; w = 0
    for (i = 0; i < 600; i++) {
        x = x * 16807 % 2147483647
        w = x % 4 ? (w * 7 + 3) % 24 : int(x / 4) % 24
        printf "w%d%s", w, i % 20 == 19 ? "\n" : " "
    }}' >corpus
run data text corpus -o t
mkdir x
awk 'BEGIN{x = 7; print 60, 12, 10
    for (i = 0; i < 60; i++) {
        x = x * 16807 % 2147483647
        f = int(x / 16) % 4
        printf "%d %d:%d %d:1 %d:2\n", x % 10, f, 1 + x % 3, 4 + x % 4, 8 + x % 2
    }}' >x/train.txt
seq -f 'feature %g' 0 11 >x/features.txt
seq -f 'class %g' 0 9 >x/labels.txt
cp t/valid.tokens.safetensors "$out/tokens.safetensors"
cp x/train.txt "$out/examples.txt"
run train xc --train x/train.txt -d 8 -e 2 -o "$out/network-xc.safetensors"
run train w2v --train t/train.tokens.safetensors -d 8 -e 1 --window 3 --drop-top 2 -o "$out/network-w2v.safetensors"
run train lm --train t/train.tokens.safetensors -d 8 -e 1 -o "$out/network-lm.safetensors"
run embed "$out/network-xc.safetensors" --data x/train.txt --max-queries 20 --dtype bf16 -o "$out/log-bf16.safetensors"
"$WIDEOUT" train xc --train x/train.txt -d 8 -e 100000 -q -t 1 -o net >/dev/null 2>&1 &
while [ ! -e net.checkpoint ]; do sleep 0.01; done
kill -INT $!
wait $! || true
cp net.checkpoint "$out/checkpoint.safetensors"

# An index of every method, and of every precision.
index() { # NAME ARGUMENT...
    local layer=(--layer s/layer.safetensors) log=(--log s/train.log.safetensors)
    case " $* " in *' --layer '*) layer=() ;; esac
    case " $* " in *' --log '*) log=() ;; esac
    run build "${layer[@]}" "${log[@]}" --seed 3 -o "$out/index-$1.safetensors" "${@:2}"
}
hash=(--method evidence -K 3 -L 2 --iterations 10 --learn-batch 64 --probes 2)
tree=(--method evidence --router tree --nodes 16 --leaves 16 --probes 3 --lambda 0.05)
index full --method full
index popular --method popular --popular 12
index slide --method slide -K 3 -L 4
index lss --method lss -K 3 -L 2 --iterations 10 --learn-batch 64
index evidence-hash "${hash[@]}"
index screen --method screen
index evidence-tree "${tree[@]}" --fallback 4
index bf16 "${tree[@]}" --weights bf16
index int8 "${tree[@]}" --weights int8
index int8-bf16 "${tree[@]}" --weights int8-bf16
index none "${hash[@]}" --weights none
index prior --method evidence --router tree --nodes 5 --leaves 9 --beam 3 --probes 3 --lambda 0.02 --cap 20 --prior 1 \
    --focus 10 --fallback 12
index fallback --method evidence --router tree --nodes 1 --leaves 24 --probes 2 --lambda 0.2 --source labels --thin 0 \
    --fallback 32 --fallback-by screen
index partition --method evidence --router tree --nodes 3 --leaves 16 --beam 3 --probes 2 --lambda 0.05 --prior 0.5 \
    --partition
index mixture --method evidence --router tree --nodes 3 --leaves 16 --beam 3 --probes 2 --lambda 0.05 --prior 0.5 --focus 4 \
    --partition --mix 0.25
index updated "${tree[@]}" --spread 3 --prior 0.5 --keep 40
run data synthetic -m 3 -d 16 -n 320 --seed 6 -o r
run update "$out/index-updated.safetensors" --add r/layer.safetensors --remove 5,17 -o updated
mv updated "$out/index-updated.safetensors"
index rows --method evidence --router tree --nodes 1 --leaves 8 --probes 2 --lambda 0.2 --rows 2
if [ -x "$WIDEOUT-mpi" ] && command -v mpirun >/dev/null; then
    run shard --layer s/layer.safetensors -n 2 -o shard
    mpirun --quiet -n 2 "$WIDEOUT-mpi" build --layer shard --log s/train.log.safetensors --seed 3 -q -t 1 --method evidence --router tree \
        --nodes 1 --leaves 16 --probes 3 --lambda 0.05 --weights int8 -o shards >/dev/null
    mv shard-00002-of-00002.safetensors "$out/shard-layer.safetensors"
    mv shards-00002-of-00002.safetensors "$out/shard-index.safetensors"
fi
index names --layer "$out/network-xc.safetensors" --log "$out/log-bf16.safetensors" --method popular --popular 4
index tuned --tune-log s/valid.log.safetensors --target-agree 0.8 --max-time 2s

# What they answer: indexes to the log, networks to data of their kind.
for index in "$out"/index-*.safetensors; do
    asked=$out/log.safetensors
    [ "${index##*/}" != index-names.safetensors ] || asked=$out/log-bf16.safetensors
    layer=()
    [ "${index##*/}" != index-none.safetensors ] || layer=(--layer "$out/layer.safetensors")
    scores=()
    case ${index##*/} in index-partition.* | index-mixture.*) scores=(--logprob) ;; esac
    "$WIDEOUT" predict -q -t 1 --index "$index" "${layer[@]}" "${scores[@]}" "$asked" >"${index%.safetensors}.answers"
done
for net in xc w2v lm; do
    data=$out/tokens.safetensors
    [ $net != xc ] || data=$out/examples.txt
    run embed "$out/network-$net.safetensors" --data "$data" --max-queries 12 -o log
    run build --layer "$out/network-$net.safetensors" --method full -o full
    "$WIDEOUT" predict -q -t 1 --index full log >"$out/network-$net.answers"
done
