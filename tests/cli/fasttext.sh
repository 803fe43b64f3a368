#!/bin/bash
# Models of fastText's: the answers that fastText itself gave, in tests/golden, and those of the fasttext that is installed.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
golden=$PWD/tests/golden
cd "$scratch" || exit 1

# Answers are the same: as many on every line, and each label in its place, with fastText's probability to a thousandth
# (it adds 0.00001), or to a hundredth where its table of sigmoids has it, which ends at 8. Labels that are as good may
# change places.
compare() { # KIND NAME THEIRS OURS
    local said
    said=$(awk -v sigmoid="$(is_sigmoid "$1" && echo 1)" '
        NR == FNR { theirs[NR] = $0; n = NR; next }
        {
            wrong = ""
            k = split(theirs[FNR], a, " ")
            if (split($0, b, "\t") != k) wrong = "answers"
            for (i = 1; i < k; i += 2) {
                p = sigmoid ? 1 / (1 + exp(-b[i + 1])) : b[i + 1]
                off = p < a[i + 1] ? a[i + 1] - p : p - a[i + 1]
                if (off > (sigmoid ? 0.01 : 0.001)) wrong = b[i]
                if (a[i] != b[i] && a[i + 1] > 0.001) wrong = b[i]
            }
            if (wrong) print "line " FNR ", " wrong ": " $0 " beside " theirs[FNR]
        }
        END { if (FNR != n) print "lines: " FNR " beside " n }' "$3" "$4")
    same "$2" '' "$said"
}
is_sigmoid() { [ "$1" = ova ] || [ "$1" = ns ]; }

answer() { # KIND MODEL TEXT: by FULL
    local scores=(--softmax)
    ! is_sigmoid "$1" || scores=()
    "$WIDEOUT" build --layer "$2" --method full -o full.index -q >/dev/null
    "$WIDEOUT" predict --index full.index --net "$2" -k 3 "${scores[@]}" "$3"
}

# ---- The committed models ------------------------------------------------------------------------------------------
for kind in softmax ova ngrams; do
    model=$golden/fasttext-$kind.bin
    answer $kind "$model" "$golden/fasttext-text.txt" >ours 2>said
    compare $kind "the answers of fastText: $kind" "$golden/fasttext-$kind.answers" ours
    same "$kind: a word that is known nowhere, said once" "$([ $kind = ngrams ] || echo "wideout: warning: $golden/fasttext-text.txt: line 6: the network knows nothing of what it says, and answers as to an empty line")" \
        "$(cat said)"
    answer $kind "$model" - <"$golden/fasttext-text.txt" >piped 2>/dev/null
    check "$kind: the same from standard input" cmp ours piped
done

same 'info' "$golden/fasttext-ngrams.bin: fastText, supervised, softmax
  33 words, 5 labels, 4 dimensions
  n-grams of up to 3 words
  n-grams of 2 to 4 letters
  50 buckets for n-grams
  F32                    83 x 4     1.3 kB  input
  F32                     5 x 4   80 bytes  output" "$("$WIDEOUT" info "$golden/fasttext-ngrams.bin")"
same 'info as JSON' '["fasttext","ova",33,5,4,[[33,4],[5,4]]]' \
    "$("$WIDEOUT" info --json "$golden/fasttext-ova.bin" | jq -c '[.format, .loss, .words, .labels, .d, [.tensors[].shape]]')"

# A log of a text with labels; an index of it; labels that the model lacks are none.
model=$golden/fasttext-softmax.bin
check 'a log of lines with labels' "$WIDEOUT" embed "$model" --data "$golden/fasttext-train.txt" --score -o train.log -q
same 'its queries and labels' '[13,4,15]' \
    "$("$WIDEOUT" info --json train.log | jq -c '[(.tensors[] | select(.name == "queries") | .shape[]), (.tensors[] | select(.name == "labels.indices") | .shape[0])]')"
"$WIDEOUT" embed "$model" --data "$golden/fasttext-text.txt" -o text.log -q >/dev/null
same 'labels that the model lacks, lines without one' '[9,4,3]' \
    "$("$WIDEOUT" info --json text.log | jq -c '[(.tensors[] | select(.name == "queries") | .shape[]), (.tensors[] | select(.name == "labels.indices") | .shape[0])]')"
check 'an index of it' "$WIDEOUT" build --layer "$model" --log train.log --method evidence --nodes 1 --leaves 2 --router tree -o evidence.index -q
same 'which answers by name' '__label__fruit' \
    "$(echo 'a ripe pear' | "$WIDEOUT" predict --index evidence.index --net "$model" -k 1 | cut -f 1)"
printf '__label__%s\n' fruit animal water straße >forbidden
same 'a class that is forbidden by name' '__label__tree' \
    "$(echo 'a pear tree' | "$WIDEOUT" predict --index full.index --net "$model" -k 1 --forbid forbidden | cut -f 1)"
cp "$model" model.safetensors
same 'recognised by content' "$("$WIDEOUT" info "$model" | sed 1d)" "$("$WIDEOUT" info model.safetensors | sed 1d)"

# ---- Long lines ----------------------------------------------------------------------------------------------------
# Their rows are summed as they come: more of them than wait at once, in one line, beside others, and in little memory.
model=$golden/fasttext-ngrams.bin
"$WIDEOUT" build --layer "$model" --method full -o full.index -q >/dev/null
ask() { "$WIDEOUT" predict --index full.index --net "$model" -k 5 -t "${2:-1}" "$1"; }
yes 'a ripe pear' | head -c 1000000 | tr '\n' ' ' >long
head -c 5000000 /dev/zero | tr '\0' x >word
for text in long word; do echo >>$text; done
sed 's/a ripe/an old/g' long >other
for text in long word other; do
    head -n 3 "$golden/fasttext-text.txt" >"short.$text"
    cat $text "short.$text"
done >mixed
for threads in 1 3; do
    same "lines long and short, $threads threads: each as it is alone" \
        "$(for text in long word other; do ask $text && ask short.$text; done 2>/dev/null)" "$(ask mixed $threads 2>/dev/null)"
done
check 'a log of them' "$WIDEOUT" embed "$model" --data mixed -o mixed.log -q
same 'has as many queries' "[$(wc -l <mixed),4]" "$("$WIDEOUT" info --json mixed.log | jq -c '.tensors[] | select(.name == "queries") | .shape')"
same 'and answers alike' "$(ask mixed 2>/dev/null | cut -f 1)" "$("$WIDEOUT" predict --index full.index -k 5 mixed.log | cut -f 1)"
if [ -z "$SAN" ]; then
    # 15 million rows, of 4 bytes each
    check 'a word of 5 MB in 60 MB' prlimit --data=60000000 "$WIDEOUT" predict --index full.index --net "$model" -t 1 word
    check 'its log too' prlimit --data=60000000 "$WIDEOUT" embed "$model" --data word -t 1 -o word.log -q
fi

# ---- What is no such model -----------------------------------------------------------------------------------------
hs='the model was trained with -loss hs, whose output is a tree, not a layer: train it with softmax, ova or ns'
fails 'hierarchical softmax as a layer' 1 "wideout: $golden/fasttext-hs.bin: $hs" "$WIDEOUT" build --layer "$golden/fasttext-hs.bin" --log train.log -o index
fails 'hierarchical softmax as a network' 1 "wideout: $golden/fasttext-hs.bin: $hs" "$WIDEOUT" embed "$golden/fasttext-hs.bin" --data train.log -o log
fails 'word vectors' 1 "wideout: $golden/fasttext-vectors.bin: the model is one of word vectors, not a classifier: it has no layer of labels" \
    "$WIDEOUT" build --layer "$golden/fasttext-vectors.bin" --log train.log -o index
for kind in quantised 'pruned'; do
    also=$([ $kind = quantised ] || echo ' and pruned')
    fails "$kind" 1 "wideout: $golden/fasttext-$kind.ftz: the model is quantised$also: give the .bin file that it was made from" \
        "$WIDEOUT" predict --index full.index --net "$golden/fasttext-$kind.ftz" train.log
done
fails 'the name of a tensor' 1 "wideout: $model: the file is a model of fastText's, whose one layer has neither another name nor biases; leave out --weight-name" \
    "$WIDEOUT" build --layer "$model" --weight-name output --log train.log -o index
# The first number of the output matrix, 80 bytes before the end.
cp "$model" nan.bin
printf '\x00\x00\xc0\x7f' | dd of=nan.bin bs=1 seek=$(($(stat -c %s "$model") - 80)) conv=notrunc 2>/dev/null
fails 'a number that is none, as a layer' 1 "wideout: nan.bin: 'output': row 0, column 0 is nan, expected a finite number" "$WIDEOUT" build --layer nan.bin --log train.log -o index
fails 'a number that is none, as a network' 1 "wideout: nan.bin: the output matrix: row 0, column 0 is not a finite number" "$WIDEOUT" embed nan.bin --data "$golden/fasttext-text.txt" -o log
: >nothing
fails 'a text without a line' 1 'wideout: nothing: the file is empty' "$WIDEOUT" embed "$model" --data nothing -o log
fails 'a model that is trained on' 1 "wideout: $model: is a network of kind fasttext, expected w2v, whose queries are single words; leave out --distinct" \
    "$WIDEOUT" embed "$model" --data "$golden/fasttext-text.txt" --distinct -o log

# ---- The fasttext that is installed --------------------------------------------------------------------------------
if command -v fasttext >/dev/null; then
    train() { # NAME OPTION...
        local name=$1
        shift
        fasttext supervised -input "$golden/fasttext-train.txt" -output "$name" -dim 5 -epoch 100 -lr 0.5 -thread 1 -verbose 0 "$@" 2>/dev/null
    }
    train softmax
    train ova -loss ova || train ova -loss one-vs-all
    train ns -loss ns
    train letters -minn 1 -maxn 3 -bucket 100
    train words -wordNgrams 5 -bucket 1000
    for kind in softmax ova ns letters words; do
        fasttext predict-prob $kind.bin "$golden/fasttext-text.txt" 3 >theirs
        answer $kind $kind.bin "$golden/fasttext-text.txt" >ours 2>/dev/null
        compare $kind "the answers of the fasttext that is installed: $kind" theirs ours
    done
    # A line of more rows than wait at once.
    yes "$(head -n 2 "$golden/fasttext-text.txt" | tr '\n' ' ')" | head -c 1000000 | tr '\n' ' ' >long
    echo >>long
    for kind in letters words; do
        fasttext predict-prob $kind.bin long 3 >theirs
        answer $kind $kind.bin long >ours 2>/dev/null
        compare $kind "and to a long line: $kind" theirs ours
    done
else
    echo '# no fasttext is installed: its answers are those in tests/golden'
fi
finish
