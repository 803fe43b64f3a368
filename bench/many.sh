#!/bin/bash
# Very many classes: made-up layers that no log names more than a hundredth of, built with --rows. Writes bench/results/many.json.
#
#   bench/many.sh [--one|--shards|--all] [FOLDER]
#
# --one, the default: M classes of D dimensions in one index, within 12 GiB; quality beside FULL's, the most popular labels and the ceiling (labels
# that the log names at all), and times. --shards: MANY classes in P shards, one after the other: made, built within 4 GiB, asked, FULL
# asked, and all but the index thrown away. --all: both. Limits are on the address space of a process, mapped files included.
# Of each step many.json has seconds, CPU seconds, the most memory, and page-ins: pages of 4 KiB that were read from the disk, most of
# them ahead, so that few were waited for (major_faults). Of a query it has microseconds by the clock and of CPU, in batches of 1,024
# and alone. asked_from_disk is 2,000 queries of an index of which the system had forgotten every page.
# RESULTS names another file. FOLDER, by default in TMPDIR, is emptied at the end. M=1000000 MANY=4000000 P=4 bench/many.sh --all is a trial of two minutes.
# shellcheck disable=SC2016 # jq's variables
set -eu
cd "$(dirname "$0")/.."
wideout=${BUILD:-build}/wideout
what=one
case ${1:-} in --one | --shards | --all) what=${1#--} && shift ;; esac
folder=${1:-${TMPDIR:-/tmp}/wideout-many}
M=${M:-10000000} D=${D:-128} CAP=${CAP:-1400} MANY=${MANY:-100000000} MANY_D=${MANY_D:-64} P=${P:-20} MANY_CAP=${MANY_CAP:-375}
MANY_LEAVES=${MANY_LEAVES:-4000} THREADS=${THREADS:-0}
mkdir -p "$folder" bench/results
about=$(bench/about.sh "${BUILD:-build}")
result=${RESULTS:-bench/results/many.json}
evidence=(--method evidence --router tree --beam 4 --source labels --lambda 0 --thin 0 --keep 0 --rows 1 --weights int8-bf16)

# limited GIB NAME COMMAND...: its output in NAME.out; what it took in NAME.cost
limited() {
    local gib=$1 name=$2
    shift 2
    python3 - "$gib" "$folder/$name" "$@" <<'END'
import json, resource, subprocess, sys, time
gib, name, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
limit = lambda: gib and resource.setrlimit(resource.RLIMIT_AS, (gib << 30, gib << 30))
start = time.time()
with open(name + ".out", "w") as out:
    code = subprocess.run(command, stdout=out, preexec_fn=limit).returncode
u = resource.getrusage(resource.RUSAGE_CHILDREN)
json.dump({"seconds": round(time.time() - start, 2), "cpu_s": round(u.ru_utime + u.ru_stime, 2), "peak_mib": u.ru_maxrss / 1024,
           "page_ins": u.ru_inblock // 8, "major_faults": u.ru_majflt, "read_mib": u.ru_inblock / 2048}, open(name + ".cost", "w"))
sys.exit(code)
END
}

# Adds what jq makes of the other arguments to the results.
put() {
    [ -s "$result" ] || echo '{}' >"$result"
    jq "$@" "$result" >"$result.new"
    mv "$result.new" "$result"
}

# The system keeps no page of a file: what is read of it is read from the disk.
forget() {
    python3 -c 'import os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
os.fsync(f)
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)' "$1"
}

judge() { # NAME INDEX OPTION...: the judgement in NAME.out
    limited 0 "$1" "$wideout" eval -q --json --index "$2" --layer "$folder/one/layer.safetensors" --log "$folder/one/test.log.safetensors" \
        --max-queries 2000 -t "$THREADS" "${@:3}"
}

one() {
    local data=$folder/one
    limited 12 make "$wideout" data synthetic -q -m "$M" -d "$D" -n 500000 --exponent 1 --seed 1 --json -o "$data"
    limited 12 build "$wideout" build -q --json --layer "$data/layer.safetensors" --log "$data/train.log.safetensors" "${evidence[@]}" \
        --route-d "$D" --cap "$CAP" -t "$THREADS" -o "$data/index"
    judge cells "$data/index" --rounds 3
    "$wideout" data draw -q "$data/test.log.safetensors" -n 2000 -o "$folder/asked" >/dev/null
    forget "$data/index"
    limited 12 disk "$wideout" predict -q --json -k 5 --index "$data/index" -t "$THREADS" "$folder/asked"
    local few=(--layer "$data/layer.safetensors" --log "$data/train.log.safetensors" --method popular --weights none --keep 0)
    "$wideout" build -q "${few[@]}" --popular "$CAP" -o "$data/popular" >/dev/null
    judge popular "$data/popular" --no-timing
    "$wideout" build -q --layer "$data/layer.safetensors" --log "$data/train.log.safetensors" --method evidence --router tree \
        --nodes 1 --leaves 1 --source labels --lambda 0 --weights none --keep 0 -o "$data/named" >/dev/null # all labels in one cell
    judge named "$data/named" --no-timing
    rm -r "$data"
    put --slurpfile make "$folder/make.cost" --slurpfile build "$folder/build.cost" --slurpfile built "$folder/build.out" \
        --slurpfile disk "$folder/disk.cost" \
        --slurpfile cells "$folder/cells.out" --slurpfile popular "$folder/popular.out" --slurpfile named "$folder/named.out" \
        --argjson about "$about" '.one = $about + {m: $built[0].m, d: $built[0].d, options: $built[0].options,
        made: $make[0], build: $build[0], file_bytes: $built[0].file_bytes,
        p_at_1: $cells[0].p_at_1, full_p_at_1: $cells[0].full_p_at_1, share: ($cells[0].p_at_1 / $cells[0].full_p_at_1),
        popular_p_at_1: $popular[0].p_at_1, ceiling: $named[0].label_recall, classes_scored: $cells[0].sample_size,
        us: ($cells[0].timings | map({key: "batch_\(.batch)", value: {wall_us: .us_per_query, cpu_us: (1000 * .cpu_s_per_1000)}}) | from_entries),
        asked_from_disk: ($disk[0] + {queries: 2000}), cold_us: $cells[0].cold_us, timings: $cells[0].timings}'
    jq '.one | del(.options, .timings)' "$result"
}

shards() {
    local s data
    for ((s = 0; s < P; s++)); do
        data=$folder/shard-$s
        [ -s "$data.done" ] && continue # of a run that was stopped
        limited 4 "make-$s" "$wideout" data synthetic -q -m "$MANY" -d "$MANY_D" -n 200000 --exponent 1 --seed 1 --shard "$s/$P" --json -o "$data"
        "$wideout" data draw -q "$data/test.log.safetensors" -n 2000 -o "$folder/test-$s" >/dev/null
        limited 4 "build-$s" "$wideout" build -q --json --layer "$data/layer.safetensors" --log "$data/train.log.safetensors" \
            "${evidence[@]}" --route-d "$MANY_D" --nodes 1 --leaves "$MANY_LEAVES" --cap "$MANY_CAP" -t "$THREADS" -o "$folder/index-$s"
        limited 4 "exact-$s" "$wideout" predict -q --json -k 5 --exact --index "$folder/index-$s" --layer "$data/layer.safetensors" \
            -t "$THREADS" "$folder/test-$s"
        rm -r "$data"
        echo made >"$data.done"
        echo "shard $s of $P: made in $(jq .seconds "$folder/make-$s.cost") s, built in $(jq .seconds "$folder/build-$s.cost") s" >&2
    done
    for probes in 1 4; do
        for ((s = 0; s < P; s++)); do
            forget "$folder/index-$s"
            limited 4 "cells-$probes-$s" "$wideout" predict -q --json -k 5 --probes $probes --index "$folder/index-$s" -t "$THREADS" "$folder/test-$s"
            limited 4 "times-$probes-$s" "$wideout" eval -q --json --probes $probes --index "$folder/index-$s" -t "$THREADS" \
                --log "$folder/test-$s" --rounds 3 # from memory now
        done
    done
    python3 bench/many_merge.py "$folder" "$P" >"$folder/merged"
    put --slurpfile merged "$folder/merged" --argjson about "$about" --argjson d "$MANY_D" --argjson m "$MANY" \
        --argjson shards "$P" --argjson cap "$MANY_CAP" --argjson leaves "$MANY_LEAVES" \
        '.shards = $about + {m: $m, d: $d, shards: $shards, leaves: $leaves, cap: $cap} + $merged[0]'
    jq .shards "$result"
}

if [ "$what" != shards ]; then one; fi
if [ "$what" != one ]; then shards; fi
rm -r "$folder"
