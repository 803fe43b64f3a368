#!/bin/bash
# The commands that make data sets: what they write for small inputs, their sentences, the same bytes for the same seed,
# and old files left alone when something fails.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cd "$scratch" || exit 1

usage() { # NAME COMMAND SENTENCE ARGUMENT...
    local name=$1 command=$2 sentence=$3
    shift 3
    # shellcheck disable=SC2086 # the command is two words
    fails "$name" 2 "wideout $command: $sentence (see 'wideout $command --help')" "$WIDEOUT" $command "$@"
}
no_space() { # COMMAND...: files cannot grow beyond 4 KiB
    (trap '' XFSZ && ulimit -f 4 && exec "$@")
}
contents() { # DIR...: names and checksums of all files
    (cd "$1" && find . -type f -exec cksum {} + | sort)
}

# ---- deb822 ------------------------------------------------------------------------------------------------------
cat >stanzas <<'END'
Package: app
Section: games
Maintainer: Zoë <z@x.org>
Tag: role::program, game::strategy
Depends: libc6 (>= 2.34), libx:any | liby
Description: a Game game
 long text, not read
Source: app-src2

Package: tool
Section: games
Maintainer: Zoë <z@x.org>
Depends: libc6
Suggests: app
Description: a game tool

Package: app
Depends: never-read
Description: an older version

Package: data
Section: games
Description: the data of a game

Section: nameless

Package: libx
Pre-Depends: libc6
Recommends: app
Description: a library
END
same 'deb822' 'wrote d: 3 packages (2 train, 1 valid, 0 test), 4 features, 2 labels
dropped of 6 stanzas: 1 without a label, 1 repeated, 1 without a name' "$("$WIDEOUT" data deb822 -o d <stanzas)"
same 'deb822: labels by frequency' 'libc6 app' "$(paste -sd ' ' d/labels.txt)"
same 'deb822: features by frequency, then by name' 'desc:a desc:game section:games maint:Zoë <z@x.org>' "$(paste -sd ' ' d/features.txt)"
same 'deb822: rows' '2 4 2|0 0:1 1:2 2:1 3:1|0,1 0:1 1:1 2:1 3:1|1 4 2|0,1 0:1' "$(cat d/train.txt d/valid.txt | paste -sd '|')"
same 'deb822: a part without packages' '0 4 2' "$(cat d/test.txt)"
sed 's/$/\r/' stanzas | gzip -n >stanzas.gz
"$WIDEOUT" data deb822 -q stanzas.gz -o d2 >/dev/null
same 'deb822: CRLF and gzip change nothing' "$(contents d)" "$(contents d2)"
same 'deb822 --json' '[6,3,4,4,1]' \
    "$("$WIDEOUT" data deb822 --json --min-label-count 1 --min-feature-count 2 stanzas -o d3 | jq -c '[.stanzas, .packages, .labels, .features, .dropped_repeated]')"
seq 2000 | sed 's/.*/Package: p&\nDepends: a, b\n/' >many
"$WIDEOUT" data deb822 -q many -o s1 >/dev/null
"$WIDEOUT" data deb822 -q many -o s2 --seed 2 >/dev/null
check 'deb822: another seed is another split' test "$(cksum <s1/test.txt)" != "$(cksum <s2/test.txt)"
same 'deb822: 80, 5 and 15 in a hundred' 'yes yes yes' "$(
    for part in 'train 1530 1670' 'valid 65 140' 'test 240 360'; do
        read -r name low high <<<"$part"
        read -r n _ <"s1/$name.txt"
        [ "$n" -ge "$low" ] && [ "$n" -le "$high" ] && echo yes
    done | paste -sd ' ')"
for part in train valid test; do check "deb822: $part.txt is canonical" "$WIDEOUT" data xc "s1/$part.txt"; done
printf 'Package: 7\nDepends: 8\n' >digits
same 'deb822: a package without features' '1 0 1|0 ' \
    "$("$WIDEOUT" data deb822 -q --min-label-count 1 digits -o d4 >/dev/null && grep -h -A1 '^1' d4/t*.txt d4/v*.txt | paste -sd '|')"
