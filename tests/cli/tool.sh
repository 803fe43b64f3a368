#!/bin/bash
# The tool: help, usage errors, exit codes, JSON, completion, what the commands print.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cp tests/golden/layer-v1.safetensors "$scratch/a"
printf '2 5 3\n0,2 1:0.5 4:1\n 0:2\n' >"$scratch/x.txt"

# ---- Usage -------------------------------------------------------------------------------------------------------
code() { # NAME CODE COMMAND...
    local name=$1 code=$2
    shift 2
    "$@" >/dev/null 2>&1
    same "$name" "$code" "$?"
}
code 'no command is wrong usage' 2 "$WIDEOUT"
code '--help is not' 0 "$WIDEOUT" --help
code 'help of a command' 0 "$WIDEOUT" help data xc
code 'help of a group' 0 "$WIDEOUT" data --help
code 'a group alone is wrong usage' 2 "$WIDEOUT" data
fails 'an unknown command' 2 "wideout: unknown command 'fly' (see 'wideout --help')" "$WIDEOUT" fly
fails 'an unknown command of a group' 2 "wideout: unknown command 'data fly' (see 'wideout --help')" "$WIDEOUT" data fly
fails 'help for an unknown command' 2 "wideout: unknown command 'data fly' (see 'wideout --help')" "$WIDEOUT" help data fly
fails 'control characters are not printed' 2 "wideout: unknown command 'a??[31m' (see 'wideout --help')" "$WIDEOUT" $'a\n\e[31m'
# What --help shows first can be copied.
(
    cd "$scratch" && mkdir copied && cd copied || exit 1
    # shellcheck disable=SC2317 # what is copied calls it
    wideout() { "$WIDEOUT" "$@"; }
    set -e
    eval "$("$WIDEOUT" --help | sed -n '/^From data/,/^.wideout/s/^  wideout.*/&/p' | sed '/ build / s/$/ --max-time 1s/')" >answers
) >/dev/null 2>&1
same "--help's first steps give answers" 500 "$(grep -c 'class-' "$scratch/copied/answers")"
fails 'a command with a slip' 2 "wideout: unknown command 'eavl': did you mean 'eval'? (see 'wideout --help')" "$WIDEOUT" eavl --index x
fails 'a command of a group with a slip' 2 "wideout: unknown command 'data sintetic': did you mean 'data synthetic'? (see 'wideout --help')" "$WIDEOUT" data sintetic
fails 'a group with a slip' 2 "wideout: unknown command 'trian': did you mean 'train'? (see 'wideout --help')" "$WIDEOUT" trian
fails 'the other group' 2 "wideout: unknown command 'dta': did you mean 'data'? (see 'wideout --help')" "$WIDEOUT" dta
fails 'a group cut short' 2 "wideout: unknown command 'dat': did you mean 'data'? (see 'wideout --help')" "$WIDEOUT" dat
fails 'a group with a slip, and its command' 2 "wideout: unknown command 'trian xc': did you mean 'train xc'? (see 'wideout --help')" "$WIDEOUT" trian xc
fails 'a group without its command' 2 "wideout: 'train' is the first word of several commands (see 'wideout train --help')" "$WIDEOUT" train --train x
fails 'the last word of a command alone' 2 "wideout: unknown command 'xc': did you mean 'data xc'? (see 'wideout --help')" "$WIDEOUT" xc
fails 'an option with a slip' 2 "wideout build: unknown option '--tagret=0.9': did you mean --target? (see 'wideout build --help')" "$WIDEOUT" build --tagret=0.9
fails 'an option of which two may be meant' 2 "wideout build: unknown option '--tune-l': did you mean --tune-log? (see 'wideout build --help')" "$WIDEOUT" build --tune-l x
fails 'an unknown option' 2 "wideout info: unknown option '--fast' (see 'wideout info --help')" "$WIDEOUT" info --fast x
fails 'an unknown letter' 2 "wideout info: unknown option '-z' (see 'wideout info --help')" "$WIDEOUT" info -z x
fails 'a missing value' 2 "wideout data xc: option '-o' needs a value (see 'wideout data xc --help')" "$WIDEOUT" data xc x -o
fails 'a value that is no number' 2 "wideout info: --threads takes a whole number of 0 or more, not 'two' (see 'wideout info --help')" \
    "$WIDEOUT" info --threads two x
