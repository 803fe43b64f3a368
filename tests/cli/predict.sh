#!/bin/bash
# Prediction: the same answers from a log, an array, rows, words and stanzas; names; masks; pipes that go both ways; bad
# input.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
case $BUILD in /*) sign=$BUILD/tests/tools/sign ;; *) sign=$PWD/$BUILD/tests/tools/sign ;; esac
golden=$PWD/tests/golden
cd "$scratch" || exit 1
export OMP_WAIT_POLICY=passive

usage() { # NAME SENTENCE ARGUMENT...
    local name=$1 sentence=$2
    shift 2
    fails "$name" 2 "wideout predict: $sentence (see 'wideout predict --help')" "$WIDEOUT" predict "$@"
}
predict() { # NAME ARGUMENT...: with the index and the network of that name
    "$WIDEOUT" predict --index "$1.idx" --net "$1.net" "${@:2}"
}
index() { # NAME DATA ARGUMENT...: a log of the data, and an index of it
    "$WIDEOUT" embed "$1.net" --data "$2" -o "$1.log" >/dev/null
    "$WIDEOUT" build -q --layer "$1.net" --log "$1.log" -K 4 -L 2 --iterations 10 -o "$1.idx" "${@:3}" >/dev/null
}
train() { # ARCH NAME DATA ARGUMENT...
    "$WIDEOUT" train "$1" --train "$3" -o "$2.net" -q -t 1 -d 16 --lr 0.02 "${@:4}" >/dev/null
}
first() { # the first answers of what comes in, in one line
    cut -f 1 | paste -sd ' '
}

# ---- Data --------------------------------------------------------------------------------------------------------
"$WIDEOUT" data synthetic -q --as text -m 200 -n 1500 -o x >/dev/null
train xc x x/train.txt -e 20
index x x/train.txt
"$WIDEOUT" embed x.net --data x/test.txt -o test.log >/dev/null
"$WIDEOUT" predict --index x.idx test.log >answers
tail -n +2 x/test.txt >rows
# What 'words' makes of a line is what the row says: each feature's name as often as its count.
awk 'NR == FNR {name[FNR - 1] = $0; next}
    {line = ""; for (i = 2; i <= NF; i++) {split($i, f, ":"); for (j = 0; j < f[2]; j++) line = line " " name[f[1]]} print line}' \
    x/features.txt rows >words
awk 'BEGIN {split("browser editor compiler game", kind, " "); split("libssl libtinfo libmpfr libsdl", needs, " ")
    for (i = 0; i < 400; i++) {
        k = i % 4 + 1
        printf "Package: %s-%c%c\nSection: s%d\nMaintainer: A <a@b>\nDescription: a fast %s for people\nDepends: %s (>= 1)\n\n",
            kind[k], 97 + i % 26, 97 + int(i / 26), k, kind[k], needs[k]
    }}' >stanzas
"$WIDEOUT" data deb822 -q stanzas -o deb >/dev/null
train xc deb deb/train.txt -e 20 -b 32
index deb deb/train.txt
yes 'a b c d e f g h' | head -n 400 >corpus
"$WIDEOUT" data text -q corpus -o tokens >/dev/null
train lm lm tokens/train.tokens.safetensors -e 20 -b 8 --dropout 0
index lm tokens/train.tokens.safetensors
train w2v w2v tokens/train.tokens.safetensors -e 20 --window 1
index w2v tokens/train.tokens.safetensors

(echo "1 1100 200"; head -1 rows) >row
same 'one query' 'over 1 query with a label' "$("$WIDEOUT" embed x.net --data row --score -o one.log | grep -o 'over .*')"
# ---- Every source, the same answers ------------------------------------------------------------------------------
same 'a line for every query' 150 "$(wc -l <answers)"
check 'five names and scores' bash -c "awk -F '\t' 'NF > 10 || NF % 2 || NF == 0 {bad = 1} END {exit bad}' answers"
sources() { # NAME COMMAND...
    "${@:2}" >got 2>&1
    check "$1: the same answers" cmp got answers
}
sources 'rows' predict x x/test.txt
sources 'rows, when asked for' predict x --format xc x/test.txt
sources 'words' predict x words
sources 'words, when asked for' predict x --format text words
sources 'a log beside a network' predict x test.log
gzip -k rows words
sources 'rows, packed, without a header' predict x rows.gz
sources 'words, packed' predict x words.gz
sources 'a log as standard input' "$WIDEOUT" predict --index x.idx - <test.log
sources 'one thread' "$WIDEOUT" predict --index x.idx test.log -t 1
sources 'rows from a pipe' predict x < <(cat x/test.txt)
sources 'rows from a pipe without a header' predict x - < <(cat rows)
sources 'packed words from a pipe' predict x < <(cat words.gz)
sed 's/^[0-9,]* //' rows >features
sources 'rows without labels' predict x features
sed 's/^[0-9,]*//' rows >features
sources 'rows that begin with a space' predict x features
awk '{line = $1; for (i = 2; i <= NF; i++) {split($i, f, ":"); line = line " " f[1] + 1 ":" f[2]} print line}' rows >ones
sources 'rows that count from 1' predict x --one-based ones
"$WIDEOUT" data xc x/test.txt --split-files -o half >/dev/null
sources 'the features of the two-file form' predict x half_X_Xf.txt
awk '{print; print ""}' words >gaps
sources 'blank lines are no examples' predict x gaps
sed 's/$/\r/' rows >crlf
sources 'CRLF' predict x crlf
{ # the same queries as .npy
    n=$(jq -r '.queries.shape[0]' <(tail -c +9 test.log | head -c "$(od -An -t u4 -N 4 test.log | tr -d ' ')"))
    header=$(printf "%-117s" "{'descr': '<f4', 'fortran_order': False, 'shape': ($n, 16), }")
    begin=$((8 + $(od -An -t u4 -N 4 test.log) + $(tail -c +9 test.log | head -c "$(od -An -t u4 -N 4 test.log | tr -d ' ')" | jq '.queries.data_offsets[0]')))
    printf '\x93NUMPY\1\0\x76\0%s\n' "$header"
    tail -c +$((begin + 1)) test.log | head -c $((n * 64))
} >test.npy
sources 'an array' "$WIDEOUT" predict --index x.idx test.npy
{ printf '\x93NUMPY\1\0\x76\0%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (16,), }"; tail -c +129 test.npy | head -c 64; } >one.npy
same 'an array that is one query' "$(head -1 answers)" "$("$WIDEOUT" predict --index x.idx one.npy)"
same 'no example, no answer' '' "$(predict x </dev/null)"

same '--json, in a word' 'print a JSON object for each query, one a line' \
    "$("$WIDEOUT" predict --help | sed -n 's/^ *--json  *//p')"

# ---- What they are -----------------------------------------------------------------------------------------------
"$WIDEOUT" predict --index x.idx --exact test.log >exact
check 'the label of a row comes first, mostly' bash -c "paste <(cut -d ' ' -f 1 rows) <(cut -f 1 exact) |
    awk '\$2 == \"class-\" \$1 {n++} END {exit n < 75}'"
printf 'Package: foo\nDescription: a compiler\nX-Other: y\n\n\nPackage: bar\nDescription: Games: a game\n' >two
same 'stanzas' 'libmpfr libsdl' "$(predict deb two | first)"
same 'stanzas from a pipe' 'libmpfr libsdl' "$(predict deb < <(cat two) | first)"
same 'stanzas, when asked for' 'libmpfr libsdl' "$(predict deb --format deb822 two | first)"
same 'where they begin' '[1,6]' "$(predict deb --json two | jq -cs '[.[].line]')"
same 'what the network knows of them' '[2,2]' "$(predict deb --json two | jq -cs '[.[].known]')"
same 'a line of nothing that it knows' 'wideout: warning: standard input: line 2: the network knows nothing of what it says, and answers as to an empty line' \
    "$(printf 'an editor\nzzz qqq\nxxx\n' | predict deb 2>&1 >/dev/null)"
same 'descriptions' 'libssl libtinfo' "$(printf 'The FAST browser, really!\nan editor\n' | predict deb | first)"
same 'words that go on' 'd c h' "$(printf 'a b c\na b\nf g\n' | predict lm | first)"
same 'long lines' d "$(for _ in $(seq 100); do printf 'a b c d e f g h <eos> '; done | sed 's/$/a b c\n/' | predict lm | first)"
same 'a word and its neighbours' 'b,d' "$(echo c | predict w2v -k 2 | cut -f 1,3 | tr '\t' '\n' | sort | paste -sd,)"

# ---- Options -----------------------------------------------------------------------------------------------------
same '-k' '4 2' "$("$WIDEOUT" predict --index x.idx -k 2 test.log | awk -F '\t' '{print NF, NF / 2}' | sort -u)"
same 'more than there are candidates: the line is shorter' yes "$("$WIDEOUT" predict --index x.idx -k 1000000 --json test.log |
    jq -rs 'all((.answers | length) == .candidates and .candidates > 0) | if . then "yes" else "no" end')"
