#!/bin/bash
# What 'make demo' shows: from raw data to a trained wide layer, on data that every Debian or Ubuntu machine carries.
set -eu
cd "$(dirname "$0")/.."
wideout=${BUILD:-build}/wideout
out=${BUILD:-build}/demo
mkdir -p "$out"

run() { # shows a command, then runs it
    printf '\n$ %s\n' "$*" | sed "s|$wideout|wideout|"
    "$@"
}

run "$wideout" cpu
if command -v apt-cache >/dev/null && apt-cache dumpavail >"$out/catalogue" 2>/dev/null && [ -s "$out/catalogue" ]; then
    printf '\nThe package catalogue: descriptions in, dependencies out.\n'
    run "$wideout" data deb822 "$out/catalogue" -o "$out/data"
else
    printf '\nNo package catalogue here (apt-cache dumpavail prints nothing): made data instead.\n'
    run "$wideout" data synthetic --as text -m 20000 -n 40000 -o "$out/data"
fi
run "$wideout" info "$out/data/train.txt"
run "$wideout" train xc --train "$out/data/train.txt" --valid "$out/data/valid.txt" --test "$out/data/test.txt" \
    --epochs 4 -o "$out/net.safetensors"
run "$wideout" embed "$out/net.safetensors" --data "$out/data/test.txt" --score -o "$out/test.log.safetensors"
cat <<TEXT

Made: $out/data (train.txt, valid.txt, test.txt, features.txt, labels.txt), $out/net.safetensors,
      $out/test.log.safetensors
Next: $wideout info $out/net.safetensors
TEXT