fails 'a value that is no choice' 2 "wideout info: --one-based takes all|features, not 'some' (see 'wideout info --help')" \
    "$WIDEOUT" info --one-based=some x
fails 'no file' 2 "wideout info: expected one file, found 0 (see 'wideout info --help')" "$WIDEOUT" info
fails 'too many files' 2 "wideout info: expected one file, found 2 (see 'wideout info --help')" "$WIDEOUT" info a b
fails 'a join without -o' 2 "wideout data xc: two files are joined into one: name it with -o FILE (see 'wideout data xc --help')" \
    "$WIDEOUT" data xc a b
while read -r command; do
    # shellcheck disable=SC2086 # the command may be two words
    "$WIDEOUT" $command --help >"$scratch/help" 2>&1
    same "$command --help" "0 Usage: wideout $command" "$? $(head -1 "$scratch/help" | cut -c1-$((15 + ${#command})))"
    same "$command --help fits 100 columns" '' "$(awk 'length > 100' "$scratch/help")"
done < <("$WIDEOUT" --help | sed -n 's/^  \([a-z0-9 ]*[a-z0-9]\)   *.*/\1/p')

# ---- version, cpu ------------------------------------------------------------------------------------------------
same 'version --json' "$("$WIDEOUT" version | awk 'NR==1{print $2}')" "$("$WIDEOUT" version --json | jq -r .version)"
same 'version and --version agree' "$("$WIDEOUT" version)" "$("$WIDEOUT" --version)"
WIDEOUT_CPU=ref "$WIDEOUT" cpu >"$scratch/cpu" # which takes half a minute under sanitizers
same 'WIDEOUT_CPU=ref' 'ref: lowered by WIDEOUT_CPU=ref' "$(sed -n 's/^runs  *//p' "$scratch/cpu")"
same 'every kernel then is the reference' ref "$(awk '/^  /{print $2}' "$scratch/cpu" | sort -u)"
check 'the product beside the peak' jq -e '.product | (.tile | type == "string") and
    ([.rows, .columns, .gflops, .peak_gflops, .read_gb_s] | all(. > 0))' <<<"$("$WIDEOUT" cpu --json)"
code 'WIDEOUT_CPU=sse9 is refused' 1 env WIDEOUT_CPU=sse9 "$WIDEOUT" cpu
same 'with one sentence and the value' 1 "$(WIDEOUT_CPU=sse9 "$WIDEOUT" cpu 2>&1 | grep -c "sse9")"

# ---- info --------------------------------------------------------------------------------------------------------
same 'info of a layer' "$scratch/a: safetensors, kind layer
  15 tensors, 704 bytes; checksums: ok" "$("$WIDEOUT" info "$scratch/a" | head -2 | sed 's/ [0-9.]* bytes/ 704 bytes/')"
"$WIDEOUT" info --json "$scratch/a" >"$scratch/json"
same 'info --json of a layer' '["layer","ok",[7,5]]' \
    "$(jq -c '[.kind, .checksums, (.tensors[] | select(.name == "weight") | .shape)]' "$scratch/json")"
"$WIDEOUT" info --json "$scratch/x.txt" >"$scratch/json"
same 'info --json of text' '[2,5,3,1,[{"from_uses":0,"labels":1},{"from_uses":1,"labels":2}]]' \
    "$(jq -c '[.rows, .features, .labels, .rows_without_labels, .histogram]' "$scratch/json")"