same 'all classes' 200 "$("$WIDEOUT" predict --index x.idx -k 1000000 --exact test.log | awk -F '\t' '{print NF / 2}' | sort -u)"
check 'scores fall' jq -es 'all([.answers[].score] | . == (sort | reverse))' \
    <("$WIDEOUT" predict --index x.idx --json test.log)
check 'probabilities of all candidates add up to 1' jq -es 'all([.answers[].score] | add | . > 0.999 and . < 1.001)' \
    <("$WIDEOUT" predict --index x.idx --softmax -k 200 --json test.log)
check 'and those of all classes' jq -es 'all([.answers[].score] | add | . > 0.999 and . < 1.001)' \
    <("$WIDEOUT" predict --index x.idx --exact --softmax -k 200 --json test.log)
check '--probes opens more cells' jq -es '[.[].cells] | all(. == 8)' \
    <("$WIDEOUT" predict --index x.idx --probes 4 --json test.log)
"$WIDEOUT" predict --index x.idx --probes 16 test.log >all
check 'all of them: nearly as the exact layer' bash -c "paste <(cut -f 1 all) <(cut -f 1 exact) | awk '\$1 == \$2 {n++} END {exit n < 140}'"
best=$(head -1 exact | cut -f 1)
second=$(head -1 exact | cut -f 3)
same '--forbid: the next one' "$second" "$("$WIDEOUT" predict --index x.idx --exact --forbid "${best#class-}" test.log | head -1 | cut -f 1)"
printf '%s\r\n\n%s\n' "$best" "${second#class-}" >list
same '--forbid: a file of names and numbers' "$(head -1 exact | cut -f 5)" \
    "$("$WIDEOUT" predict --index x.idx --exact --forbid list test.log | head -1 | cut -f 1)"
"$WIDEOUT" predict --index x.idx --exact --softmax -k 200 --forbid list --json test.log >masked
check '--forbid: probabilities are of the others' jq -es 'all([.answers[].score] | length == 198 and (add | . > 0.999 and . < 1.001))' masked
# Given several times they add up.
masks() { # WHICH ARGUMENT...: of the classes of the first query those that WHICH selects
    "$WIDEOUT" predict --index x.idx -k 200 --json test.log "${@:2}" | head -1 | jq -c "[.answers[].id | select($1)] | sort"
}
check 'without masks classes 1 to 3 are there' [ "$(masks '. >= 1 and . <= 3' --exact)" = '[1,2,3]' ]
echo 2 >two.list
for given in '--forbid 1 --forbid 2' '--forbid two.list --forbid 1' '--forbid 1 --forbid two.list'; do
    # shellcheck disable=SC2086 # options
    same "$given: both" '[3]' "$(masks '. >= 1 and . <= 3' --exact $given)"
done
same '--require twice: both' '[198,199]' "$(masks '. >= 198' --probes 1 --require 198 --require 199)"
# shellcheck disable=SC2046 # options
usage '--forbid more often than there is room' '--forbid is given more than 16 times' $(printf -- '--forbid %d ' $(seq 17))
usage '--specific adds up to nothing' '--specific is given twice' --specific a --specific b
printf '\r\n\n' >none.list
for option in --forbid --require; do
    same "$option: an empty list is no mask, and that is said" 'wideout: warning: none.list names no class' \
        "$("$WIDEOUT" predict --index x.idx --exact $option 5 $option none.list test.log 2>&1 >/dev/null)"
done
same 'one that names a class again is not empty' '' "$("$WIDEOUT" predict --index x.idx --exact --forbid 2 --forbid two.list test.log 2>&1 >/dev/null)"
# Of classes with one name all are masked.
mkdir twins
cp x/train.txt x/features.txt twins
sed '1~2s/.*/twin/' x/labels.txt >twins/labels.txt
train xc twins twins/train.txt -e 2
index twins twins/train.txt
echo twin >list
same '--forbid: all classes of a name' '0 100' "$("$WIDEOUT" predict --index twins.idx --exact -k 200 --forbid list test.log |
    awk -F '\t' '{for (i = 1; i < NF; i += 2) n += $i == "twin"; k = NF / 2} END {print n + 0, k}')"