fails 'deb822: empty input' 1 "wideout: standard input: holds no package stanza ('apt-cache dumpavail' prints them)" \
    "$WIDEOUT" data deb822 -o none </dev/null
check 'deb822: then no folder is made' test ! -e none
printf 'Package: a\nnonsense\n' >bad
fails 'deb822: no stanzas' 1 "wideout: bad: line 2: expected 'Field: value', found 'nonsense'" "$WIDEOUT" data deb822 bad -o d
fails 'deb822: labels all rare' 1 'wideout: stanzas: none of its 4 packages needs one that 9 or more need; --min-label-count takes fewer' \
    "$WIDEOUT" data deb822 --min-label-count 9 stanzas -o d
usage 'deb822 without -o' 'data deb822' 'needs -o DIR, the folder to write to' stanzas
usage 'deb822 of two files' 'data deb822' 'expected one file, found 2' a b -o d
usage 'deb822: a count of 0' 'data deb822' "--min-label-count takes a whole number of 1 or more, not '0'" --min-label-count 0
fails 'deb822 into a file' 1 'wideout: stanzas: exists and is not a folder' "$WIDEOUT" data deb822 stanzas -o stanzas
fails 'deb822 below a missing folder' 1 'wideout: no/no: the folder cannot be made: No such file or directory' \
    "$WIDEOUT" data deb822 stanzas -o no/no
mkdir folder folder/labels.txt
fails 'deb822: a folder in the way' 1 'wideout: folder/labels.txt: the output exists and is not a plain file' \
    "$WIDEOUT" data deb822 stanzas -o folder
same 'deb822: then nothing is written' labels.txt "$(ls folder)"
# Ctrl-C in a pipe ends the program that fills it as well: what came before that is not the catalogue. More than a pipe
# holds, so that the tool is at work when all is written, and has read it all when the signal comes.
mkfifo pipe
"$WIDEOUT" data deb822 - -o stopped <pipe 2>stopped.err &
reader=$!
exec 9>pipe
cat many many many many >&9
sleep 0.2
kill -INT $reader
exec 9>&-
wait $reader
same 'deb822: Ctrl-C in a pipe' '130 wideout: standard input: stopped while reading' "$? $(cat stopped.err)"
check 'deb822: then there is no folder' test ! -e stopped
before=$(contents s1)
fails 'deb822: a full disk' 1 'wideout: s1/train.txt: the file cannot be written: File too large' no_space "$WIDEOUT" data deb822 many -o s1
same 'deb822: the old files stay' "$before" "$(contents s1)"

# ---- text --------------------------------------------------------------------------------------------------------
printf 'the cat sat on the mat and the dog ran\n' >one
printf ' = Title = \n \n the <unk> sat \n' >three
same 'text' 'wrote t: 10 tokens (6 train, 1 valid, 3 test), vocabulary of 8 words; <eos> at line ends: no' \
    "$("$WIDEOUT" data text one -o t | head -1)"
same 'text: parts' 'tokens train 6|tokens valid 1|tokens test 3' "$(
    for part in train valid test; do
        "$WIDEOUT" info --json t/$part.tokens.safetensors |
            jq -r '[.kind, .metadata.part, (.tensors[] | select(.name == "tokens") | .shape[0])] | join(" ")'
    done | paste -sd '|')"
same 'text: lines end in <eos>' '[9,6,true]' \
    "$("$WIDEOUT" data text three --split 1,1,1 -o t3 --json | jq -c '[.tokens, .words, .eos]')"
same 'text --eos off' '[6,5,false]' \
    "$("$WIDEOUT" data text three --eos off --split 1,1,1 -o t3 --json | jq -c '[.tokens, .words, .eos]')"
same 'text --min-count' '[10,2,7]' "$("$WIDEOUT" data text one --min-count 2 -o t4 --json | jq -c '[.tokens, .words, .made_unknown]')"
same 'text of three files' '[25,14,11,9,5]' \
    "$(printf 'a b\na' >part; "$WIDEOUT" data text one three part -o t5 --json | jq -c '[.tokens, .words, .train, .valid, .test]')"
