#!/bin/bash
# What a routed tree loses against exact flat k-means: cells.sh [NAME...]; debian, diginetica, tmall, wikitext-2,
# eurlex57k and enwiki100m-drop200 by default.
#
# All have about as many cells (a training query in 24 each, at most 16,384), filled with labels alone, all coordinates. Flat
# k-means (--nodes 1) compares a query with every centre; the tree with its nodes and the leaves below as many of them as
# make an eighth of all centres. Both open one cell of at most 16 classes. 'two' is the tree again, with two cells of at most 8,
# which are no more together, and with what the logged queries of the next two leaves needed in them (--spread 2). Prints shares of
# FULL's P@1 and P@5 on the test log, and the number of centres that a query is compared with; they go to
# bench/results/cells.json too, in place of those of the same data. Needs 'make nets' and many cores or minutes: flat k-means
# is slow to learn.
set -eu
cd "$(dirname "$0")/.."
wideout=$(realpath "${BUILD:-build}")/wideout
cache=${WIDEOUT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/wideout}
results=${RESULTS:-bench/results/cells.json}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ $# -gt 0 ] || set -- debian diginetica tmall wikitext-2 eurlex57k enwiki100m-drop200

for name in "$@"; do
    logs=$cache/$name layer=$cache/$name/net.safetensors named=() log=train.log
    [ "$name" != enwiki100m-drop200 ] || log=words.log # every query that there is
    if [ "$name" = wikitext-2 ]; then # PyTorch's network
        logs=$cache/wikitext-2-torch layer=${WIDEOUT_DATA:-../shared/data}/wikitext-2/torch/lstm.safetensors.index.json
        named=(--weight-name output.weight)
    fi
    if [ ! -s "$logs/test.log" ] || [ ! -s "$layer" ]; then
        echo "$name: left out, $logs/test.log or $layer is missing: 'make nets' makes them"
        continue
    fi
    n=$("$wideout" info --json "$logs/$log" | jq '.tensors[] | select(.name == "queries") | .shape[0]')
    d=$("$wideout" info --json "$logs/$log" | jq '.tensors[] | select(.name == "queries") | .shape[1]')
    cells=$((n / 24 < 16384 ? n / 24 : 16384)) nodes=16
    while ((nodes * nodes < cells)); do nodes=$((nodes + 16)); done
    leaves=$(((cells + nodes - 1) / nodes))
    beam=$(((cells / 8 - nodes) / leaves))
    beam=$((beam < 1 ? 1 : beam > 64 ? 64 : beam))
    for kind in flat tree two; do
        shape=(--nodes "$nodes" --leaves "$leaves" --beam "$beam") opened=(--probes 1 --cap 16)
        [ $kind != flat ] || shape=(--nodes 1 --leaves "$cells" --beam 1)
        [ $kind != two ] || opened=(--probes 2 --spread 2 --cap 8)
        "$wideout" build -q --layer "$layer" "${named[@]}" --log "$logs/$log" --router tree "${shape[@]}" --route-d "$d" \
            "${opened[@]}" --source labels --lambda 0 --thin 0 -o "$scratch/index" --json >"$scratch/build.json"
        "$wideout" eval -q --no-timing --index "$scratch/index" --layer "$layer" "${named[@]}" --log "$logs/test.log" --json |
            jq -c --arg data "$name" --arg kind $kind --argjson cells "$cells" --argjson compared \
                "$([ $kind = flat ] && echo "$cells" || echo $((nodes + beam * leaves)))" --slurpfile built "$scratch/build.json" '
            {data: $data, kind: $kind, cells: $cells, compared: $compared, p_at_1, p_at_5, full_p_at_1, full_p_at_5, classes: .sample_size,
             build_s: $built[0].seconds}' >>"$scratch/lines"
        tail -1 "$scratch/lines" | jq -r '"\(.data), \(.kind): \(.cells) cells, compared with \(.compared)  P@1 \(.p_at_1) (\(.p_at_1 / .full_p_at_1 * 1e4 |
            round / 100)% of FULL)  P@5 \(.p_at_5) (\(.p_at_5 / .full_p_at_5 * 1e4 | round / 100)%)  classes \(.classes * 10 | round / 10)  build \(.build_s | round) s"'
    done
    [ -s "$results" ] || echo '[]' >"$results"
    jq --slurpfile lines "$scratch/lines" --arg data "$name" 'map(select(.data != $data)) + ($lines | map(select(.data == $data))) |
        sort_by(.data)' "$results" >"$scratch/results" && cp "$scratch/results" "$results"
done