same '--require: all of them too' 100 "$("$WIDEOUT" predict --index twins.idx -k 200 --require list test.log |
    awk -F '\t' 'NR == 1 {for (i = 1; i < NF; i += 2) n += $i == "twin"; print n}')"
yes twin | head -1000000 >again # times 100 classes: 400 MB of numbers
same '--forbid: a name again and again takes no more' '100 0' "$([ -n "$SAN" ] || ulimit -v 300000
    "$WIDEOUT" predict --index twins.idx --exact -k 200 -t 1 --forbid again --forbid list test.log 2>&1 |
    awk -F '\t' 'NR == 1 {for (i = 1; i < NF; i += 2) n += $i == "twin"; print NF / 2, n + 0}')"
rm again
# Names of digits. Answers show names, so a number that is copied from there may be the name of another class.
seq 199 -1 0 >backward.names
seq 1000000 1000199 >far.names
id=${best#class-}
with() { # NAMES ARGUMENT...: the first answer's class, by its number
    "$WIDEOUT" predict --index x.idx --exact --json --names "$1.names" test.log "${@:2}" | head -1 | jq .answers[0].id
}
both="$id is the number of one class and the name of another: number:$id or name:$id says which is meant"
fails '--forbid: digits that mean two classes' 1 "wideout: --forbid: $both" \
    "$WIDEOUT" predict --index x.idx --names backward.names --forbid "$id" test.log
echo "$id" >list
fails '--require: in a file too' 1 "wideout: list: line 1: $both" \
    "$WIDEOUT" predict --index x.idx --names backward.names --require list test.log
check 'the classes of a number and of a name are two' [ "$((199 - id))" != "$id" ]
same '--forbid: that the number is meant' "${second#class-}" "$(with backward --forbid "number:$id")"
same '--forbid: that the name is meant' "${second#class-}" "$(with backward --forbid "name:$((199 - id))")"
echo "name:$((199 - id))" >list
same '--forbid: that in a file' "${second#class-}" "$(with backward --forbid list)"
same '--forbid: digits that are a name alone' "${second#class-}" "$(with far --forbid "$((1000000 + id))")"
same '--forbid: digits that are a number alone' "${second#class-}" "$(with far --forbid "$id")"
(seq 0 99; seq 0 99) >twice.names
fails '--forbid: the number of one class, which is the name of that and another' 1 \
    'wideout: --forbid: 7 is the number of one class and the name of another: number:7 or name:7 says which is meant' \
    "$WIDEOUT" predict --index x.idx --names twice.names --forbid 7 test.log
seq 0 199 >same.names
same '--forbid: number and name of one class' "${second#class-}" "$(with same --forbid "$id")"
fails '--forbid: neither' 1 'wideout: --forbid: class 1000200 is not below the 200 of the index' \
    "$WIDEOUT" predict --index x.idx --names far.names --forbid 1000200 test.log
same '--require: always a candidate' yes "$("$WIDEOUT" predict --index x.idx --require 198,199 -k 200 --json test.log |
    jq -rs 'all([.answers[].id] | contains([198, 199])) | if . then "yes" else "no" end')"
