#!/bin/bash
# The golden files of tests/golden: every version opens them, and answers as the one that wrote them did, on every
# instruction set that this machine has.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
golden=$PWD/tests/golden
cd "$scratch" || exit 1
levels='ref avx2 avx512'

# Classes must be the same, scores nearly: instruction sets add in another order.
same_answers() { # EXPECTED GOT
    paste -d '\n' "$1" "$2" | awk -F '\t' '
        NR % 2 { n = split($0, expected, "\t"); next }
        NF != n { print "line " NR / 2 ": " NF " fields, expected " n; bad = 1; next }
        { for (i = 1; i <= NF; i++) {
            far = i % 2 ? $i != expected[i] : ($i - expected[i]) ^ 2 > (2e-5 * (1 + expected[i] ^ 2)) ^ 2
            if (far) { print "line " NR / 2 ": " $i ", expected " expected[i]; bad = 1 }
        } }
        END { exit bad || NR < 2 }' && [ "$(wc -l <"$1")" -eq "$(wc -l <"$2")" ]
}
printf '3\t1.5\n' >a
printf '4\t1.5\n' >b
printf '3\t1.501\n' >c
check 'the comparison takes what is the same' same_answers a a
for other in b c /dev/null; do check "and nothing else: $other" bash -c "$(declare -f same_answers); ! same_answers a $other"; done

for level in $levels; do
    export WIDEOUT_CPU=$level
    # 'wideout cpu' would measure too, for half a minute under sanitizers.
    if "$WIDEOUT" predict -q --index "$golden/index-full.safetensors" "$golden/log.safetensors" 2>&1 |
        grep -q 'the best that this machine can run is'; then
        ok "$level # skip: not on this machine"
        continue
    fi
    for index in "$golden"/index-*.safetensors; do
        name=$(basename "$index" .safetensors) log=$golden/log.safetensors layer=() scores=()
        [ "$name" != index-names ] || log=$golden/log-bf16.safetensors
        [ "$name" != index-none ] || layer=(--layer "$golden/layer.safetensors")
        case $name in index-partition | index-mixture) scores=(--logprob) ;; esac
        "$WIDEOUT" predict -q --index "$index" "${layer[@]}" "${scores[@]}" "$log" >answers 2>&1
        check "$level: $name answers as it did" same_answers "$golden/$name.answers" answers
    done
    for net in xc w2v lm; do
        data=$golden/tokens.safetensors
        [ $net != xc ] || data=$golden/examples.txt
        "$WIDEOUT" embed -q "$golden/network-$net.safetensors" --data "$data" --max-queries 12 -o log >/dev/null
        "$WIDEOUT" build -q --layer "$golden/network-$net.safetensors" --method full -o full >/dev/null
        "$WIDEOUT" predict -q --index full log >answers 2>&1
        check "$level: the $net network answers as it did" same_answers "$golden/network-$net.answers" answers
    done
done
unset WIDEOUT_CPU

for file in "$golden"/*.safetensors; do
    layer=()
    [ "${file##*/}" != index-none.safetensors ] || layer=(--layer "$golden/layer.safetensors")
    same "info: $(basename "$file")" '["ok","0.1.0","1"]' "$("$WIDEOUT" info --json "$file" "${layer[@]}" |
        jq -c '[.checksums, .metadata["wideout.version"], .metadata["wideout.format"]]')"
done
same 'the curve of the tuned index' '[9,true,5,"evidence"]' \
    "$("$WIDEOUT" info --json "$golden/index-tuned.safetensors" | jq -c '[(.tuning.curve | length), .tuning.met, .tuning.k, .index.method]')"

# The script that made them still runs, and makes a file of each kind.
check 'make.sh runs' env WIDEOUT="$WIDEOUT" "$golden/make.sh" made
for file in "$golden"/*.safetensors; do
    case ${file##*/} in
    layer-v1.*) continue ;;
    shard-*) if [ ! -x "$WIDEOUT-mpi" ] || ! command -v mpirun >/dev/null; then continue; fi ;;
    esac
    check "make.sh makes $(basename "$file")" test -s "made/$(basename "$file")"
done
finish