same 'info of text' "$scratch/x.txt: extreme-classification text, one-file form
  rows                 2
  features             5   1.50 a row, at most 2; 0 rows without any
  labels               3   1.00 a row, at most 2; 1 row without any
  2 of the labels occur; the most frequent, label 0, in 50.0% of the rows
  how often labels occur
                  0 times          1 label  ####################
                  1 time           2 labels  ########################################" "$("$WIDEOUT" info "$scratch/x.txt")"
# The low bytes of a header length may look like the start of a pickle, a zip, an npy or a gzip file.
for length in 147 403 640 896 35615; do
    header=$(printf '%-*s' "$length" '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}')
    {
        printf '%b' "\\x$(printf %02x $((length & 255)))\\x$(printf %02x $((length >> 8)))\\0\\0\\0\\0\\0\\0"
        printf '%s\0\0\0\0' "$header"
    } >"$scratch/length"
    same "a header of $length bytes" 'safetensors' "$("$WIDEOUT" info "$scratch/length" 2>&1 | sed -n '1s/.*: //p')"
done
gzip -k "$scratch/x.txt"
mv "$scratch/x.txt.gz" "$scratch/any.name"
printf 'libc6\npython3\nl\303\244nge\npython3\n\nzlib1g\n' >"$scratch/labels.txt"
"$WIDEOUT" data synthetic -q -m 5000 -d 64 -n 3000 -o "$scratch/layer" >/dev/null
for columns in 50 64; do
    same "info of tensors fits $columns columns" '' "$(cd "$scratch/layer" && COLUMNS=$columns "$WIDEOUT" info train.log.safetensors | awk -v most=$columns 'length > most')"
done
# A line of progress that does not fit ends before a comma, not within a number.
if command -v script >/dev/null; then
    (cd "$scratch" && "$WIDEOUT" data synthetic -q --as text -m 500 -n 20000 -o many >/dev/null
        script -qc "stty cols 50; '$WIDEOUT' train xc --train many/train.txt --valid many/valid.txt -e 2 -d 16 -o progress.net" /dev/null) >"$scratch/progress"
    same 'progress in 50 columns: whole parts' '' "$(tr '\r' '\n' <"$scratch/progress" | grep -a '^[a-z]*: epoch' | sed 's/\x1b.*//' |
        grep -avE '^[a-z]+: epoch [0-9]/2, loss ([0-9.]+|nan)(, valid P@1 [0-9.]{6} P@5 [0-9.]{6})?(, [0-9,]+ examples/s)?(, [0-9]+ s left)?$')"
else
    ok 'progress in 50 columns # skip no script(1)'
fi
same 'info of names' "$scratch/labels.txt: names, one a line
  6 names, 5 of them different, 1 empty; 0 to 7 bytes
            0  libc6
            1  python3
            2  länge
          ...
            5  zlib1g" "$("$WIDEOUT" info "$scratch/labels.txt")"
same 'info --json of names' '["names",6,5,1,0,7,["libc6","python3","länge"],"zlib1g"]' \
    "$("$WIDEOUT" info --json "$scratch/labels.txt" | jq -c '[.format, .n, .distinct, .empty, .shortest, .longest, .first, .last]')"
table() { # NAME FILE BETWEEN TEXT
    printf '%b' "$4" >"$scratch/$2"
    fails "info of a table: $1" 1 "wideout: $scratch/$2: looks like a table, with $3 between its values: numbers are read from .npy, \
which numpy.save writes of what numpy.loadtxt reads, and names from lines of their own" "$WIDEOUT" info "$scratch/$2"
}
table numbers table.txt commas '1,2.5\n-3e2,4\n'
table 'under a heading' heading.txt commas 'x,y,name\r\n1, 2,3\r\n'
table 'with tabs' tabs.txt tabs '1\t2\n3\t4\n'
table 'by its name' a.csv semicolons 'name;title\nx;a word\n'
table 'with tabs, by its name' a.tsv tabs 'name\ttitle\nx\ta word\n'
printf 'x, y\nz, 1\n' >"$scratch/commas.txt"
same 'names with commas in them' names "$("$WIDEOUT" info --json "$scratch/commas.txt" | jq -r .format)"
seq 100 120 >"$scratch/ids.txt"
same 'info of names that are numbers' '["names",21,"100","120"]' "$("$WIDEOUT" info --json "$scratch/ids.txt" | jq -c '[.format, .n, .first[0], .last]')"
gzip -k "$scratch/labels.txt"
same 'info of names, packed' "$("$WIDEOUT" info "$scratch/labels.txt" | tail -n +2)" "$("$WIDEOUT" info "$scratch/labels.txt.gz" | tail -n +2)"
"$WIDEOUT" data synthetic -q --as text -m 200 -n 100 -o "$scratch/made" >/dev/null
for file in labels features; do # the tool knows what it wrote
    same "info of our own $file.txt" '["names",true]' "$("$WIDEOUT" info --json "$scratch/made/$file.txt" | jq -c '[.format, .n == .distinct]')"