# --specific: the same answers with the same scores, in the order of score - log(count + 1).
# shellcheck disable=SC2016 # jq has variables of its own
jq -nR 'input | [inputs | split(" ")[0] | split(",")[] | select(. != "")] | reduce .[] as $l ({}; .[$l] += 1)' x/train.txt >counts
specific() { # ARGUMENT...: the answers of each query, a JSON list each
    "$WIDEOUT" predict --index x.idx -k 10 --json test.log "$@" | jq -c '.answers'
}
specific >plain
specific --specific x.log >ordered
same '--specific: answers and scores are the same' "$(jq -c 'sort_by(.id)' plain)" "$(jq -c 'map(del(.count)) | sort_by(.id)' ordered)"
# shellcheck disable=SC2016
check '--specific: counts are those of the training data' jq -es --slurpfile n counts \
    'add | length > 1000 and all(.count == ($n[0][.id | tostring] // 0))' ordered
# shellcheck disable=SC2016
check '--specific: by score against frequency' jq -es 'all([.[] | .score - ((.count + 1) | log)] as $g |
    all(range(1; $g | length); $g[.] <= $g[. - 1] + 1e-9))' ordered
"$WIDEOUT" embed w2v.net --data tokens/train.tokens.safetensors --distinct -o distinct.log >/dev/null
check '--specific: a counted log counts as its queries' jq -es 'length > 0 and all(.answers[0].count >= 100)' \
    <("$WIDEOUT" predict --index w2v.idx --exact -k 1 --json --specific distinct.log distinct.log)
check '--specific: which is another order' bash -c '! cmp -s <(jq .[0].id plain) <(jq .[0].id ordered)'
same '--specific: probabilities give the same order' "$(jq -c 'map(.id)' ordered)" \
    "$(specific --softmax --specific x.log | jq -c 'map(.id)')"
same '--specific: as lines' "$(head -1 ordered | jq -r '.[].name' | paste -sd,)" \
    "$("$WIDEOUT" predict --index x.idx -k 10 --specific x.log test.log | head -1 | tr '\t' '\n' | paste - - | cut -f 1 | paste -sd,)"

same '--json: a line a query, counted from 0' "[150,\"logits\",0,149,5,\"$(head -1 answers | cut -f 1)\"]" "$("$WIDEOUT" predict --index x.idx --json test.log |
    jq -cs '[length, .[0].scores, .[0].query, .[149].query, (.[0].answers | length), .[0].answers[0].name]')"
same '--json: nothing but these lines' 150 "$("$WIDEOUT" predict --index x.idx --json test.log | grep -c '^{"query":[0-9]*,.*}$')"
"$WIDEOUT" data synthetic -q -m 100 -d 4 -n 500 -o s >/dev/null
"$WIDEOUT" build -q --layer s/layer.safetensors --log s/train.log.safetensors --learner none -K 3 -L 1 -o s.idx >/dev/null
{ # queries alone
    header='{"queries":{"dtype":"F32","shape":[1,16],"data_offsets":[0,64]}}'
    printf '%b' "\x$(printf '%02x' ${#header})\0\0\0\0\0\0\0"
    printf '%s' "$header"
    tail -c +129 test.npy | head -c 64
} >bare.log
fails '--specific: a log without labels' 1 'wideout: bare.log: has no labels, so that it does not tell how often a class occurs' \
    "$WIDEOUT" predict --index x.idx --specific bare.log test.log
