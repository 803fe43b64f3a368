#!/bin/bash
# Boosted tables against independent ones: boost.sh [debian] [eurlex57k] [wikitext-2]; all by default.
#
# evidence with the learners mix and boost at the default K and L, for each lambda ($LAMBDAS, falling), seeds 1, 2 and 3
# ($SEEDS), judged on the test log ($PART: valid is for choosing), at most 20,000 queries. A boosted index has more neurons
# at the same lambda. So the last lambda is mix's alone, and beside boost's P@1 and P@5 stand those of mix at as many
# neurons: read off the line through its medians, over the logarithm of the neurons. Prints medians over the seeds; every
# run goes to bench/results/boost.json, where data sets and seeds that were not run stay as they were. Needs 'make nets'.
set -eu
cd "$(dirname "$0")/.."
wideout=$(realpath "${BUILD:-build}")/wideout
cache=${WIDEOUT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/wideout}
part=${PART:-test}
lambdas=${LAMBDAS:-0.1 0.05 0.02 0.01}
results=${RESULTS:-bench/results/boost.json}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ $# -gt 0 ] || set -- debian eurlex57k wikitext-2
lines=$scratch/lines
: >"$lines"

run() { # NAME LEARNER LAMBDA SEED
    "$wideout" build "${layer[@]}" --log "$logs/train.log" -o "$scratch/index" --method evidence --learner "$2" \
        --lambda "$3" --seed "$4" -q >"$scratch/build"
    "$wideout" eval --index "$scratch/index" --log "$logs/$part.log" --max-queries 20000 --no-timing --json -q |
        jq -c --arg data "$1" --arg part "$part" --arg learner "$2" --argjson lambda "$3" --argjson seed "$4" '
            {data: $data, part: $part, learner: $learner, lambda: $lambda, seed: $seed, p_at_1, p_at_5, full_p_at_1,
             full_p_at_5, label_recall, neurons: .sample_size}' >>"$lines"
}

for name in "$@"; do
    case $name in
    debian | eurlex57k)
        logs=$cache/$name
        layer=(--layer "$logs/net.safetensors")
        ;;
    wikitext-2)
        logs=$cache/wikitext-2-torch
        layer=(--layer "${WIDEOUT_DATA:-../shared/data}/wikitext-2/torch/lstm.safetensors.index.json"
            --weight-name output.weight)
        ;;
    *) echo "boost.sh: '$name' is not one of debian, eurlex57k, wikitext-2" >&2; exit 2 ;;
    esac
    if [ ! -s "$logs/$part.log" ]; then
        echo "$name: left out, $logs/$part.log is missing: 'make nets' makes it"
        continue
    fi
    for seed in ${SEEDS:-1 2 3}; do
        for lambda in $lambdas; do
            run "$name" mix "$lambda" "$seed"
            [ "$lambda" = "${lambdas##* }" ] || run "$name" boost "$lambda" "$seed"
        done
    done
done

[ -s "$results" ] || echo '{"runs": []}' >"$results"
jq --slurpfile runs "$lines" --arg part "$part" '
    def median: sort | (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2;
    # What mix has at n neurons; null beyond its ends.
    def at(n; key): sort_by(.neurons) as $c | [range(1; $c | length) | select($c[. - 1].neurons <= n and n <= $c[.].neurons)][0]
        | if . == null then null else $c[. - 1] as $a | $c[.] as $b
          | $a[key] + ($b[key] - $a[key]) * ((n / $a.neurons | log) / ($b.neurons / $a.neurons | log)) end;
    ($runs | map([.data, .part, .seed]) | unique) as $new
    | [.runs[] | select([.data, .part, .seed] | IN($new[]) | not)] + $runs
    | (group_by([.data, .part, .learner, .lambda])
       | map({data: .[0].data, part: .[0].part, learner: .[0].learner, lambda: .[0].lambda, seeds: length,
              p_at_1: (map(.p_at_1) | median), p_at_5: (map(.p_at_5) | median), neurons: (map(.neurons) | median)})) as $m
    | {command: "bench/boost.sh",
       medians: ($m | map(. as $row | if .learner == "mix" then . else
           ($m | map(select(.data == $row.data and .part == $row.part and .learner == "mix"))) as $mix
           | . + {mix_p_at_1: ($mix | at($row.neurons; "p_at_1")), mix_p_at_5: ($mix | at($row.neurons; "p_at_5"))} end)),
       runs: .}' "$results" >"$scratch/results"
cp "$scratch/results" "$results"
jq -r --arg part "$part" '
    def show: if . == null then "" else . * 1e4 | round / 1e4 end;
    (["data", "learner", "lambda", "seeds", "P@1", "P@5", "neurons", "mix P@1", "mix P@5"] | @tsv),
    (.medians[] | select(.part == $part)
     | [.data, .learner, .lambda, .seeds, (.p_at_1 | show), (.p_at_5 | show), (.neurons * 10 | round / 10),
        (.mix_p_at_1 | show), (.mix_p_at_5 | show)] | @tsv)' "$results" | expand -t 12
