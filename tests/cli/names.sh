#!/bin/bash
# Names that are not plain words: control and direction characters in labels do not reach a terminal, paths that are not UTF-8
# do not stop --json, and names as long as a file system allows can be written.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cd "$scratch" || exit 1
export OMP_WAIT_POLICY=passive
small=(-q -d 8 -t 1)

# ---- What reaches a terminal -------------------------------------------------------------------------------------
# C1's CSI (U+009B) and OSC, DEL, an override, an isolate, marks, a line separator; and what is fit: accents, Greek, an emoji.
bad=(csi$'\u009b'31m osc$'\u009d'0 del$'\x7f' rlo$'\u202e'gpj lri$'\u2066'x lrm$'\u200e' alm$'\u061c' lines$'\u2028'b)
good=('naïve' 'λόγος' '日本' '😀' 'a–b')
printf '%s\n' "${bad[@]}" "${good[@]}" >labels.txt
m=$((${#bad[@]} + ${#good[@]}))
{
    echo "$((40 * m)) $m $m"
    for _ in $(seq 40); do for ((i = 0; i < m; i++)); do echo "$i $i:1"; done; done
} >train.txt
seq -f 'f%.0f' 0 $((m - 1)) >features.txt
"$WIDEOUT" train xc --train train.txt "${small[@]}" --lr 0.05 -e 20 -o net >/dev/null
"$WIDEOUT" embed -q net --data train.txt -o log >/dev/null
"$WIDEOUT" build -q --layer net --log log --method full -o index >/dev/null
fit() { # NAME TEXT: has nothing that a terminal would obey
    if LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]' <(printf %s "$2"); then
        not_ok "$1" "$(printf %s "$2" | cat -v)"
    else
        ok "$1"
    fi
}
answers=$("$WIDEOUT" predict --index index -k $m log | head -1)
fit 'labels of predict' "$answers"
same 'each of them is there' "$m" "$(tr '\t' '\n' <<<"$answers" | grep -cv '^-\?[0-9.e-]*$')"
for name in "${good[@]}"; do check "'$name' as it is" grep -qF "$name" <<<"$answers"; done
for name in "${bad[@]:3:2}"; do check 'a part of the others' grep -qF "${name:0:3}?" <<<"$answers"; done
same 'JSON has them as they are' "$(sort labels.txt | jq -R . | jq -cs .)" \
    "$("$WIDEOUT" predict --index index -k $m --json log | jq -cs '[.[0].answers[].name]' | jq -r '.[]' | sort | jq -R . | jq -cs .)"
for json in "$("$WIDEOUT" predict --index index -k $m --json log)" "$("$WIDEOUT" info --json labels.txt)"; do
    fit 'JSON: what is unfit is escaped' "$json"
    check 'which is the same JSON' grep -qF '\u009b' <<<"$json"
done
printf 'w%s x\u202ey \u009b2J v\n' $(seq 300) >corpus
"$WIDEOUT" data text -q corpus -o t >/dev/null
"$WIDEOUT" train lm -q --train t/train.tokens.safetensors -d 8 -t 1 -e 1 -b 8 -o lm >/dev/null
fit 'words of generate' "$("$WIDEOUT" generate --net lm --prompt v -n 200 --temperature 1000 --top-k 1000)"
fit 'a sentence that quotes' "$(printf 'w\u202ev w\n' | "$WIDEOUT" predict --index index --net net --format xc 2>&1)"
fit 'a path' "$("$WIDEOUT" info $'no\u202efile\u009b31m' 2>&1)"
fit 'an option' "$("$WIDEOUT" info $'--no\u202efile\u009b31m' 2>&1)"
fit 'a command' "$("$WIDEOUT" $'no\u202efile\u009b31m' 2>&1)"
same 'bytes that are no UTF-8' 'wideout: a?b??: the file cannot be opened: No such file or directory' "$("$WIDEOUT" info $'a\x9bb\xe2\x80' 2>&1)"


# Commands to copy: in $'...', and the same name again.
for name in $'o\u009b31m\u202e' $'o\x9b31m' $'it\'s \\ \u2066λ' $'na\xefve'; do
    said=$("$WIDEOUT" build -q --layer net --log log --method full -o "$name" | sed -n 's/^next: wideout //p')
    fit 'a command to copy' "$said"
    check 'is UTF-8' iconv -f UTF-8 -t UTF-8 <<<"$said"
    same 'and has the name' "$name" "$(eval "set -- $said" && printf %s "$3")"
done
same "what is fit stays" "'it'\\''s λ'" "$("$WIDEOUT" build -q --layer net --log log --method full -o "it's λ" | sed -n 's/^next: wideout eval --index \(.*\) --log .*/\1/p')"

# ---- Paths that are not UTF-8 ------------------------------------------------------------------------------------
odd=$'caf\xe9' shown=$(printf 'caf\xef\xbf\xbd')
mkdir "$odd"
json() { # NAME FILTER ARGUMENT...: the path in the command's JSON
    local out
    out=$("$WIDEOUT" "${@:3}" --json 2>stderr) || { not_ok "$1" "$(cat stderr)" && return; }
    same "$1" "\"$shown/x\"" "$(jq -c "$2" <<<"$out")"
}
json 'train' .network train xc --train train.txt "${small[@]}" -e 1 -o "$odd/x"
json 'embed' .log embed net --data train.txt -o "$odd/x"
json 'eval: the log' .log eval --index index --log "$odd/x" --no-timing
json 'data xc' '.files[0]' data xc train.txt -o "$odd/x"
json 'build' .index build --layer net --log log --method full -o "$odd/x"
json 'eval: the index' .index eval --index "$odd/x" --log log --no-timing
cp lm "$odd/x"
json 'generate' .net generate --net "$odd/x" --prompt v
cp index "$odd/$odd"
same 'info' "\"$shown\"" "$("$WIDEOUT" info --json "$odd/$odd" | jq -c '.tensors[0].file')"

# ---- Long names --------------------------------------------------------------------------------------------------
for letters in "$(printf 'n%.0s' $(seq 250))" "$(printf 'ü%.0s' $(seq 127))"; do
    check "a name of ${#letters} bytes: data" "$WIDEOUT" data xc train.txt -o "$letters"
    check 'embed' "$WIDEOUT" embed -q net --data train.txt -o "$letters"
    check 'build' "$WIDEOUT" build -q --layer net --log log --method full -o "$letters"
    check 'and it is whole' "$WIDEOUT" info "$letters"
    fails 'train: too long for its checkpoint, said at once' 1 \
        "wideout: $letters: its checkpoint: the file cannot be created: File name too long" \
        timeout 20 "$WIDEOUT" train xc --train train.txt "${small[@]}" -e 1000000 -o "$letters"
    for option in '--memory 4G' --resume; do
        # shellcheck disable=SC2086 # words
        fails "build $option: too" 1 "wideout: $letters: its checkpoint: the file cannot be created: File name too long" \
            "$WIDEOUT" build -q --layer net --log log --method popular --popular 3 $option -o "$letters"
    done
done
echo words >"${letters:0:115}.checkpoint"
fails 'a long name does not hide what is wrong' 1 \
    "wideout: ${letters:0:115}.checkpoint: the file exists and is no checkpoint of a build of wideout's: move it away" \
    "$WIDEOUT" build -q --layer net --log log --method popular --popular 3 --resume -o "${letters:0:115}"
long=$(printf 'n%.0s' $(seq 256))
fails 'a name that is too long is refused before the work' 1 "wideout: $long: the file cannot be created: File name too long" \
    timeout 20 "$WIDEOUT" train xc --train train.txt "${small[@]}" -e 1000000 -o "$long"
check 'nothing is left behind' test -z "$(find . -name '*.tmp.*')"
finish
