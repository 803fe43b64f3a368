#!/bin/bash
# What the tuner makes of real layers: tuned.sh [NAME...]; debian, wikitext-2, diginetica, tmall, enwiki100m-drop200,
# eurlex57k and its two other seeds, each of them with -best, and diginetica-20 by default. NAME-300: five seeded draws of 300 validation rows, and
# the worst of them. NAME-30x, -50x, -100x: the best at so many times FULL's speed in batches of 1,024.
#
# Builds on the validation log alone, with --target 0.995, NAME-best with --target best --partition, and no option that goes by the data
# (diginetica-20: 98% of FULL's own 20 best; synthetic layers: 0.95, to see what more classes cost), and judges on the test
# log, with times. Needs 'make nets', and for the synthetic layers
# 'wideout-bench run NAME', which makes them; WikiText-2 is PyTorch's network. Prints every command and a few lines of figures for
# it; they go to bench/results/tuned.json too, in place of those of the same data. Let nothing else run meanwhile.
set -eu
cd "$(dirname "$0")/.."
wideout=$(realpath "${BUILD:-build}")/wideout
cache=${WIDEOUT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/wideout}
results=${RESULTS:-bench/results/tuned.json}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ $# -gt 0 ] || set -- {debian,wikitext-2,diginetica,tmall,enwiki100m-drop200,eurlex57k,eurlex57k-seed2,eurlex57k-seed3}{,-best} diginetica-20

# judge NAME FOLDER LAYER TUNE_LOG OPTIONS...: builds with this tune log, judges on the test log; figures go to
# $scratch/line.
judge() {
    local name=$1 logs=$cache/$2 layer=$3 tune_log=$4 log=train.log named=() ks=1,5
    shift 4
    case $name in
    wikitext-2*) named=(--weight-name output.weight) ;;
    diginetica-20) ks=1,5,20 ;;
    enwiki*) log=words.log ;; # every query that there is
    esac
    "$wideout" build --layer "$layer" "${named[@]}" --log "$logs/$log" --tune-log "$tune_log" "$@" \
        -o "$scratch/index" --json >"$scratch/build.json"
    "$wideout" eval --index "$scratch/index" --layer "$layer" "${named[@]}" --log "$logs/test.log" -k $ks --json \
        >"$scratch/eval.json"
    jq -c --arg data "$name" --arg command "wideout build $*" --arg machine "$("$wideout" cpu --json | jq -r .model), $(nproc) cores" --slurpfile built "$scratch/build.json" '
        {data: $data, machine: $machine, command: $command, options: $built[0].options, method, m, d, p_at_1, p_at_5, full_p_at_1, full_p_at_5,
         p_at_1_of_full: (.p_at_1 / .full_p_at_1), p_at_5_of_full: (.p_at_5 / .full_p_at_5), agreement_at_20,
         neurons: .sample_size, wider_share, build_s: $built[0].seconds, peak_mib: $built[0].peak_mib,
         index_bytes: $built[0].index_bytes, cold_us, full_cold_us, perplexity, full_perplexity, log_z_error, log_z_bias, probability_sum, timings}' "$scratch/eval.json" >"$scratch/line"
    jq -r '
        "  \(.options | tojson)",
        "  P@1 \(.p_at_1) (\(.p_at_1_of_full * 1e4 | round / 100)% of FULL)  P@5 \(.p_at_5) (\(.p_at_5_of_full * 1e4 | round / 100)%)  "
        + (if .agreement_at_20 then "of FULL'"'"'s 20 best \(.agreement_at_20 * 1e4 | round / 100)%  " else "" end)
        + "classes \(.neurons * 10 | round / 10)  "
        + (if .perplexity then "perplexity \(.perplexity), FULL \(.full_perplexity)  " else "" end)
        + "build \(.build_s | round) s, \(.peak_mib | round) MiB",
        (.timings[]? | "  batch \(.batch), \(.threads) threads: \(.us_per_query) us, FULL \(.full_us_per_query) us, \(.speedup | round) times")' "$scratch/line"
}

# keep: $scratch/line in place of the results of the same data.
keep() {
    [ -s "$results" ] || echo '[]' >"$results"
    jq --slurpfile line "$scratch/line" 'map(select(.data != $line[0].data)) + $line | sort_by(.data)' "$results" \
        >"$scratch/results" && cp "$scratch/results" "$results"
}

there() { # NAME FOLDER LAYER
    [ -s "$cache/$2/test.log" ] && [ -s "$3" ] && return
    echo "$1: left out, $cache/$2/test.log or $3 is missing: 'make nets' makes them"
    return 1
}

tuned() { # NAME FOLDER LAYER OPTIONS...
    there "$1" "$2" "$3" || return 0
    echo "$1: wideout build ${*:4}"
    judge "$1" "$2" "$3" "$cache/$2/valid.log" "${@:4}"
    keep
}

# One draw, in a folder of its own: $scratch/SEED/draw.
one_draw() { # SEED NAME FOLDER LAYER ROWS OPTIONS...
    local seed=$1 scratch=$scratch/$1
    shift
    mkdir "$scratch"
    "$wideout" data draw "$cache/$2/valid.log" -n "$4" --seed "$seed" -o "$scratch/drawn" >/dev/null
    judge "$1" "$2" "$3" "$scratch/drawn" "${@:5}"
    jq -c --argjson seed "$seed" '. + {seed: $seed}' "$scratch/line" >"$scratch/draw"
    rm "$scratch/index"
}