gzip -nc one >one.gz
"$WIDEOUT" data text -q one.gz -o t6 >/dev/null
same 'text: gzip changes nothing' "$(contents t)" "$(contents t6)"
before=$(contents t)
fails 'text: empty' 1 'wideout: /dev/null: the path is not a plain file' "$WIDEOUT" data text /dev/null -o t
: >empty
fails 'text: an empty file' 1 'wideout: empty: the text is empty' "$WIDEOUT" data text empty -o t
printf '   \n' >blank
fails 'text: spaces' 1 'wideout: blank: the text has no words' "$WIDEOUT" data text blank -o t
printf 'no no no no\n' >no
fails 'text: one word' 1 "wideout: no: the vocabulary has one word only, 'no': nothing to predict" "$WIDEOUT" data text no -o t
printf 'a b \xff c' >latin
fails 'text: not UTF-8' 1 'wideout: latin: byte 4 of the text: a word that is not UTF-8' "$WIDEOUT" data text latin -o t
{ printf 'a '; head -c 70000 /dev/zero | tr '\0' b; } >long
fails 'text: a long word' 1 'wideout: long: byte 2 of the text: a word of more than 65536 bytes' "$WIDEOUT" data text long -o t
printf 'a b' >two
fails 'text: too short to split' 1 'wideout: two: has 2 tokens: too few for a valid part; --split says how large the parts are' "$WIDEOUT" data text two -o t
head -c 40 one.gz >cut.gz
fails 'text: cut gzip' 1 'wideout: cut.gz: gzip data after byte 36 of the text: the file is truncated' "$WIDEOUT" data text cut.gz -o t
seq 9000 >numbers
fails 'text: a full disk' 1 'wideout: t/train.tokens.safetensors: the file cannot be written: File too large' \
    no_space "$WIDEOUT" data text numbers -o t
same 'text: the old files stay' "$before" "$(contents t)"
usage 'text of two files' 'data text' 'expected one file or three, found 2' a b -o t
usage 'text: a bad split' 'data text' "--split takes three whole numbers such as 65,5,30, not '65,35'" a --split 65,35 -o t
usage 'text: a split of three files' 'data text' '--split is for one file, found three' a b c --split 1,1,1 -o t

# ---- split -------------------------------------------------------------------------------------------------------
{ echo '1000 9 7'; seq 1000 | awk '{print $1 % 7 " " $1 % 9 ":" $1}'; } >rows
same 'split' 'wrote p: 951 rows to train.txt, 49 to valid.txt' "$("$WIDEOUT" data split rows -o p)"
same 'split: the rows are all there, in order' "$(tail -n +2 rows | cksum)" \
    "$(tail -qn +2 p/train.txt p/valid.txt | sort -t: -k2n | cksum)"
same 'split: headers' '951 9 7|49 9 7' "$(head -qn 1 p/train.txt p/valid.txt | paste -sd '|')"
check 'split: rows stay in order' sort -t: -k2n -c <(tail -n +2 p/valid.txt)
tail -n +2 rows | sed 's/$/ /' | gzip -n >bare.gz
"$WIDEOUT" data split -q --lenient bare.gz -o p2 >/dev/null
same 'split: without a header, the same' "$(contents p)" "$(contents p2)"
same 'split --json' '[916,84]' "$("$WIDEOUT" data split rows --valid 0.1 --seed 3 -o p3 --json | jq -c '[.train, .valid]')"
same 'split --last' 'wrote p4: 900 rows to train.txt, 100 to valid.txt' "$("$WIDEOUT" data split rows --last --valid 0.1 -o p4)"
same 'split --last: the first rows, then the last' "$(tail -n +2 rows | cksum)" "$(tail -qn +2 p4/train.txt p4/valid.txt | cksum)"
"$WIDEOUT" data split -q --lenient bare.gz --last --valid 0.1 --seed 7 -o p5 >/dev/null
same 'split --last: without a header, with another seed, the same' "$(contents p4)" "$(contents p5)"
fails 'split --last: nothing to train on' 1 'wideout: rows: with --valid 1 none of its 1000 rows goes to train.txt' \
    "$WIDEOUT" data split rows --last --valid 1 -o p