fails '--specific: of another layer' 1 "wideout: s/test.log.safetensors: has queries of 4 numbers, the index takes 16: is it a log of another layer?" \
    "$WIDEOUT" predict --index x.idx --specific s/test.log.safetensors test.log
fails '--specific: of more classes' 1 "wideout: x.log: has label $(jq -r 'keys | map(tonumber) | max' counts), which is not below the 100 of the index" \
    "$WIDEOUT" predict --index s.idx --specific x.log s/test.log.safetensors
check 'numbers where there are no names' bash -c "'$WIDEOUT' predict --index s.idx s/test.log.safetensors | cut -f 1,3 | grep -qvx '[0-9]*.[0-9]*' && exit 1 || exit 0"
"$WIDEOUT" build -q --layer x.net --log x.log --learner none -K 3 -L 1 --weights none -o bare.idx >/dev/null
check 'a network is the layer of its index' "$WIDEOUT" predict --index bare.idx --layer x.net test.log
usage 'no index' 'needs --index FILE' test.log
usage 'an index without its option' 'needs --index FILE' x.idx test.log
usage 'two files' 'expected one file, found 2' --index x.idx a b
usage 'text without a network' '--format text needs --net FILE, which makes queries of it' --index x.idx --format text words
usage 'words without their network' '--arch lm and --vocab FILE go together, with --net' --index x.idx --vocab words test.log
usage 'no answers' "--top takes a whole number of 1 or more, not '0'" --index x.idx -k 0 test.log

# ---- Pipes that go both ways -------------------------------------------------------------------------------------
coproc talk { predict lm -k 1; }
ask() { # LINE...: the answer, or nothing when it does not come
    printf '%s\n' "$@" >&"${talk[1]}"
    local line=
    read -r -t 20 line <&"${talk[0]}"
    echo "${line%%$'\t'*}"
}
ends() { # NAME: the pipe is closed
    # shellcheck disable=SC2154 # bash sets it
    local run=$talk_PID to=${talk[1]}
    exec {to}>&-
    wait "$run"
    same "$1" 0 $?
}
same 'a line is answered when it comes' d "$(ask 'a b c')"
same 'and the next one' c "$(ask 'a b')"
same 'also with a blank line behind it' h "$(ask 'f g' '')"
ends 'and it ends well'
coproc talk { predict deb -k 1; }
same 'a stanza is answered when it ends' libsdl "$(ask 'Package: x' 'Description: a game' '')"
ends 'that ends well too'

# ---- Bad input ---------------------------------------------------------------------------------------------------
bad() { # NAME SENTENCE COMMAND...
    fails "$1" 1 "wideout: $2" "${@:3}"
}
bad 'text alone' 'words: is text: name the network that makes queries of it with --net FILE' "$WIDEOUT" predict --index x.idx words
bad 'text from a pipe' 'standard input: is text: name the network that makes queries of it with --net FILE' \
    "$WIDEOUT" predict --index x.idx < <(cat words)
true >empty
for nothing in /dev/null empty; do
    bad "nothing from $nothing" 'standard input: is empty: expected queries' "$WIDEOUT" predict --index x.idx <$nothing
done
bad 'nothing from a pipe' 'standard input: is empty: expected queries' "$WIDEOUT" predict --index x.idx < <(true)
bad 'an empty file' 'empty: is empty: expected queries' "$WIDEOUT" predict --index x.idx empty
bad 'nothing, by its name' '/dev/null: is empty: expected queries' "$WIDEOUT" predict --index x.idx /dev/null
for format in auto xc text; do # text without a line
    same "nothing to be read as $format has no answers" ' 0 0 0 0' "$(predict x --format $format </dev/null) $? $(predict x --format $format /dev/null)$? $(
        predict x --format $format empty)$? $(predict x --format $format < <(true))$?"
done
for format in log npy; do
    bad "nothing to be read as $format" 'standard input: is empty: expected queries' predict x --format $format </dev/null
    bad "nothing to be read as $format, by its name" '/dev/null: is empty: expected queries' predict x --format $format /dev/null
    bad "an empty file to be read as $format" 'empty: is empty: expected queries' predict x --format $format empty
    bad "an empty pipe to be read as $format" 'standard input: is empty: expected queries' predict x --format $format < <(true)
done
bad 'an archive from a pipe' 'standard input: the file is a zip archive (.npz or PyTorch .pt): save the arrays as .npy or as safetensors' \
    "$WIDEOUT" predict --index x.idx < <(printf 'PK\003\004.............')
