#!/bin/bash
# wideout-mpi with $RANKS processes (1 2) of one thread each: building, a stream of queries with small cells, with large ones and to
# FULL, and a step of training; wall and CPU seconds of rank 0. CPU seconds are what an idle machine would show where this one is busy.
# Writes bench/results/mpi.json. Usage: bench/mpi.sh [FOLDER [M [D [N]]]]: data are made there once. ROUNDS (3): the best of so many.
# BUILDS=1: builds alone.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build} ranks=${RANKS:-1 2} rounds=${ROUNDS:-3} result=${RESULTS:-bench/results/mpi.json}
folder=${1:-${TMPDIR:-/tmp}/wideout-mpi-bench}
m=${2:-50000} d=${3:-64} n=${4:-40000}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
data=$folder/data-$m-$d-$n
mkdir -p "$folder" bench/results
[ -f "$data/layer.safetensors" ] || "$build/wideout" data synthetic -q -m "$m" -d "$d" -n "$n" -o "$data" >/dev/null
about=$(bench/about.sh "$build")
jq -c .machine <<<"$about"
: >"$folder/rows"

# row NAME P COMMAND...: the best of the rounds, by CPU; the command prints {cpu_s or cpu_us, ...}
row() {
    local name=$1 p=$2 i
    shift 2
    for ((i = 0; i < rounds; i++)); do "$@"; done |
        jq -sc --arg row "$name" --argjson ranks "$p" '{row: $row, ranks: $ranks} + min_by(.cpu_s // .cpu_us)' | tee -a "$folder/rows"
}

# Of shards that are dealt out by frequency, so that each rank has as many candidates.
build_it() { # P INDEX OPTION...
    local layer=$data/layer.safetensors
    [ "$1" = 1 ] || layer=$data/net
    mpirun --quiet -n "$1" "$build/wideout-mpi" build -q -t 1 --layer "$layer" --log "$data/train.log.safetensors" \
        "${@:3}" --json -o "$2" | jq -c '{wall_s: .seconds, cpu_s: ([.phases[].cpu_s] | add), bytes: ([.phases[].bytes] | add), peak_mib}'
}

# The stream is the training log, which is longer: what it costs is asked, not how good answers are.
stream() { # P INDEX OPTION...
    mpirun --quiet -n "$1" "$build/wideout-mpi" eval -t 1 --index "$2" --log "$data/train.log.safetensors" --no-full --rounds 5 --json "${@:3}" |
        jq -c '(.n * 5) as $asked | [.phases[] | select(.phase | IN("exchange", "routing", "search", "merging", "answers"))] as $p |
            {wall_us: .us_per_query, cpu_us: ([$p[].cpu_s] | add * 1e6 / $asked), waited_us: ([$p[].waited] | add * 1e6 / $asked),
            by_phase_cpu_us: ($p | map({key: .phase, value: (.cpu_s * 1e6 / $asked)}) | from_entries), candidates: .sample_size,
            bytes_a_query: ([$p[].bytes] | add / $asked)}'
}

for p in $ranks; do
    [ "$p" = 1 ] || "$build/wideout" shard --resume --layer "$data/layer.safetensors" --log "$data/train.log.safetensors" -n "$p" -o "$data/net" >/dev/null
    row 'build, tree' "$p" build_it "$p" "$folder/small-$p" --router tree
    row 'build, hash' "$p" build_it "$p" "$folder/hash-$p" --router hash -K 9 -L 4
    row 'build, large cells' "$p" build_it "$p" "$folder/large-$p" --router tree --nodes 1 --leaves 64 --beam 4 --probes 2 --cap 0 --lambda 0
    [ -z "${BUILDS:-}" ] || continue
    for cells in small hash large; do
        row "eval of a stream, $cells cells" "$p" stream "$p" "$folder/$cells-$p"
        row "eval of a stream, $cells cells, in turn" "$p" stream "$p" "$folder/$cells-$p" --in-turn
    done
    build_it "$p" "$folder/full-$p" --method full >/dev/null
    row 'eval of a stream, FULL' "$p" stream "$p" "$folder/full-$p"
done
# A step, of Debian's shape.
echo '{"rows": []}' >"$folder/steps"
# shellcheck disable=SC2086 # several numbers
[ -n "${BUILDS:-}" ] || RESULTS=$folder/steps ROUNDS=$rounds BUILD=$build bench/mpi_train.sh $ranks
# Each row beside that of the first number of ranks.
jq -s --slurpfile steps "$folder/steps" --argjson about "$about" \
    --arg load "$(cut -d ' ' -f 1 /proc/loadavg)" --argjson m "$m" --argjson d "$d" --argjson n "$n" \
    '. as $all | $about + {load_after: ($load | tonumber), m: $m, d: $d, n: $n,
    rows: map(. as $r | ($all | map(select(.row == $r.row))[0]) as $first | . + {cpu_speedup: (($first.cpu_s // $first.cpu_us) / (.cpu_s // .cpu_us)),
        wall_speedup: (($first.wall_s // $first.wall_us) / (.wall_s // .wall_us))}), steps: $steps[0].rows}' "$folder/rows" >"$result"
jq -r '.rows[] | "\(.row), P = \(.ranks): " + (if .cpu_s then "\(.wall_s * 100 | round / 100) s, \(.cpu_s * 100 | round / 100) CPU s"
    else "\(.wall_us * 100 | round / 100) us a query, \(.cpu_us * 100 | round / 100) CPU us, waited \(.waited_us * 100 | round / 100), \(.candidates | round) scored" end)
    + "; \(.cpu_speedup * 100 | round / 100) x by CPU, \(.wall_speedup * 100 | round / 100) x by the clock"' "$result"
