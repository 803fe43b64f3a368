#!/bin/bash
# The figures of the engine on real layers: engine.sh [debian] [eurlex57k] [wikitext-2] [methods] [lss] [slide]; all by default.
#
# evidence: lambda is chosen on the validation log (the largest of a few that keeps 99.5% of FULL's P@1 and 99% of its P@5
# there), then judged on the test log, with times. lss: the paper's loss on Debian and WikiText-2, the margin loss on
# EURLEX57K. slide: its four settings and three seeds beside lss. methods: the others on Debian, with times. Quality is
# taken on at most 20,000 queries of a log, a seeded sample. Needs 'make nets'; WikiText-2 is PyTorch's network.
# Prints every command and a line of figures for it; the lines go to bench/results/engine.json too.
set -eu
cd "$(dirname "$0")/.."
wideout=$(realpath "${BUILD:-build}")/wideout
cache=${WIDEOUT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/wideout}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ $# -gt 0 ] || set -- debian eurlex57k wikitext-2 methods lss slide
lines=$scratch/lines
: >"$lines"

use() { # NAME: sets $layer (an array) and $logs
    case $1 in
    wikitext-2)
        logs=$cache/wikitext-2-torch
        torch=${WIDEOUT_DATA:-../shared/data}/wikitext-2/torch/lstm.safetensors.index.json
        layer=(--layer "$torch" --weight-name output.weight)
        ;;
    *)
        logs=$cache/$1
        layer=(--layer "$logs/net.safetensors")
        ;;
    esac
    if [ ! -s "$logs/test.log" ]; then
        echo "$1: left out, $logs/test.log is missing: 'make nets' makes it"
        return 1
    fi
}

build() { # OPTIONS...
    "$wideout" build "${layer[@]}" --log "$logs/train.log" -o "$scratch/index" --json "$@" >"$scratch/build.json"
}

judge() { # PART OPTIONS...
    local part=$1
    shift
    "$wideout" eval --index "$scratch/index" --log "$logs/$part.log" --max-queries 20000 --json "$@" \
        >"$scratch/eval.json"
}

line() { # NAME COMMAND...: one line of figures
    local name=$1
    shift
    printf '%s: wideout build %s\n' "$name" "$*"
    jq -c --arg data "$name" --arg command "wideout build $*" --slurpfile built "$scratch/build.json" '
        {data: $data, command: $command, method, p_at_1, p_at_5, full_p_at_1, full_p_at_5,
         p_at_1_of_full: (.p_at_1 / .full_p_at_1), p_at_5_of_full: (.p_at_5 / .full_p_at_5), neurons: .sample_size,
         share_of_neurons: (.sample_size / .m), build_s: $built[0].seconds, peak_mib: $built[0].peak_mib, cold_us,
         full_cold_us, timings}' "$scratch/eval.json" | tee -a "$lines" | jq -r '
        "  P@1 \(.p_at_1) (\(.p_at_1_of_full * 1e4 | round / 100)% of FULL)  P@5 \(.p_at_5) (\(.p_at_5_of_full * 1e4 | round / 100)%)  "
        + "classes \(.neurons * 10 | round / 10) (\(.share_of_neurons * 1e4 | round / 100)%)  build \(.build_s | round) s, \(.peak_mib | round) MiB",
        (.timings[]? | "  batch \(.batch), \(.threads) threads: \(.us_per_query) us, FULL \(.full_us_per_query) us, \(.speedup | round) times"),
        (select(.cold_us) | "  cold caches: \(.cold_us) us, FULL \(.full_cold_us) us")'
}

evidence() { # NAME
    use "$1" || return 0
    local lambda
    for lambda in 0.1 0.05 0.03 0.02 0.01; do
        build --method evidence --lambda $lambda
        judge valid --no-timing
        if jq -e '.p_at_1 >= 0.995 * .full_p_at_1 and .p_at_5 >= 0.99 * .full_p_at_5' "$scratch/eval.json" >/dev/null; then
            break
        fi
    done
    judge test
    line "$1" --method evidence --lambda $lambda
}

# The paper's loss is chaotic: a seed that ends with 4% of the classes and one that ends with 7% differ in rounding. So of
# three seeds the one is taken that has the best P@1 on the validation log with at most SHARE of the classes.
lss_of_three() { # NAME SHARE OPTIONS...
    use "$1" || return 0
    local name=$1 share=$2 seed best=1 best_p=-1 p
    shift 2
    for seed in 1 2 3; do
        build --method lss --last-step "$@" --seed $seed
        judge valid --no-timing
        p=$(jq -r --argjson share "$share" 'if .sample_size <= $share * .m then .p_at_1 else 0 end' "$scratch/eval.json")
        printf '%s: lss seed %s: on valid P@1 %s with at most %s of the classes\n' "$name" $seed "$p" "$share"
        if jq -ne --argjson p "$p" --argjson best "$best_p" '$p > $best' >/dev/null; then
            best=$seed best_p=$p
        fi
    done
    lss "$name" "$@" --seed $best
}

lss() { # NAME OPTIONS...
    use "$1" || return 0
    local name=$1
    shift
    build --method lss --last-step "$@"
    judge test --no-timing
    line "$name" --method lss --last-step "$@"
}

slide() { # NAME
    use "$1" || return 0
    local setting seed
    for setting in '-K 4 -L 1' '-K 6 -L 1' '-K 8 -L 10' '-K 4 -L 10'; do
        for seed in 1 2 3; do
            # shellcheck disable=SC2086 # options are words
            build --method slide $setting --seed $seed
            judge test --no-timing
            # shellcheck disable=SC2086
            line "$1" --method slide $setting --seed $seed
        done
    done
}

for part in "$@"; do
    case $part in
    debian | eurlex57k | wikitext-2) evidence "$part" ;;
    methods)
        use debian || continue
        for options in '--method popular --popular 2000' '--method slide -K 4 -L 10' '--method lss --last-step -K 4 -L 10 --seed 2' \
            '--method evidence --router tree --lambda 0.05'; do
            # shellcheck disable=SC2086 # options are words
            build $options
            judge test
            # shellcheck disable=SC2086
            line debian $options
        done
        ;;
    lss)
        lss_of_three debian 0.06 -K 4 -L 10
        lss_of_three wikitext-2 0.06 -K 4 -L 10 --rate 0.005 # the best of 0.005, 0.01, 0.015 on valid.log
        lss eurlex57k --loss margin -K 7 -L 10
        ;;
    slide)
        slide debian
        slide wikitext-2
        ;;
    *) echo "engine.sh: '$part' is not one of debian, eurlex57k, wikitext-2, methods, lss, slide" >&2; exit 2 ;;
    esac
done
jq -s '{command: "bench/engine.sh", figures: .}' "$lines" >bench/results/engine.json