# Five draws of so many validation rows, judged on the whole test log: the least share of FULL's P@1 and P@5, and for each
# batch size the least speed-up. SIDE_BY_SIDE=5 does them at once, each on its share of the cores.
tuned_draws() { # NAME FOLDER LAYER ROWS OPTIONS...
    local name=$1 rows=$4 at_once=${SIDE_BY_SIDE:-1} cores first seed
    there "$1" "$2" "$3" || return 0
    cores=$(($(nproc) / at_once))
    first=$(taskset -pc $$ | sed 's/.*: \([0-9]*\).*/\1/')
    for seed in 1 2 3 4 5; do
        echo "$name: wideout data draw valid.log -n $rows --seed $seed -o drawn; wideout build --tune-log drawn ${*:5}"
        (
            taskset -pc $((first + seed % at_once * cores))-$((first + seed % at_once * cores + cores - 1)) $BASHPID >/dev/null
            one_draw "$seed" "$@"
        ) &
        if ((seed % at_once == 0)); then wait; fi
    done
    wait
    cat "$scratch"/[1-5]/draw >"$scratch/draws"
    rm -r "$scratch"/[1-5]
    [ "$(wc -l <"$scratch/draws")" -eq 5 ] || { echo "$name: not all draws could be judged"; return 1; }
    jq -sc --argjson rows "$rows" '. as $draws | .[0] | {data, machine, command, m, d, full_p_at_1, full_p_at_5, rows: $rows,
        p_at_1_of_full: ($draws | map(.p_at_1_of_full) | min), p_at_5_of_full: ($draws | map(.p_at_5_of_full) | min),
        timings: ([$draws[].timings[]?] | group_by(.batch) | map(min_by(.speedup))),
        draws: ($draws | map({seed, method, options, p_at_1, p_at_5, p_at_1_of_full, p_at_5_of_full, neurons, build_s, timings}))}' \
        "$scratch/draws" >"$scratch/line"
    jq -r '"\(.data): the worst of five: P@1 \(.p_at_1_of_full * 1e4 | round / 100)% of FULL, P@5 \(.p_at_5_of_full * 1e4 | round / 100)%"
        + ([.timings[]? | ", batch \(.batch) \(.speedup | round) times"] | add // "")' "$scratch/line"
    keep
}

layer_of() { # NAME
    case $1 in
    wikitext-2) echo "${WIDEOUT_DATA:-../shared/data}/wikitext-2/torch/lstm.safetensors.index.json" ;;
    synthetic-*) echo "$cache/$(folder_of "$1")/net.safetensors" ;;
    *) echo "$cache/$1/net.safetensors" ;;
    esac
}

folder_of() { # NAME
    case $1 in
    wikitext-2) echo wikitext-2-torch ;;
    synthetic-10k) echo synthetic-10000-64-100000-1.5 ;;
    synthetic-100k) echo synthetic-100000-64-100000-1.5 ;;
    synthetic-1m) echo synthetic-1000000-64-100000-1.5 ;;
    *) echo "$1" ;;
    esac
}

for name in "$@"; do
    data=$name goal=(--target 0.995)
    case $name in
    *-best) data=${name%-best} goal=(--target best --partition) ;;
    *-300) data=${name%-300} ;;
    *-30x | *-50x | *-100x)
        data=${name%-*}
        full=$(jq --arg data "$data-best" '.[] | select(.data == $data).timings[] | select(.batch == 1024).full_us_per_query' "$results")
        [ -n "$full" ] || { echo "$name: $results has no $data-best, which tells FULL's time"; continue; }
        times=${name##*-}
        goal=(--target best --batch 1024 --target-us "$(jq -n "$full / ${times%x} * 1000 | floor / 1000")")
        ;;
    esac
    case $data in
    debian | debian-7 | debian-15 | debian-30 | diginetica | tmall | wikitext-2 | enwiki100m | enwiki100m-drop200 | eurlex57k | eurlex57k-seed[23])
        where=("$(folder_of "$data")" "$(layer_of "$data")")
        case $name in
        *-300) tuned_draws "$name" "${where[@]}" 300 "${goal[@]}" ;;
        *) tuned "$name" "${where[@]}" "${goal[@]}" ;;
        esac
        ;;
    diginetica-20) tuned "$name" diginetica "$(layer_of diginetica)" --k 20 --target-agree 0.98 --batch 1024 --max-time 10m ;;
    synthetic-10k | synthetic-100k | synthetic-1m)
        tuned "$name" "$(folder_of "$name")" "$(layer_of "$name")" --target 0.95 --target5 0.9 --batch 1024 --max-time 5m
        ;;
    *)
        echo "tuned.sh: '$name' is none of debian, debian-7, debian-15, debian-30, diginetica, tmall, wikitext-2, enwiki100m, enwiki100m-drop200, eurlex57k, eurlex57k-seed2, eurlex57k-seed3 (each with -best, -300, -30x, -50x or -100x too), diginetica-20, synthetic-10k, synthetic-100k, synthetic-1m" >&2
        exit 2
        ;;
    esac
done