"$WIDEOUT" predict --index x.idx test.npy >expected
same 'an array from a pipe' "$(cat expected)" "$("$WIDEOUT" predict --index x.idx < <(cat test.npy))"
same 'that comes byte by byte' "$(cat expected)" "$("$WIDEOUT" predict --index x.idx < <(head -c 1 test.npy && sleep 0.1 && tail -c +2 test.npy))"
same 'whose kind is named' "$(cat expected)" "$("$WIDEOUT" predict --index x.idx --format npy < <(cat test.npy))"
same 'a log from a pipe' "$("$WIDEOUT" predict --index x.idx test.log)" "$("$WIDEOUT" predict --index x.idx < <(cat test.log))"
same 'an array from a pipe that has a name' "$(cat expected)" "$("$WIDEOUT" predict --index x.idx <(cat test.npy))"
same 'a log from one' "$(cat answers)" "$("$WIDEOUT" predict --index x.idx <(cat test.log))"
same 'rows from one' "$(cat answers)" "$(predict x <(cat rows))"
same 'rows from one, when asked for' "$(cat answers)" "$(predict x --format xc <(cat x/test.txt))"
mkfifo named
cat rows >named &
same 'rows from one in a folder' "$(cat answers)" "$(predict x named)"
rm named
check 'a pipe that brings nothing' grep -qE '^wideout: /dev/fd/[0-9]+: is empty: expected queries$' <<<"$("$WIDEOUT" predict --index x.idx <(true) 2>&1)"
bad 'a device' '/dev/zero: the path is not a plain file' "$WIDEOUT" predict --index x.idx /dev/zero
bad 'queries of another size' 's/test.log.safetensors: has queries of 4 numbers, the index takes 16' \
    "$WIDEOUT" predict --index x.idx s/test.log.safetensors
bad 'an array of another size' 'test.npy: has 2 dimensions, the last of 16, expected (n, 4) or (4)' "$WIDEOUT" predict --index s.idx test.npy
bad 'a network of another size' 'x.net: makes queries of 16 numbers, the index takes 4' "$WIDEOUT" predict --index s.idx --net x.net rows
bad 'no such file' 'none: the file cannot be opened: No such file or directory' predict x none
bad 'no such network' 'none: the file cannot be opened: No such file or directory' "$WIDEOUT" predict --index x.idx --net none rows
bad 'no network' "test.log: is not a network of wideout's" "$WIDEOUT" predict --index x.idx --net test.log rows
bad 'too many probes' "$("$WIDEOUT" predict --index x.idx --probes 65 test.log 2>&1 | sed 's/^wideout: //')" \
    "$WIDEOUT" predict --index x.idx --probes 65 test.log
bad 'a class that is none' '--forbid: class 200 is not below the 200 of the index' "$WIDEOUT" predict --index x.idx --forbid 3,200 test.log
bad 'a list with a hole' "--require: '' is neither the number nor the name of a class" "$WIDEOUT" predict --index x.idx --require 3,,4 test.log
echo 'class-x' >list
bad 'a name that is none' "list: line 1: 'class-x' is neither the number nor the name of a class" "$WIDEOUT" predict --index x.idx --forbid list test.log
truncate -s 4G endless
bad 'a list with a line without an end, which is not read to it' 'endless: line 1 has more than 1048576 bytes' \
    timeout 10 "$WIDEOUT" predict --index x.idx --forbid endless test.log
bad 'a list that is missing' 'no-list: the file cannot be opened: No such file or directory; --forbid takes numbers, 3,17, or a file of numbers or names, one a line' \
    "$WIDEOUT" predict --index x.idx --forbid no-list test.log
mkfifo pipe
bad 'a list from a pipe, which may not have all of it' 'pipe: a list of classes is read from a plain file' \
    timeout 10 "$WIDEOUT" predict --index x.idx --forbid pipe test.log
bad 'a list that is a folder' 'twins: a list of classes is read from a plain file' "$WIDEOUT" predict --index x.idx --forbid twins test.log
bad 'a list that cannot be read' '/proc/self/mem: the file cannot be read on after line 0: Input/output error' \
    "$WIDEOUT" predict --index x.idx --forbid /proc/self/mem test.log
bad 'stanzas for a network of words' "x.net: was not trained on package stanzas ('data deb822')" predict x --format deb822 two
bad 'rows for a language model' 'lm.net: is a network of words, which takes text only' predict lm --format xc rows
train xc other x/train.txt -e 1
same 'the network of another index, which nothing else tells' "wideout: warning: other.net: its output layer is not the one of x.idx, whose \
answers to this network's queries may be poor: 'wideout check' compares the two" "$("$WIDEOUT" predict --index x.idx --net other.net rows 2>&1 >/dev/null)"
same 'its own' '' "$(predict x rows 2>&1 >/dev/null)"
"$WIDEOUT" build -q --layer x.net --log x.log -K 4 -L 2 --iterations 10 --weights bf16 -o halves >/dev/null
"$WIDEOUT" update halves --remove 3 -o fewer >/dev/null # its checksum is that of the rounded rows
same 'its own, of rows in bf16 that were updated' '' "$("$WIDEOUT" predict --index fewer --net x.net rows 2>&1 >/dev/null)"
same 'another one of those' 'other.net: its output layer is not the one of fewer' \
    "$("$WIDEOUT" predict --index fewer --net other.net rows 2>&1 >/dev/null | grep -o 'other.net: .* fewer')"
