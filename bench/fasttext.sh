#!/bin/bash
# fastText beside wideout, on the same model and the same text: bench/fasttext.sh [FOLDER]
#
# The data are this machine's package catalogue, labels with two or more uses, as 'wideout data deb822' makes them, written
# as fastText reads them. fastText trains a softmax and, beside it, a hierarchical one, both with 5 epochs and its other
# defaults; an index is tuned for the softmax model's layer, on the training lines, judged on the validation lines, to the
# default target (wideout) and to the best answers (best); full is the layer itself, by wideout. Then all answer the test lines, from text to the best label: one thread each, in turn, ROUNDS times. Times are CPU time, as
# others use the machine, medians, without what the same command takes for an empty text: loading, which is told apart.
#
# What is in FOLDER (by default in $WIDEOUT_CACHE) is not made again: training takes an hour. Needs fasttext and jq; the
# result goes to bench/results/fasttext.json.
set -eu
cd "$(dirname "$0")/.."
wideout=$(realpath "${BUILD:-build}/wideout")
results=$PWD/bench/results
folder=${1:-${WIDEOUT_CACHE:-$HOME/.cache/wideout}/fasttext}
rounds=${ROUNDS:-5} threads=$(nproc)
export LC_ALL=C
for need in fasttext jq; do
    command -v $need >/dev/null || { echo "fasttext.sh: $need is not installed" >&2 && exit 1; }
done
mkdir -p "$folder"
cd "$folder"

# ---- Data: a line a package, labels first, each feature as often as it was counted, spaces in names as _ ------------
if [ ! -s test.ft.txt ]; then
    apt-cache dumpavail | "$wideout" data deb822 -q -o data
    for part in train valid test; do
        awk 'FILENAME == ARGV[1] { gsub(/[ \t]/, "_"); feature[n_features++] = $0; next }
             FILENAME == ARGV[2] { label[n_labels++] = $0; next }
             FNR == 1 { next }
             {
                 n = split($1 ~ /:/ ? "" : $1, ids, ",")
                 line = ""
                 for (i = 1; i <= n; i++) line = line "__label__" label[ids[i]] " "
                 for (i = n ? 2 : 1; i <= NF; i++) {
                     split($i, pair, ":")
                     for (c = 0; c < pair[2]; c++) line = line feature[pair[1]] " "
                 }
                 sub(/ $/, "", line)
                 print line
             }' data/features.txt data/labels.txt data/$part.txt >$part.tmp
        mv $part.tmp $part.ft.txt
    done
fi

# ---- Models, and the index ------------------------------------------------------------------------------------------
for loss in softmax hs; do
    [ -s $loss.bin ] || fasttext supervised -input train.ft.txt -output $loss -loss $loss -epoch 5 -thread "$threads"
done
for part in train valid; do
    [ -s $part.log ] || "$wideout" embed softmax.bin --data $part.ft.txt -q -o $part.log
done
[ -s index ] || "$wideout" build --layer softmax.bin --log train.log --tune-log valid.log -q -o index --json >build.json
[ -s best ] || "$wideout" build --layer softmax.bin --log train.log --tune-log valid.log --target best -q -o best --json >best.json
[ -s full ] || "$wideout" build --layer softmax.bin --method full -q -o full --json >/dev/null

# ---- Answers ---------------------------------------------------------------------------------------------------------
: >empty.txt
answer() { # WHO TEXT
    case $1 in
    fasttext) fasttext predict softmax.bin "$2" 1 ;;
    hs) fasttext predict hs.bin "$2" 1 ;;
    wideout) "$wideout" predict --index index --net softmax.bin -k 1 -t 1 --format text -q "$2" ;;
    best) "$wideout" predict --index best --net softmax.bin -k 1 -t 1 --format text -q "$2" ;;
    full) "$wideout" predict --index full --net softmax.bin -k 1 -t 1 --format text -q "$2" ;;
    esac
}
cpu() { # WHO TEXT: seconds of CPU time; the answers are in WHO.answers
    local TIMEFORMAT='%U %S' said
    said=$({ time answer "$1" "$2" >"$1.answers" 2>"$1.said"; } 2>&1) || { cat "$1.said" >&2 && return 1; }
    awk '{ print $1 + $2 }' <<<"$said"
}
median() { sort -n "$1" | awk '{ x[NR] = $1 } END { print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }
everyone='fasttext hs full wideout best'
read -r load _ </proc/loadavg # before anything is measured
rm -f ./*.seconds ./*.loading
for ((round = 0; round < rounds; round++)); do
    for who in $everyone; do
        cpu "$who" empty.txt >>"$who.loading"
        cpu "$who" test.ft.txt >>"$who.seconds"
    done
done

# P@1: the share of lines with a label that the model has whose best answer is one of them. The same lines for all.
precision() { # WHO
    awk 'NR == FNR { answer[NR] = $1; next }
         { hit = 0; n = 0
           for (i = 1; i <= NF && $i ~ /^__label__/; i++) { n++; hit += $i == answer[FNR] }
           all += n > 0; hits += hit > 0 }
         END { printf "%.6f\n", hits / all }' "$1.answers" test.ft.txt
}
for who in $everyone; do
    jq -n --arg who "$who" --argjson seconds "$(median "$who.seconds")" --argjson loading "$(median "$who.loading")" \
        --argjson p_at_1 "$(precision "$who")" --argjson lines "$(wc -l <test.ft.txt)" \
        '{who: $who, p_at_1: $p_at_1, loading_s: $loading, total_s: $seconds,
          us_per_line: (($seconds - $loading) / $lines * 1e6)}'
done | jq -s --arg commit "$(git -C "$results" describe --always --abbrev=10 --dirty=+)" \
    --arg version "$("$wideout" --version | sed -n '1s/wideout //p')" --arg date "$(date -u +%Y-%m-%dT%H:%M:%SZ)" \
    --argjson cpu "$("$wideout" cpu --json | jq '{cpu: .model, instructions: .level}')" \
    --arg kernel "$(uname -r)" --argjson cores "$threads" --argjson load "$load" \
    --arg fasttext "$(dpkg-query -W -f '${Version}' fasttext 2>/dev/null)" --argjson rounds "$rounds" \
    --argjson model "$("$wideout" info --json softmax.bin | jq -c '{loss, d, words, labels}')" \
    --arg options "$(jq -r .build_options build.json)" --arg best "$(jq -r .build_options best.json)" --argjson lines "$(wc -l <test.ft.txt)" \
    '(.[] | select(.who == "fasttext")) as $base |
     {commit: $commit, version: $version, date: $date,
      machine: ($cpu + {cores: $cores, kernel: $kernel, load: $load}), fasttext: $fasttext, rounds: $rounds, lines: $lines, model: $model, index: $options, best: $best,
      times: "CPU seconds, medians of rounds in turn, one thread; a line: without loading",
      results: [.[] | . + {speedup: ($base.us_per_line / .us_per_line), p_at_1_share: (.p_at_1 / $base.p_at_1)}]}' >"$results/fasttext.json.tmp"
mv "$results/fasttext.json.tmp" "$results/fasttext.json"
jq -r '.results[] | [.who, .p_at_1, .p_at_1_share, .us_per_line, .speedup, .loading_s] | @tsv' "$results/fasttext.json" |
    awk -F '\t' 'BEGIN { printf "%-10s %8s %9s %12s %9s %10s\n", "", "P@1", "share", "us a line", "speed-up", "loading, s" }
                 { printf "%-10s %8.4f %8.2f%% %12.2f %8.1fx %10.3f\n", $1, $2, 100 * $3, $4, $5, $6 }'
