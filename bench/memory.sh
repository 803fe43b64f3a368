#!/bin/bash
# The most memory that training the bag network takes, for two shapes: m = 205,000 with 100,000 features, and that of
# Delicious-200K (205,443 labels, 782,585 features); d = 128, batch 256, a few steps on 20,000 made rows (4 MB).
set -eu
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for shape in '100000 205000' '782585 205443'; do
    # shellcheck disable=SC2086 # two numbers
    set -- $shape
    awk -v features="$1" -v labels="$2" 'BEGIN { srand(1); print 20000, features, labels
        for (i = 0; i < 20000; i++) {
            line = int(rand() * labels) " "; id = 0
            for (j = 0; j < 20; j++) { id += 1 + int(rand() * (features / 20 - 2)); line = line id ":1" (j < 19 ? " " : "") }
            print line } }' >"$scratch/train.txt"
    "${BUILD:-build}/wideout" train xc --train "$scratch/train.txt" -o "$scratch/net" --time-steps 3 --json |
        jq -r --arg shape "m = $2, $1 features, d = 128" '"\($shape): \(.peak_mib | round) MiB at most"'
done