mkdir alone
cp x/train.txt alone # names would be beside it
train xc plain alone/train.txt -e 20
bad 'text for a network without names' 'plain.net: has no names of features: it takes extreme-classification lines, not text' \
    "$WIDEOUT" predict --index x.idx --net plain.net --format text words
line() { # NAME NET SENTENCE TEXT: the line is refused
    bad "$1" "standard input: $3" predict "$2" "${@:5}" < <(printf '%b' "$4")
}
line 'a row that is none' x "line 1: the value of feature 3 is 'x', expected a finite number" '3:x\n' --format xc
line 'a feature that the network lacks' x 'line 1: feature 100000, counting from 0, is not below the network'\''s 1100' '100000:1\n'
line 'a value that is no count' x 'line 1: feature 1 has the value -1, which is no count, and the network takes log1p' '1:-1\n'
line 'a header that lies' x 'line 2: feature 5 is not below the 5 features of the header' '1 5 2\n0 5:1\n'
line 'a word that is unknown' lm "line 1: the word 'zz' is not in the network's vocabulary, which has no <unk>" 'zz\n'
line 'two words' w2v "line 1: expected one word, found 'b' behind it" 'a b\n'
line 'no UTF-8' lm 'line 1: is not UTF-8' '\xff\n'
line 'a stanza without a field' deb "line 1: expected 'Field: value', found 'oops'" 'oops\n' --format deb822
printf '0:1\n1:1\nx\n2:1\n' | predict x -k 1 >out 2>err
same 'what came before a bad line is answered' "1 2 wideout: standard input: line 3: expected a label number, found 'x'" \
    "$? $(wc -l <out) $(cat err)"
printf '0:1\nx\n' | predict x -k 1 --json >out 2>err
same 'in JSON too' '1 1 1' "$? $(wc -l <out) $(wc -l <err)"
check 'standard output that is full is a failure' bash -c "! '$WIDEOUT' predict --index x.idx test.log >/dev/full 2>/dev/null"

# Queries that are not finite: the others are answered.
{ head -c 128 test.npy; tail -c +129 test.npy | head -c 64; printf '\0\0\xc0\x7f'; tail -c +197 test.npy; } >nan.npy
for how in '' --exact; do
    # shellcheck disable=SC2086 # none, or an option
    "$WIDEOUT" predict --index x.idx $how nan.npy >out 2>err
    same "not finite $how" '1 150 wideout: nan.npy: query 1: not finite' "$? $(wc -l <out) $(cat err)"
    # shellcheck disable=SC2086
    same "its line is empty, the others are answered $how" '' \
        "$("$WIDEOUT" predict --index x.idx $how test.npy | sed '2s/.*//' | diff - out)"
done
same 'not finite in JSON' '["not finite",0,150]' "$("$WIDEOUT" predict --index x.idx --json nan.npy 2>/dev/null |
    jq -cs '[.[1].error, (.[1].answers | length), length]')"
# One query 1e38 times as large: its numbers are finite, its logits are not.
{ head -c 128 test.npy; tail -c +129 test.npy | head -c 64; for ((i = 0; i < 16; i++)); do printf '\0\0\x7f\x7f'; done; tail -c +257 test.npy; } >large.npy
for how in --exact '--exact --softmax' --softmax ''; do
    # shellcheck disable=SC2086 # none, or options
    "$WIDEOUT" predict --index x.idx $how large.npy >out 2>err
    same "too large $how" '1 150 wideout: large.npy: query 1: its scores are too large: not finite' "$? $(wc -l <out) $(cat err)"
    check "too large $how: the others are numbers" bash -c '! grep -qi "nan\|inf" out'
done
same 'too large, in JSON' '["its scores are too large: not finite",0,150]' "$("$WIDEOUT" predict --index x.idx --exact --json large.npy 2>/dev/null |
    jq -cs '[.[1].error, (.[1].answers | length), length]')"
