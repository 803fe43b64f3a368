#!/bin/bash
# What 'make demo' shows: from raw data to a wide layer that answers 100 times faster, on data that every Debian or Ubuntu
# machine carries.
set -eu
cd "$(dirname "$0")/.."
wideout=${BUILD:-build}/wideout
out=${BUILD:-build}/demo
mkdir -p "$out"

show() {
    printf '$ %s\n' "$*" | sed "s|$wideout|wideout|g"
}

run() { # shows a command, then runs it
    printf '\n'
    show "$@"
    "$@"
}

if command -v apt-cache >/dev/null && apt-cache dumpavail >"$out/catalogue" 2>/dev/null && [ -s "$out/catalogue" ]; then
    printf 'The package catalogue of this machine: descriptions in, dependencies out.\n'
    run "$wideout" data deb822 "$out/catalogue" --min-label-count 2 -o "$out/data"
else
    printf 'No package catalogue here (apt-cache dumpavail prints nothing): made data instead.\n'
    run "$wideout" data synthetic --as text -m 20000 -n 40000 -o "$out/data"
    rm -f "$out/catalogue"
fi
run "$wideout" train xc --train "$out/data/train.txt" --valid "$out/data/valid.txt" --test "$out/data/test.txt" \
    --epochs 6 -o "$out/net.safetensors"
for part in train test; do
    run "$wideout" embed "$out/net.safetensors" --data "$out/data/$part.txt" -o "$out/$part.log.safetensors"
done

printf '\nFive ways to answer a query with that layer. FULL is the exact layer itself.\n'
build() { # METHOD OPTIONS...: the index, and how it does on the test data
    local method=$1 index=$out/$1.index.safetensors
    shift
    local command=("$wideout" build --method "$method" "$@" --layer "$out/net.safetensors"
        --log "$out/train.log.safetensors" -o "$index")
    show "${command[@]}"
    "${command[@]}" --json >"$out/$method.build.json"
    "$wideout" eval --index "$index" --log "$out/test.log.safetensors" --json >"$out/$method.json"
}
build full
build popular --popular 500
build slide -K 6 -L 10
build lss --iterations 300 --max-neurons 2000
build evidence

printf '\n%-10s %7s %7s %9s %14s %14s %10s\n' method P@1 P@5 classes 'us, batch 1' 'us, batch 1024' 'speed-up'
for method in full popular slide lss evidence; do
    jq -r '[.method, .p_at_1, .p_at_5, .sample_size,
            (.timings[] | select(.batch == 1) | .us_per_query), (.timings[] | select(.batch == 1024) | .us_per_query), .speedup] | @tsv' \
        "$out/$method.json" | LC_ALL=C awk -F '\t' '{printf "%-10s %7.4f %7.4f %9.0f %14.2f %14.2f %9.1fx\n", $1, $2, $3, $4, $5, $6, $7}'
done
printf 'Time: batch 1 with one thread, batch 1024 with all; speed-up over FULL at batch 1024, in one run. Test data.\n'

printf '\nThree predictions by name, for examples that nobody has seen:\n'
predict=("$wideout" predict --index "$out/evidence.index.safetensors" --net "$out/net.safetensors" -k 5)
if [ -s "$out/catalogue" ]; then
    printf '%s\n' 'music score editor with a Qt user interface' 'Python 3 bindings for a fast image library' \
        'Perl module to talk to PostgreSQL databases' >"$out/three"
    cat "$out/three"
    run "${predict[@]}" --format text "$out/three"
else
    sed -n 2,4p "$out/data/test.txt" >"$out/three"
    run "${predict[@]}" --format xc "$out/three"
fi
run "${BUILD:-build}/wideout-bench" report "$out"/{full,popular,slide,lss,evidence}.json -o "$out/report.html" --title 'wideout: the demo'
cat <<TEXT

Made, in $out: data/ (train.txt, valid.txt, test.txt, features.txt, labels.txt), net.safetensors, train.log.safetensors,
      test.log.safetensors, METHOD.index.safetensors and METHOD.json for the five methods, report.html
Next: $wideout eval --index $out/evidence.index.safetensors --log $out/test.log.safetensors
      $wideout predict --index $out/evidence.index.safetensors --net $out/net.safetensors --format text -
TEXT
