#!/bin/bash
# An index that learns while it serves, beside one that does not and one that is built again.
#
#   bench/drift.sh [NET FIRST SECOND [FROM [BUILD OPTION...]]]
#
# NET      the network, or its layer
# FIRST    the log that the index is built from
# SECOND   the log that is served, in its order: each query is asked at k = 5, then its labels are sent as feedback
# FROM     P@1 and P@5 count the queries of SECOND from this one on (default: half of them)
# OPTIONs  of wideout build; without any it tunes evidence, which learns, to the default targets: on TUNE=FILE where that is given
#
# ROUNDS=N repeats the first three in turn, and takes the medians of their rates: others may use the machine.
# HALF_LIFE=N queries (default: nothing fades). The servers have --shadow 0.01. OUT=FOLDER keeps the indexes
# (default: a temporary folder). Prints a line of JSON for each:
#
#   static    does not learn
#   told      does not learn, but is sent the same feedback, and refuses it: what the requests alone cost
#   learning  learns
#   known     built from FIRST and the queries of SECOND before FROM: all that was known then
#   all       built from FIRST and all of SECOND, those that are judged too: what no index can know
#
# and then which share of the gap to 'known' and to 'all' the learning one closes, and what it costs: cost_of_learning is the
# share of requests/s that a server which learns has less than one that refuses the same feedback.
# All of it goes to RESULTS=FILE too. Without arguments: Diginetica, the network of its first half in the cache ('make nets
# NETS=diginetica-half'), tuned on its valid.log, from query 200,000 on, three rounds, to bench/results/drift.json; as long as
# the tuner, three builds and eleven replays take, on a machine that does nothing else.
set -eu
root=$(realpath "$(dirname "$0")/..")
if [ $# -eq 0 ]; then
    cache=${WIDEOUT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/wideout}/diginetica-half
    for file in net.safetensors train.log valid.log test.log; do
        [ -s "$cache/$file" ] || { echo "$cache/$file is missing: 'make nets NETS=diginetica-half' makes it" >&2; exit 1; }
    done
    : "${TUNE:=$cache/valid.log}" "${ROUNDS:=3}" "${RESULTS:=$root/bench/results/drift.json}"
    set -- "$cache/net.safetensors" "$cache/train.log" "$cache/test.log" 200000
fi
[ $# -ge 3 ] || { sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 2; }
: "${BUILD:=$root/build}"
wideout=$(realpath "$BUILD/wideout") replay=$(realpath "$BUILD/bench/replay")
net=$1 first=$2 second=$3
shift 3
n=$("$wideout" info --json "$second" | jq '[.tensors[]? | select(.name == "queries") | .shape[0]][0] // .queries')
from=$((n / 2))
if [ $# -gt 0 ]; then
    from=$1
    shift
fi
if [ -n "${OUT:-}" ]; then
    mkdir -p "$OUT"
else
    OUT=$(mktemp -d)
    trap 'rm -rf "$OUT"' EXIT
fi

# ---- Indexes ------------------------------------------------------------------------------------------------------------
if [ $# -gt 0 ]; then
    options=("$@")
    "$wideout" build -q --layer "$net" --log "$first" "${options[@]}" -o "$OUT/static" >/dev/null
else
    "$wideout" build -q --layer "$net" --log "$first" --method evidence --target 0.995 ${TUNE:+--tune-log "$TUNE"} -o "$OUT/static" --json >"$OUT/static.json"
    read -ra options < <(jq -r .build_options "$OUT/static.json")
fi
echo "index: ${options[*]}" >&2
"$replay" cut "$second" "$from" "$OUT/before.log"
"$wideout" build -q --layer "$net" --log "$first" --log "$OUT/before.log" "${options[@]}" -o "$OUT/known" >/dev/null
"$wideout" build -q --layer "$net" --log "$first" --log "$second" "${options[@]}" -o "$OUT/all" >/dev/null

# ---- Serving ------------------------------------------------------------------------------------------------------------
shadow=(--shadow 0.01)
play() { # NAME INDEX SKIP yes|no ARGUMENT...
    "$replay" run "$wideout" "$second" "$3" "$from" "$4" "$2" "${shadow[@]}" "${@:5}" | jq -c --arg name "$1" '{name: $name} + .' |
        tee -a "$OUT/lines"
}
: >"$OUT/lines"
about=$("$root/bench/about.sh" "$BUILD")
for _ in $(seq "${ROUNDS:-1}"); do
    play static "$OUT/static" 0 no
    play told "$OUT/static" 0 yes
    play learning "$OUT/static" 0 yes --learn ${HALF_LIFE:+--half-life "$HALF_LIFE"}
done
play known "$OUT/known" "$from" no
play all "$OUT/all" "$from" no
jq -sc 'def median: sort | .[length / 2 | floor];
    (group_by(.name) | map({(.[0].name): (.[-1] + {requests_per_s: (map(.requests_per_s) | median)})}) | add) as $r |
    def closed($k; $to): ($r[$to][$k] - $r.static[$k]) as $gap | if $gap > 0 then ($r.learning[$k] - $r.static[$k]) / $gap else null end;
    {gap_closed_p_at_5: closed("p_at_5"; "known"), gap_closed_p_at_1: closed("p_at_1"; "known"),
     of_all_p_at_5: closed("p_at_5"; "all"), of_all_p_at_1: closed("p_at_1"; "all"),
     cost_of_learning: (1 - $r.learning.requests_per_s / $r.told.requests_per_s),
     requests_per_s_beside_static: ($r.learning.requests_per_s / $r.static.requests_per_s)}' "$OUT/lines" >"$OUT/summary"
cat "$OUT/summary"
[ -z "${RESULTS:-}" ] || jq -s --arg net "$(basename "$(dirname "$(realpath "$net")")")" --argjson from "$from" --arg options "${options[*]}" \
    --argjson about "$about" --arg half_life "${HALF_LIFE:-never}" --argjson rounds "${ROUNDS:-1}" --slurpfile summary "$OUT/summary" '
    {data: $net} + $about + {from: $from, build_options: $options, half_life: $half_life, rounds: $rounds, summary: $summary[0], runs: .}' "$OUT/lines" >"$RESULTS"