# What is a probability does not depend on how many queries come together, or on how fast: not on the planner, which would
# give batches to FULL.
"$sign" "$golden/index-tuned.safetensors" later.idx '"index.seed"' '"index.mood"'
check 'info shows an option that it does not know' grep -q '^  index.mood: ' <("$WIDEOUT" info later.idx)
"$sign" "$golden/index-tuned.safetensors" planned.idx '"tune.full_from":"0"' '"tune.full_from":"1"'
check 'info: batches of one' grep -qxF '  batches of 1 query and more are answered by FULL, which is faster there' <("$WIDEOUT" info planned.idx)
probable() { "$WIDEOUT" predict --index "$1" --layer "$golden/layer.safetensors" --softmax -k 3 "$golden/log.safetensors" "${@:2}"; }
probable "$golden/index-tuned.safetensors" >cells
probable planned.idx >planned
check 'probabilities are those of the candidates, also where FULL is planned' cmp cells planned
probable planned.idx --exact >full
check 'which are not those of all classes' bash -c '! cmp -s cells full'
train xc raw x/train.txt -e 1 --counts raw --normalize none
index raw x/train.txt
{ echo 0:1; seq 0 999 | sed 's/$/:3e38/' | paste -sd ' '; } | predict raw >out 2>err
same 'lines that are not finite' '1 2 wideout: standard input: line 2: not finite' "$? $(wc -l <out) $(cat err)"

same 'one shard: it warns, and names what asks all' "wideout: warning: $golden/shard-index.safetensors is shard 2 of 2, and answers with its own \
32 classes of 64 alone: 'wideout join' makes one index of all, 'wideout serve --shards' asks all" \
    "$("$WIDEOUT" predict --index "$golden/shard-index.safetensors" "$golden/log.safetensors" 2>&1 >/dev/null)"
for option in --weight-name --bias-name --bias; do
    fails "$option without its layer" 2 "wideout predict: --weight-name, --bias-name and --bias go with --layer (see 'wideout predict --help')" \
        "$WIDEOUT" predict --index planned.idx $option x s/test.log.safetensors
    fails "nor info's" 2 "wideout info: --weight-name, --bias-name and --bias go with --layer (see 'wideout info --help')" \
        "$WIDEOUT" info planned.idx $option x
done
# Its ids are those of the whole layer, and so are lists of names, labels and masks.
shard() {
    "$WIDEOUT" predict --index "$golden/shard-index.safetensors" -k 64 --exact "$golden/log.safetensors" "$@" 2>shard.err
    set -- $?
    grep -v warning: shard.err >&2
    return "$1"
}
numbers() { tr '\t' '\n' | awk 'NR % 2' | sort -n | uniq; } # of the answers to one query
shard --no-prior | head -1 | numbers >own
same 'as many answers as it has classes' 32 "$(wc -l <own)"
seq -f 'name %g' 0 63 >all.names
same 'the names of all classes' "$(sed 's/^/name /' own | sort)" "$(shard --names all.names | head -1 | numbers | sort)"
head -32 all.names >half.names
fails 'not of its own alone' 1 'wideout: half.names: has 32 names, one a line, but there are 64 classes' shard --names half.names
same 'the labels of all classes' "$(cat own)" "$(shard --specific "$golden/log.safetensors" | head -1 | numbers)"
id=$(tail -1 own)
same 'a mask of a class that has no name here' "$(grep -vx "$id" own)" "$(shard --forbid "$id" | head -1 | numbers)"
awk -v "id=$(head -1 own)" -v "other=$id" '{print NR - 1 == other ? id : "class " NR - 1}' all.names >digits.names
fails 'a name that is the number of another class' 1 "wideout: --forbid: $(head -1 own) is the number of one class and the name of another: \
number:$(head -1 own) or name:$(head -1 own) says which is meant" shard --names digits.names --forbid "$(head -1 own)"

# ---- More answers than an index was made for ---------------------------------------------------------------------
"$WIDEOUT" build -q --layer s/layer.safetensors --log s/train.log.safetensors --router tree -o five.idx >/dev/null
"$WIDEOUT" predict --index five.idx -k 100 s/test.log.safetensors 2>err >/dev/null
same 'it warns, and names what helps' "wideout: warning: five.idx was made for 5 answers, and may miss many of 100: 'wideout build --source-k 100' makes one for so many" "$(cat err)"
"$WIDEOUT" predict --index five.idx -k 5 s/test.log.safetensors 2>err >/dev/null
same 'not for as many' '' "$(cat err)"
"$WIDEOUT" predict --index five.idx -k 100 --exact s/test.log.safetensors 2>err >/dev/null
same 'nor for all classes' '' "$(cat err)"
"$WIDEOUT" build -q --layer s/layer.safetensors --log s/train.log.safetensors --tune-log s/test.log.safetensors --router tree --target 0.3 \
    --target5 0.3 --max-time 0.1s -o tuned.idx >/dev/null
"$WIDEOUT" predict --index tuned.idx -k 50 s/test.log.safetensors 2>err >/dev/null
same 'a tuned one' "wideout: warning: tuned.idx was made for 5 answers, and may miss many of 50: 'wideout build -k 50' makes one for so many" "$(cat err)"
"$WIDEOUT" predict --index tuned.idx -k 1001 s/test.log.safetensors 2>err >/dev/null
same 'more than any cells are made for' "wideout: warning: tuned.idx was made for 5 answers, and may miss many of 1001: no cells are made for more than 1000, '--method screen' looks through all classes" "$(cat err)"

finish
