#!/bin/bash
# 'wideout serve' under load, beside a bare libmicrohttpd: serve.sh [ROUND [SOAK]], seconds of a round (2) and of the soak (600;
# 0: none). Indexes of the network NAME (debian) that 'make nets' trained: an evidence index with its defaults for ten answers,
# and another to reload. bench/load.c does the work, and says what each figure is; it fails where a request does, where an answer
# is not that of the index whose checksum it carries, or where the server grows. All of it goes to bench/results/serve.json
# (RESULTS=FILE: there), also where it failed. With both at their defaults: 14 minutes, on a machine that does nothing else.
set -eu
cd "$(dirname "$0")/.."
round=${1:-2} soak=${2:-600} name=${NAME:-debian}
build=$(realpath "${BUILD:-build}")
cache=${WIDEOUT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/wideout}/$name
results=${RESULTS:-bench/results/serve.json}
if [ ! -s "$cache/net.safetensors" ] || [ ! -s "$cache/test.log" ]; then
    echo "$name: $cache/net.safetensors or its logs are missing: 'make nets' makes them" >&2
    exit 1
fi
options=(--method evidence --source-k 10)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for seed in 1 2; do
    "$build/wideout" build -q --layer "$cache/net.safetensors" --log "$cache/train.log" "${options[@]}" --seed $seed -o "$scratch/index$seed" --json \
        >"$scratch/built$seed"
done
# Server and load share two cores, as the figures have it; a third would have one to itself.
pin=()
if [ "$(nproc)" -gt 2 ] && command -v taskset >/dev/null; then
    cores=$(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' | awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i }' | head -2 | paste -sd,)
    pin=(taskset -c "$cores")
fi
code=0
echo '{}' | tee "$scratch/load" >"$scratch/soak"
about=$(bench/about.sh "$build")
"${pin[@]}" "$build/bench/load" --json "$scratch/load" "$build/wideout" "$scratch/index1" "$cache/test.log" "$round" "$scratch/index2" || code=$?
if [ "$soak" != 0 ]; then
    "${pin[@]}" "$build/bench/load" --json "$scratch/soak" --soak "$soak" "$build/wideout" "$scratch/index1" "$cache/test.log" || code=$?
fi
jq -s --arg data "$name" --argjson about "$about" --arg options "${options[*]}" --arg pinned "${cores:-}" --argjson failed "$code" \
    --slurpfile built "$scratch/built1" '
    {data: $data} + $about + {pinned_to: $pinned, m: $built[0].m, d: $built[0].d, build_options: $options, failed: ($failed != 0)} + .[0] + .[1]' "$scratch/load" "$scratch/soak" >"$results"
exit $code
