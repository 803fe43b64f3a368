#!/bin/bash
# Our training beside PyTorch's, on the same prepared files with the same recipe: torch.sh [--time] NAME [SEED...]
#
#   torch.sh eurlex57k          quality: seeds 1 2 3 on both sides; medians of P@1 and P@5 on the test file
#   torch.sh --time debian      speed: median time of 50 steps after 5, two threads on both sides, in turn, three times
#
# THREADS (2), PYTHON and TORCH_DEVICE (cpu; cuda where PyTorch has a GPU: quality only) change how they run.
# Needs 'make nets NETS=NAME' (for the data) and Debian's python3-torch. Results go to bench/results/torch-NAME.json, or
# torch-time-NAME.json.
set -eu
cd "$(dirname "$0")/.."
wideout=$(realpath "${BUILD:-build}")/wideout
cache=${WIDEOUT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/wideout}
python=${PYTHON:-/usr/bin/python3}
threads=${THREADS:-2}
device=${TORCH_DEVICE:-cpu}
timing=
[ "${1:-}" != --time ] || { timing=1; shift; }
[ $# -gt 0 ] || { echo "usage: torch.sh [--time] NAME [SEED...]" >&2; exit 2; }
name=$1
shift
[ $# -gt 0 ] || set -- 1 2 3
"$python" -c 'import torch' 2>/dev/null || { echo "torch.sh: needs python3-torch (apt-get install python3-torch)" >&2; exit 1; }
data=$cache/$name/data
[ -d "$data" ] || { echo "torch.sh: $data is missing: 'make nets NETS=$name' makes it" >&2; exit 1; }
kind=xc script=bench/torch_xc.py ending=txt
case $name in
debian) options='--epochs 7' ;;
eurlex57k) options='--counts raw --batch 128 --epochs 8' ;;
diginetica) options='--counts raw --batch 512 --epochs 4' ;;
wikitext-2) options='--epochs 7' kind=lm script=bench/torch_lm.py ending=tokens.safetensors ;;
*) echo "torch.sh: '$name' is not one of debian, eurlex57k, diginetica, wikitext-2" >&2; exit 2 ;;
esac
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

ours() { # OPTIONS...
    "$wideout" train $kind --train "$data/train.$ending" -o "$scratch/net" --threads "$threads" --json "$@"
}
theirs() {
    "$python" $script --train "$data/train.$ending" --threads "$threads" --device "$device" "$@"
}

if [ -n "$timing" ]; then
    for _ in 1 2 3; do
        # shellcheck disable=SC2086 # options are words
        ours $options --time-steps 50 | jq -c '{framework: "wideout", ms_per_step}'
        # shellcheck disable=SC2086
        theirs $options --time-steps 50 | jq -c '{framework, ms_per_step}'
    done | tee "$scratch/lines"
    out=bench/results/torch-time-$name.json
    jq -s --arg name "$name" --argjson threads "$threads" '{data: $name, threads: $threads, runs: .,
        ours_ms: ([.[] | select(.framework == "wideout").ms_per_step] | sort | .[1]),
        torch_ms: ([.[] | select(.framework != "wideout").ms_per_step] | sort | .[1])}
        | .ratio = .torch_ms / .ours_ms' "$scratch/lines" >"$out"
    jq -c '{data, ours_ms, torch_ms, ratio}' "$out"
    exit
fi

for seed in "$@"; do
    # shellcheck disable=SC2086
    ours $options --seed "$seed" --test "$data/test.$ending" |
        jq -c --argjson seed "$seed" '{framework: "wideout", seed: $seed, epochs, loss, test_p_at_1, test_p_at_5, seconds}'
    # shellcheck disable=SC2086
    theirs $options --seed "$seed" --test "$data/test.$ending" |
        jq -c '{framework, seed, epochs, loss, test_p_at_1, test_p_at_5, seconds}'
done | tee "$scratch/lines"
out=bench/results/torch-$name.json
jq -s --arg name "$name" 'def median(f): map(f) | sort | .[(length - 1) / 2 | floor];
    {data: $name, runs: ., ours: (map(select(.framework == "wideout")) | {p_at_1: median(.test_p_at_1), p_at_5: median(.test_p_at_5)}),
     torch: (map(select(.framework != "wideout")) | {p_at_1: median(.test_p_at_1), p_at_5: median(.test_p_at_5)})}
    | .relative = {p_at_1: (.ours.p_at_1 / .torch.p_at_1), p_at_5: (.ours.p_at_5 / .torch.p_at_5)}' "$scratch/lines" >"$out"
jq -c '{data, ours, torch, relative}' "$out"
