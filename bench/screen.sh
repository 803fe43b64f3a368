#!/bin/bash
# What a screen has of FULL, and how fast it is: screen.sh [NAME...]; every network of bench/nets.sh that is in the cache by
# default.
#
# Builds with --method screen, no other option, and judges on the test log: agreement with FULL's five best, and times at batch 1 and 1,024
# beside FULL's. Prints a line for each, and keeps them in bench/results/screen.json, in place of those of the same data. Let
# nothing else run meanwhile.
set -eu
cd "$(dirname "$0")/.."
wideout=$(realpath "${BUILD:-build}")/wideout
cache=${WIDEOUT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/wideout}
results=${RESULTS:-bench/results/screen.json}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ $# -gt 0 ] || set -- debian diginetica tmall wikitext-2 wikitext-2-torch wikitext-2-next35 enwiki100m enwiki100m-drop200 eurlex57k

for name in "$@"; do
    layer=$cache/$name/net.safetensors named=()
    if [ "$name" = wikitext-2-torch ]; then
        layer=${WIDEOUT_DATA:-../shared/data}/wikitext-2/torch/lstm.safetensors.index.json
        named=(--weight-name output.weight)
    fi
    if [ ! -s "$cache/$name/test.log" ] || [ ! -s "$layer" ]; then
        echo "$name: left out, $cache/$name/test.log or $layer is missing: 'make nets' makes them"
        continue
    fi
    "$wideout" build -q --layer "$layer" "${named[@]}" --method screen -o "$scratch/index" >/dev/null
    "$wideout" eval -q --index "$scratch/index" --layer "$layer" "${named[@]}" --log "$cache/$name/test.log" -k 5 --json >"$scratch/eval.json"
    jq -c --arg data "$name" --arg machine "$("$wideout" cpu --json | jq -r .model), $(nproc) cores" --arg version "$("$wideout" version --json | jq -r '.commit // .version')" '
        {data: $data, machine: $machine, version: $version, m, d, n, agreement_at_5, timings: [.timings[] | select(.batch == 1 or .batch == 1024)]}' \
        "$scratch/eval.json" >"$scratch/line"
    jq -r '"\(.data): m \(.m), d \(.d): of FULL'"'"'s five best \(.agreement_at_5 * 1e5 | round / 1000)%"
        + ([.timings[] | ", batch \(.batch) \(.us_per_query) us, FULL \(.full_us_per_query) us, \(.speedup * 100 | round / 100) times"] | add // "")' \
        "$scratch/line"
    [ -s "$results" ] || echo '[]' >"$results"
    jq --slurpfile line "$scratch/line" 'map(select(.data != $line[0].data)) + $line | sort_by(.data)' "$results" \
        >"$scratch/results" && cp "$scratch/results" "$results"
done
