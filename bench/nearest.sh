#!/bin/bash
# The ceiling of evidence: nearest.sh [NAME...]; debian, diginetica, tmall, wikitext-2, enwiki100m-drop200 and eurlex57k by
# default.
#
# The 64 nearest training queries of each test query, exactly, as its cell: see bench/nearest.c. Prints a line of JSON each, and keeps
# them in bench/results/nearest.json, in place of those of the same data. Needs 'make nets' and build/bench/nearest (make
# build/bench/nearest), and minutes: every query is compared with all training queries.
set -eu -o pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${BUILD:-build}")
cache=${WIDEOUT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/wideout}
results=${RESULTS:-bench/results/nearest.json}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ $# -gt 0 ] || set -- debian diginetica tmall wikitext-2 enwiki100m-drop200 eurlex57k

for name in "$@"; do
    logs=$cache/$name layer=$cache/$name/net.safetensors named=() log=train.log
    case $name in
    wikitext-2) # PyTorch's network
        logs=$cache/wikitext-2-torch layer=${WIDEOUT_DATA:-../shared/data}/wikitext-2/torch/lstm.safetensors.index.json
        named=(output.weight)
        ;;
    enwiki*) log=words.log ;; # every query that there is
    esac
    if [ ! -s "$logs/test.log" ] || [ ! -s "$layer" ]; then
        echo "$name: left out, $logs/test.log or $layer is missing: 'make nets' makes them"
        continue
    fi
    "$build/bench/nearest" "$layer" "$logs/$log" "$logs/valid.log" "$logs/test.log" "${named[@]}" |
        jq -c --arg data "$name" '{data: $data} + .' | tee "$scratch/line"
    [ -s "$results" ] || echo '[]' >"$results"
    jq --slurpfile line "$scratch/line" 'map(select(.data != $line[0].data)) + $line | sort_by(.data)' "$results" \
        >"$scratch/results" && cp "$scratch/results" "$results"
done