done
awk 'BEGIN {for (i = 0; i < 60; i++) printf "\303\244"; print "\nb"}' >"$scratch/long.txt"
same 'a long name is cut between letters' "            0  $(awk 'BEGIN {for (i = 0; i < 50; i++) printf "\303\244"}')..." \
    "$("$WIDEOUT" info "$scratch/long.txt" | sed -n 3p)"
fails 'a line that is not UTF-8' 1 "wideout: $scratch/latin.txt: line 2 is not UTF-8" bash -c "printf 'abc\nl\344nge\n' >'$scratch/latin.txt' && '$WIDEOUT' info '$scratch/latin.txt'"
fails 'stanzas are no names' 1 "wideout: $scratch/stanzas: line 1: expected the header 'N F L' (or 'rows cols'), found 'Package: vim'" \
    bash -c "printf 'Package: vim\nDepends: libc6\n' >'$scratch/stanzas' && '$WIDEOUT' info '$scratch/stanzas'"
same 'recognised by content, whatever the name' "$("$WIDEOUT" info "$scratch/x.txt" | tail -n +2)" \
    "$("$WIDEOUT" info "$scratch/any.name" | tail -n +2)"
code 'stdout that cannot be written is a failure' 1 bash -c "'$WIDEOUT' info '$scratch/a' >/dev/full"

# ---- data xc -----------------------------------------------------------------------------------------------------
check 'split' "$WIDEOUT" data xc "$scratch/x.txt" --split-files -o "$scratch/s"
same 'the features' $'2 5\n1:0.5 4:1\n0:2' "$(cat "$scratch/s_X_Xf.txt")"
same 'the labels' $'2 3\n0:1 2:1\n\n.' "$(cat "$scratch/s_X_Y.txt"; echo .)"
check 'join' "$WIDEOUT" data xc "$scratch/s_X_Xf.txt" "$scratch/s_X_Y.txt" -o "$scratch/joined.txt"
check 'gives the file again' cmp "$scratch/x.txt" "$scratch/joined.txt"
mkdir "$scratch/folder"
check 'split into a folder' "$WIDEOUT" data xc "$scratch/x.txt" --split-files -o "$scratch/folder"
check 'the same files' cmp "$scratch/folder/X_Y.txt" "$scratch/s_X_Y.txt"
printf '1,3 7:2 1:1\r\n\r\n5:1\r\n' >"$scratch/a.svm"
check 'a LIBSVM copy' "$WIDEOUT" data xc --lenient --one-based "$scratch/a.svm" -o "$scratch/a.txt"
same 'becomes canonical' $'2 7 3\n0,2 0:1 6:2\n 4:1' "$(cat "$scratch/a.txt")"
check 'which strict reading accepts' "$WIDEOUT" data xc "$scratch/a.txt"
printf '3 3\n0:1\n\n\n' >"$scratch/three.txt"
fails 'halves of different length' 1 "wideout: $scratch/three.txt: has 3 rows, '$scratch/s_X_Xf.txt' has 2" \
    "$WIDEOUT" data xc "$scratch/s_X_Xf.txt" "$scratch/three.txt" -o "$scratch/no"