before=$(contents p)
printf '30 9 7\n0 1:1\n1 2:1\n' >short
fails 'split: a header that lies' 1 'wideout: short: ends after 2 rows, the header says 30' "$WIDEOUT" data split short --valid 0.5 -o p
fails 'split: nothing to validate on' 1 'wideout: rows: with --valid 0 none of its 1000 rows goes to valid.txt' \
    "$WIDEOUT" data split rows --valid 0 -o p
printf '1 2\n0:1\n' >matrix
fails 'split: half of the two-file form' 1 "wideout: matrix: is one half of the two-file form: join it with 'wideout data xc' first" \
    "$WIDEOUT" data split matrix -o p
fails 'split: a full disk' 1 'wideout: p/train.txt: the file cannot be written: File too large' no_space "$WIDEOUT" data split rows -o p
same 'split: the old files stay' "$before" "$(contents p)"
usage 'split: a share over 1' 'data split' "--valid takes a number from 0 to 1, not '5'" rows --valid 5 -o p
usage 'split: a share that is no number' 'data split' "--valid takes a number from 0 to 1, not 'x'" rows --valid x -o p
usage 'split: NaN' 'data split' "--valid takes a number from 0 to 1, not 'nan'" rows --valid nan -o p

# ---- draw --------------------------------------------------------------------------------------------------------
"$WIDEOUT" data synthetic -q -m 50 -d 4 -n 4000 -o whole >/dev/null
log=whole/valid.log.safetensors
same 'made up: one to test' '1 test query' "$("$WIDEOUT" data synthetic -m 9 -d 4 -n 10 -o nine | grep -o '[0-9]* test q[a-z]*')"
"$WIDEOUT" data draw -q $log -n 1 -o one >/dev/null
same 'draw one of one' 'wrote drawn0: 1 of 1 query, with 1 label' "$("$WIDEOUT" data draw one -n 1 -o drawn0)"
fails 'draw more than one of one' 1 'wideout: one: has 1 query, fewer than the 2 to draw' "$WIDEOUT" data draw one -n 2 -o drawn0
same 'draw' 'wrote drawn1: 90 of 400 queries, with 90 labels' "$("$WIDEOUT" data draw $log -n 90 -o drawn1)"
same 'draw --json' '{"queries":90,"of":400,"labels":90}' "$("$WIDEOUT" data draw $log -n 90 -t 2 -o drawn2 --json | jq -c .)"
check 'draw: the same seed, the same queries' cmp drawn1 drawn2
"$WIDEOUT" data draw $log -n 90 --seed 2 -o drawn3 >/dev/null
check 'draw: another seed, others' bash -c '! cmp -s drawn1 drawn3'
"$WIDEOUT" data draw $log -n 400 -o drawn4 >/dev/null
"$WIDEOUT" build -q --layer whole/layer.safetensors --method full -o full >/dev/null
answers() { "$WIDEOUT" predict -q --index full "$1"; }
same 'draw: all of them are the log' "$(answers $log)" "$(answers drawn4)"
same 'draw: what is drawn is in the log, in its order, each once' "$(answers drawn1)" \
    "$(diff --unchanged-line-format='%L' --old-line-format= --new-line-format= <(answers $log) <(answers drawn1))"
