#!/bin/bash
# Classes that are added to an index, beside an index that was built with them: update.sh [NAME [CLASSES [SEED]]]; debian,
# 1,000 and 1 by default.
#
# CLASSES are drawn by SEED and held out of the layer and the logs (update_split.py). An index is tuned with all classes, to the
# default targets, as evidence: of a method without cells there would be nothing to see. Another is built by the options that
# were found, from the layer and the log without those classes; then they are added by 'wideout update'. Prints for both, and
# for FULL: P@1 and P@5 on the test queries that have one of these classes as a label; the same where those labels alone count;
# the same of all test queries; classes scored a query; and what the update took. They go to bench/results/update.json too.
# Needs 'make nets', numpy, and four minutes; MAX_TIME=60s tunes shorter.
set -eu
cd "$(dirname "$0")/.."
name=${1:-debian} classes=${2:-1000} seed=${3:-1}
wideout=$(realpath "${BUILD:-build}")/wideout
cache=${WIDEOUT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/wideout}
results=${RESULTS:-bench/results/update.json}
python=${PYTHON:-/usr/bin/python3}
about=$(bench/about.sh "$(dirname "$wideout")")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ ! -s "$cache/$name/net.safetensors" ] || [ ! -s "$cache/$name/test.log" ]; then
    echo "$name: $cache/$name/net.safetensors or its logs are missing: 'make nets' makes them" >&2
    exit 1
fi
"$python" bench/update_split.py "$cache/$name/net.safetensors" "$cache/$name" "$classes" "$seed" "$scratch"
cd "$scratch"

"$wideout" build -q --layer layer --log train.log --tune-log valid.log --method evidence --target 0.995 --max-time "${MAX_TIME:-180s}" -o with --json >with.json
read -ra options <<<"$(jq -r .build_options with.json)"
# Built again, so that both are of the same options and of nothing else.
"$wideout" build -q --layer layer --log train.log "${options[@]}" -o with --json >with.json
"$wideout" build -q --layer layer.less --log train.log.less "${options[@]}" -o less --json >less.json
own=()
[ "$(jq -r .options.weights less.json)" != bf16 ] || own=(--layer layer.less) # whose f32 rows tie the new index to its layer
for _ in 1 2 3; do
    "$wideout" update -q less "${own[@]}" --add rows -o more --json >more.json
    jq .seconds more.json
done | sort -g >seconds

for index in with more; do
    for log in held alone test; do
        "$wideout" eval -q --index $index --layer layer --log $log.log --no-timing --json |
            jq -c "{index: \"$index\", log: \"$log\", n, p_at_1, p_at_5, full_p_at_1, full_p_at_5, label_recall, sample_size}"
    done
done >figures
cd - >/dev/null
jq -s --arg name "$name" --argjson classes "$classes" --argjson seed "$seed" --arg options "${options[*]}" \
    --slurpfile seconds "$scratch/seconds" --slurpfile with "$scratch/with.json" --slurpfile less "$scratch/less.json" \
    --slurpfile more "$scratch/more.json" --argjson about "$about" '
    {data: $name} + $about + {classes: $classes, seed: $seed, m: $more[0].m, build_options: $options,
     update_seconds: $seconds[1], build_seconds: $with[0].seconds, file_bytes: $less[0].file_bytes,
     kept_queries: $less[0].kept_queries, entries_before: $more[0].entries_before, entries: $more[0].entries,
     entries_built: $with[0].entries, figures: .}' "$scratch/figures" >"$results"
jq -r '"\(.data): \(.classes) of \(.m) classes added in \(.update_seconds * 100 | round / 100) s; \(.kept_queries) queries kept, \(.file_bytes / 1e5 | round / 10) MB",
    (.figures[] | "  \({with: "built with them", more: "added"}[.index]), \({held: "queries that have them", alone: "the same, these labels alone", test: "all test queries"}[.log]) (\(.n)): P@1 \(.p_at_1), P@5 \(.p_at_5); FULL \(.full_p_at_1), \(.full_p_at_5); \(.sample_size * 10 | round / 10) classes a query")' "$results"