fails 'a half that is none' 1 "wideout: $scratch/x.txt: is not of the two-file form: expected a header 'rows cols'" \
    "$WIDEOUT" data xc "$scratch/s_X_Xf.txt" "$scratch/x.txt" -o "$scratch/no"
fails 'one half alone' 1 "wideout: $scratch/s_X_Y.txt: is one half of the two-file form: give both, features first" \
    "$WIDEOUT" data xc "$scratch/s_X_Y.txt" -o "$scratch/no"
printf '2 3\n0:0.5\n\n' >"$scratch/weighted.txt"
fails 'label values other than 1' 1 "wideout: $scratch/weighted.txt: row 1: label 0 has the value 0.5, expected 1 (--lenient drops values)" \
    "$WIDEOUT" data xc "$scratch/s_X_Xf.txt" "$scratch/weighted.txt" -o "$scratch/no"
check 'nothing was left behind' test ! -e "$scratch/no" -a -z "$(find "$scratch" -name '*.tmp.*')"

# A failure in the middle keeps the old file: a bad row late in the input, and a disk that is full.
{ echo '30000 5 3'; for _ in $(seq 29999); do echo '0 1:0.123456'; done; echo 'x'; } >"$scratch/late.txt"
echo old >"$scratch/kept"
fails 'a bad last row' 1 "wideout: $scratch/late.txt: line 30001: expected a label number, found 'x'" \
    "$WIDEOUT" data xc "$scratch/late.txt" -o "$scratch/kept"
same 'keeps the old file' old "$(cat "$scratch/kept")"
sed -i '$s/x/0 1:1/' "$scratch/late.txt"
fails 'a full disk' 1 "wideout: $scratch/kept: the file cannot be written: File too large" \
    bash -c "trap '' XFSZ; ulimit -f 100; exec '$WIDEOUT' data xc '$scratch/late.txt' -o '$scratch/kept'"
same 'keeps the old file too' old "$(cat "$scratch/kept")"
check 'and leaves no temporary file' test -z "$(find "$scratch" -name '*.tmp.*')"

# ---- Completion --------------------------------------------------------------------------------------------------
complete_words() { # WORDS...: what bash offers for the last one
    bash -c 'source <("$0" completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _wideout; echo "${COMPREPLY[*]}"' "$WIDEOUT" "$@"
}
same 'commands complete' 'check completion cpu' "$(complete_words wideout c | tr ' ' '\n' | sort | xargs)"
same 'and options' '--split-files --seed' "$(complete_words wideout data xc --s)"
same 'and the words that an option takes' 'full popular slide lss evidence screen' "$(complete_words wideout build --method '')"
same 'what is begun' 'lss' "$(complete_words wideout build --layer x --method l)"
same 'behind =, which bash takes apart' 'all features' "$(complete_words wideout info --one-based =)"
same 'and goes on' 'features' "$(complete_words wideout info --one-based = f)"
same 'a word or a number: the word' 'auto off' "$(complete_words wideout build --prior '')"
same 'where a file is wanted, no options' '' "$(complete_words wideout build --layer '')"
while read -r command; do
    # shellcheck disable=SC2086 # the command may be two words
    set -- $command
    same "'$command' completes" "${!#}" "$(complete_words wideout "${@:1:$#-1}" "${!#}" | tr ' ' '\n' | grep -x "${!#}")"
    same "'$command --jso' completes" --json "$(complete_words wideout "$@" --jso)"
    same "'help $command' completes" "${!#}" "$(complete_words wideout help "${@:1:$#-1}" "${!#}" | tr ' ' '\n' | grep -x "${!#}")"
done < <("$WIDEOUT" --help | sed -n 's/^  \([a-z0-9 ]*[a-z0-9]\)   *.*/\1/p')
check 'the zsh script parses' bash -c "command -v zsh >/dev/null || exit 0; '$WIDEOUT' completion zsh >'$scratch/_w' && zsh -n '$scratch/_w'"
finish