shares() { "$WIDEOUT" eval -q --no-timing --json --index full --log "$1" | jq -c '[.n, .p_at_1 > 0]'; }
same 'draw: with the labels of each' '[90,true]' "$(shares drawn1)"
seen=$(for seed in $(seq 1 40); do "$WIDEOUT" data draw $log -n 20 --seed "$seed" -o drawn5 >/dev/null; answers drawn5; done | sort -u | wc -l)
check "draw: every query has a chance: $seen of 400 in 40 draws of 20" test "$seen" -gt 320 # 349 are to be expected
fails 'draw: more than there are' 1 "wideout: $log: has 400 queries, fewer than the 401 to draw" "$WIDEOUT" data draw $log -n 401 -o drawn6
check 'draw: nothing is left behind' test ! -e drawn6
fails 'draw: no log' 1 "wideout: rows: the file is not a safetensors file; it looks like text: 'wideout embed' makes a log of raw data" "$WIDEOUT" data draw rows -n 3 -o drawn6
fails 'draw: a full disk' 1 'wideout: drawn1: the file cannot be written: File too large' no_space "$WIDEOUT" data draw $log -n 400 -o drawn1
check 'draw: the old file stays' cmp drawn1 drawn2
usage 'draw: how many' 'data draw' 'needs -n N, how many queries to draw' $log -o drawn6
usage 'draw: where to' 'data draw' 'needs -o FILE for the log' $log -n 3
usage 'draw: into itself' 'data draw' "-o '$log' would replace what is read" $log -n 3 -o $log
usage 'draw: two logs' 'data draw' 'expected one log, found 2' a b -n 3 -o drawn6

# ---- synthetic ---------------------------------------------------------------------------------------------------
made=(data synthetic -q -m 20000 -d 16 -n 20000)
"$WIDEOUT" "${made[@]}" --threads 1 -o y1 >/dev/null
"$WIDEOUT" "${made[@]}" --threads 2 -o y2 >/dev/null
"$WIDEOUT" "${made[@]}" --seed 2 -o y3 >/dev/null
same 'synthetic: four files' 'layer.safetensors test.log.safetensors train.log.safetensors valid.log.safetensors' "$(cd y1 && echo *)"
same 'synthetic: one thread or two, the same bytes' "$(contents y1)" "$(contents y2)"
check 'synthetic: another seed, other bytes' test "$(contents y1)" != "$(contents y3)"
same 'synthetic: the layer' '["layer","ok",[20000,16],[20000]]' \
    "$("$WIDEOUT" info --json y1/layer.safetensors | jq -c '[.kind, .checksums, (.tensors[] | select(.name | startswith("padding") | not) | .shape)]')"
same 'synthetic: a shard' 6667 "$("$WIDEOUT" "${made[@]}" --shard 1/3 -o shard --json | jq .m)"
for shard in 3/3 1/30000 /3 1/ 1/3x -1/3; do
    usage "synthetic: shard $shard" 'data synthetic' \
        '--shard takes I/P, shard I of P from 0/P on, with at most 9999 of them and a class in each' "${made[@]:2}" --shard $shard -o y6
done
check 'synthetic: the logs' "$WIDEOUT" info y1/test.log.safetensors
same 'synthetic --as text' '[500,1250,3000,300]' \
    "$("$WIDEOUT" data synthetic --as text -m 500 -n 3000 -o y4 --json | jq -c '[.m, .features, .train, .test]')"
"$WIDEOUT" data synthetic -q --as text -m 500 -n 3000 -o y5 >/dev/null
same 'synthetic: text twice, the same bytes' "$(contents y4)" "$(contents y5)"
for part in train valid test; do check "synthetic: $part.txt is canonical" "$WIDEOUT" data xc y4/$part.txt; done
same 'synthetic: names' 'class-499 word-1249' "$(tail -qn 1 y4/labels.txt y4/features.txt | paste -sd ' ')"
before=$(contents y1)
fails 'synthetic: a full disk' 1 'wideout: y1/layer.safetensors: the file cannot be written: File too large' no_space "$WIDEOUT" "${made[@]}" -o y1
same 'synthetic: the old files stay' "$before" "$(contents y1)"
usage 'synthetic: one class' 'data synthetic' '-m takes 2 to 2147483647 classes, not 1' -m 1 -o y
usage 'synthetic: dimensions of text' 'data synthetic' '-d is for --as layer' -d 4 --as text -o y
usage 'synthetic: an exponent' 'data synthetic' "--exponent takes a number from 0 to 4, not '-1'" --exponent -1 -o y
usage 'synthetic: a file' 'data synthetic' "takes no file, found 'x'" x -o y

finish
