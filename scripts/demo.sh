#!/bin/bash
# What 'make demo' shows: from raw data to a wide layer that answers 100 times faster, on data that every Debian or Ubuntu
# machine carries.
set -eu
cd "$(dirname "$0")/.."
wideout=${BUILD:-build}/wideout
out=${BUILD:-build}/demo
mkdir -p "$out"

show() {
    printf '$%s\n' "$(printf ' %q' "$@")" | sed "s|$wideout|wideout|g"
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
build evidence --source-k 10

printf '\n%-10s %7s %7s %9s %14s %14s %10s\n' method P@1 P@5 classes 'us, batch 1' 'us, batch 1024' 'speed-up'
for method in full popular slide lss evidence; do
    jq -r '[.method, .p_at_1, .p_at_5, .sample_size,
            (.timings[] | select(.batch == 1) | .us_per_query), (.timings[] | select(.batch == 1024) | .us_per_query), .speedup] | @tsv' \
        "$out/$method.json" | LC_ALL=C awk -F '\t' '{printf "%-10s %7.4f %7.4f %9.0f %14.2f %14.2f %9.1fx\n", $1, $2, $3, $4, $5, $6, $7}'
done
printf 'Time: batch 1 with one thread, batch 1024 with all; speed-up over FULL at batch 1024, in one run. Test data.\n'

# Questions that were fixed beforehand, and FULL's answers beside the index's: also where the index is wrong.
if [ -s "$out/catalogue" ]; then
    format=text
    printf '%s\n' 'German dictionary for spell checking' 'ALSA sound player' 'Perl module to talk to PostgreSQL databases' \
        'Wayland compositor' >"$out/questions"
    cp "$out/questions" "$out/asked"
    cat <<'TEXT'

Ask for packages in words: what would a package with this description depend on? Nearly everything depends on libc6, so
--specific puts first what stands out against the training data. Whole package entries are what the index learned from; a
line that somebody typed is not like them, and --probes 8 lets it open eight cells of a table instead of one. It was built
for ten answers (--source-k 10). Here are the first of them, and those of FULL.
TEXT
else
    format=xc
    sed -n 2,5p "$out/data/test.txt" >"$out/asked"
    sed 's/ .*//; s/^/labels /' "$out/asked" >"$out/questions"
    printf '\nFour rows of the test data, and their labels; what stands out against the training data comes first.\nHere are the first of ten names, and those of FULL.\n'
fi
ask() { # FILE OPTION...: the answers to what was asked, into FILE
    "$wideout" predict --net "$out/net.safetensors" -k 10 --specific "$out/train.log.safetensors" --format $format \
        "${@:2}" "$out/asked" >"$1"
}
printf '\n'
show "$wideout" predict --index "$out/evidence.index.safetensors" --net "$out/net.safetensors" -k 10 \
    --specific "$out/train.log.safetensors" --probes 8 --format $format "$out/asked"
ask "$out/answers.full" --index "$out/full.index.safetensors"
ask "$out/answers.index" --index "$out/evidence.index.safetensors" --probes 8
ask "$out/answers.narrow" --index "$out/evidence.index.safetensors"
scripts/beside.sh "$out/questions" "$out/answers.index" "$out/answers.full"
printf 'Without --probes 8: '
scripts/beside.sh "$out/questions" "$out/answers.narrow" "$out/answers.full" | tail -1
run "${BUILD:-build}/wideout-bench" report "$out"/{full,popular,slide,lss,evidence}.json -o "$out/report.html" --title 'wideout: the demo'
cat <<TEXT

Made, in $out: data/ (train.txt, valid.txt, test.txt, features.txt, labels.txt), net.safetensors, train.log.safetensors,
      test.log.safetensors, METHOD.index.safetensors and METHOD.json for the five methods, asked, answers.*, report.html
Next: $wideout eval --index $out/evidence.index.safetensors --log $out/test.log.safetensors
      $wideout predict --index $out/evidence.index.safetensors --net $out/net.safetensors --format text -
TEXT
if "$wideout" serve none 2>&1 | grep -q 'built without a server'; then
    printf '      (wideout serve, which puts an index behind a port, needs libmicrohttpd-dev: make deps, then make)\n'
else
    printf '      %s serve %s --net %s --shadow 0.1\n      # then open http://127.0.0.1:8080/\n' "$wideout" \
        "$out/evidence.index.safetensors" "$out/net.safetensors"
fi
