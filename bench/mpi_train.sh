#!/bin/bash
# A training step of 'wideout-mpi train xc' on 1, 2, ... ranks of one thread each: mpi_train.sh [P...]; 1 and 2 by default.
#
# The shape is that of Debian's catalogue: 50,000 classes, 128 dimensions, batches of 512; rows of 'data synthetic --as text',
# or $TRAIN, a file of your own, of whatever size. Rounds go through all P in turn, since rates drift on a shared machine.
# Prints the median of the rounds' median step, the fastest of them, and the CPU time of a step on rank 0, each with how many
# times less it is than with the first P; the share of a step that rank 0 waits for others; and the bytes that it receives a
# step. Times need idle cores: where fewer than P are, a rank waits for one that has no core, and the load average that is
# printed says so. CPU time is what a step would take then, but for waiting and for the memory's bandwidth. $ROUNDS (5), $STEPS
# (10) and $OPTIONS (of train xc, "--sampled 8192") change what is measured, $MPIRUN (bench/mpi_hosts.sh) who starts the ranks.
# Then what the bag takes, whose sums are divided too: a step of the same rows with 50 classes, that is of the bag and its embedding, on one process, and
# how many features a batch has. Writes bench/results/mpi_train.json, or $RESULTS.
set -eu
cd "$(dirname "$0")/.."
wideout=$(realpath "${BUILD:-build}")/wideout
mpi=$(realpath "${BUILD:-build}")/wideout-mpi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
steps=${STEPS:-10} rounds=${ROUNDS:-5} options=()
read -ra options <<<"${OPTIONS:-}"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ $# -gt 0 ] || set -- 1 2
train=${TRAIN:-}
if [ -z "$train" ]; then
    "$wideout" data synthetic --as text -m 50000 -n 30000 -o "$scratch/data" -q >/dev/null
    train=$scratch/data/train.txt
fi

mkdir -p bench/results
about=$(bench/about.sh "${BUILD:-build}")
for ((round = 0; round < rounds; round++)); do
    for p in "$@"; do
        "${MPIRUN:-mpirun}" -n "$p" "$mpi" train xc --train "$train" -d 128 -b 512 "${options[@]}" --time-steps "$steps" -t 1 \
            -o "$scratch/net" --json >>"$scratch/$p.json"
    done
done
# The same rows with few classes: class modulo 50, each once.
awk 'NR == 1 { print $1, $2, 50; next }
     /^ / { print; next }
     { n = split($1, labels, ","); $1 = ""
       for (i = 1; i <= n; i++) if (seen[labels[i] % 50] != NR) { seen[labels[i] % 50] = NR; $1 = $1 ($1 == "" ? "" : ",") labels[i] % 50 }
       print }' "$train" >"$scratch/few.txt"
for ((round = 0; round < rounds; round++)); do
    "$wideout" train xc --train "$scratch/few.txt" -d 128 -b 512 --time-steps "$steps" -t 1 -o "$scratch/net" --json -q
done | jq -s 'map(.ms_per_step) | sort | .[length / 2 | floor]' >"$scratch/bag_ms"
awk 'NR > 1 { for (i = 2; i <= NF; i++) { split($i, p, ":"); if (seen[p[1]] != batch + 1) { seen[p[1]] = batch + 1; n++ } } }
     NR > 1 && (NR - 1) % 512 == 0 { batch++; sum += n; n = 0 }
     END { print batch ? int(sum / batch) : n }' "$train" >"$scratch/features"
for p in "$@"; do
    # 5 steps go before those that are timed
    jq -s --argjson p "$p" --argjson steps "$((steps + 5))" \
        'def median: sort | .[length / 2 | floor];
         ([.[].phases[] | select(.phase == "train")]) as $train |
         {ranks: $p, m: .[0].m, d: .[0].d, rounds: length, ms: ([.[].ms_per_step] | median), fastest_ms: ([.[].ms_per_step] | min),
          cpu_ms: ([$train[].cpu_s * 1000 / $steps] | median), waited: ([$train[] | .waited / .seconds] | median),
          bytes_a_step: ($train[0].bytes / $steps | floor)}' "$scratch/$p.json"
done | jq -s --argjson about "$about" --arg mpirun "${MPIRUN:-mpirun}" \
    --slurpfile bag "$scratch/bag_ms" --slurpfile features "$scratch/features" \
    '.[0] as $one | $about + {mpirun: $mpirun, bag_ms: $bag[0], features_a_batch: $features[0],
     rows: map(. + {speedup: ($one.ms / .ms), fastest_speedup: ($one.fastest_ms / .fastest_ms), cpu_speedup: ($one.cpu_ms / .cpu_ms)})}' \
    >"$scratch/all.json"
cp "$scratch/all.json" "${RESULTS:-bench/results/mpi_train.json}"
jq -r '"load average before: \(.load_before)"' "$scratch/all.json"
jq -r '.rows[] | [.ranks, .m, .d, .ms, .speedup, .fastest_ms, .fastest_speedup, .cpu_ms, .cpu_speedup, 100 * .waited, .bytes_a_step] | @tsv' \
    "$scratch/all.json" |
    awk 'BEGIN { print " P  classes    d  ms a step       fastest ms      CPU ms a rank   waited  bytes a step" }
         { printf "%2d %8d %4d %8.1f %5.2fx %9.1f %5.2fx %8.1f %5.2fx %7.1f%% %13d\n", $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11 }'
jq -r '"of a step the bag takes \(.bag_ms * 10 | round / 10) ms on one process; a batch has \(.features_a_batch) features"' "$scratch/all.json"
