#!/bin/bash
# Training and embedding: every option, the same file for one thread or two and for a run that was stopped and resumed,
# bad input, a full disk, and PyTorch's network where its files are at hand.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
case $BUILD in /*) sign=$BUILD/tests/tools/sign ;; *) sign=$PWD/$BUILD/tests/tools/sign ;; esac
torch=$(realpath -m "${WIDEOUT_DATA:-../shared/data}")/wikitext-2
cd "$scratch" || exit 1
export OMP_WAIT_POLICY=passive # beside another busy process, two spinning threads took up to 8 s where these take 0.5

usage() { # NAME COMMAND SENTENCE ARGUMENT...
    local name=$1 command=$2 sentence=$3
    shift 3
    # shellcheck disable=SC2086 # the command may be two words
    fails "$name" 2 "wideout $command: $sentence (see 'wideout $command --help')" "$WIDEOUT" $command "$@"
}
no_space() { # KIB COMMAND...: files cannot grow beyond that
    (trap '' XFSZ && ulimit -f "$1" && shift && exec "$@")
}
full_disk() { # NAME SENTENCE KIB COMMAND...
    if [ "${SAN:-}" = thread ]; then # under it the process dies of SIGBUS at that limit; clang alone does not
        ok "$1 # skip under ThreadSanitizer"
    else
        fails "$1" 1 "$2" no_space "${@:3}"
    fi
}
below() { # A B: numbers
    awk -v a="$1" -v b="$2" 'BEGIN{exit !(a < b)}'
}
train() { # ARCH NET ARGUMENT...: trains on the data of the arch
    local arch=$1 net=$2
    shift 2
    "$WIDEOUT" train "$arch" --train "${data[$arch]}" -o "$net" "${small[@]}" "$@"
}
loss() { # ARCH ARGUMENT...
    train "$1" loss.net --json "${@:2}" | jq .loss
}

# ---- Data --------------------------------------------------------------------------------------------------------
# Three blocks of classes, so that threads have something to share; words that follow from the word before.
"$WIDEOUT" data synthetic -q --as text -m 1100 -n 2000 -o x >/dev/null
awk 'BEGIN{x = 1; w = 0
    for (i = 0; i < 9000; i++) {
        x = x * 16807 % 2147483647
        w = x % 4 ? (w * 7 + 3) % 600 : int(x / 4) % 600
        printf "w%d%s", w, i % 20 == 19 ? "\n" : " "
    }}' >corpus
"$WIDEOUT" data text -q corpus -o t >/dev/null
declare -A data=([xc]=x/train.txt [w2v]=t/train.tokens.safetensors [lm]=t/train.tokens.safetensors)
declare -A valid=([xc]=x/valid.txt [w2v]=t/valid.tokens.safetensors [lm]=t/valid.tokens.safetensors)
declare -A tests=([xc]=x/test.txt [w2v]=t/test.tokens.safetensors [lm]=t/test.tokens.safetensors)
small=(-q -d 8 -t 1) # one thread where more are not the question

# ---- Options -----------------------------------------------------------------------------------------------------
all=(--dim 6 --epochs 1 --batch 50 --lr 0.01 --dropout 0.1 --sampled 20 --threads 1 --seed 3 --quiet)
check 'xc: every option' train xc o.net --valid x/valid.txt --test x/test.txt "${all[@]}" --counts raw --normalize none \
    --label-names x/labels.txt --feature-names x/features.txt --lenient
check 'w2v: every option' train w2v o.net --valid "${valid[w2v]}" --test "${tests[w2v]}" "${all[@]}" --window 3 --drop-top 2
check 'lm: every option' train lm o.net --valid "${valid[lm]}" --test "${tests[lm]}" "${all[@]}" --steps 10 --clip 0
check 'short options' train lm o.net -d 4 -e 1 -b 8 -t 2 -q
check 'w2v: --drop-top 0' train w2v o.net -e 1 --drop-top 0
check '--time-steps' grep -q '^3 steps: .*; nothing was written$' <(train xc timed.net -e 2 --time-steps 3)
check 'then nothing was written' test ! -e timed.net -a ! -e timed.net.checkpoint
usage 'a network over its data' 'train xc' "-o 'x/train.txt' would replace what is read" --train x/train.txt -o x/train.txt
printf '1,2 1:1 3:2\n3 2:1\n' >one.svm
check 'xc: a LIBSVM copy' "$WIDEOUT" train xc --train one.svm --test one.svm --lenient --one-based -e 1 -o o.net
check 'embed: which it reads too' "$WIDEOUT" embed o.net --data one.svm --lenient --one-based -o o.log
same 'its shape' '[[3,128],[3,128]]' "$("$WIDEOUT" info --json o.net | jq -c '[.tensors[] | select(.name | test("weight")) | .shape]')"
check 'options in the network' jq -en 'input.metadata | .arch == "xc" and .counts == "log1p" and .normalize == "l2" and .extractor == "none"' \
    <("$WIDEOUT" info --json o.net)
for arch in xc w2v lm; do
    usage "$arch without data" "train $arch" 'needs --train FILE' -o o.net
    usage "$arch: two files" "train $arch" '--train is given twice' --train x --train y -o z
    usage "$arch without -o" "train $arch" 'needs -o FILE for the network' --train x
    usage "$arch: a file too many" "train $arch" "unexpected 'x': files are named by --train, --valid and --test" x
    usage "$arch: a rate of 0" "train $arch" '--lr takes a number above 0' --train x -o y --lr 0
    usage "$arch: a rate over 1" "train $arch" "--lr takes a number from 0 to 1, not '2'" --train x -o y --lr 2
    usage "$arch: all dropped" "train $arch" "--dropout takes a number from 0 to 0.99, not '1'" --train x -o y --dropout 1
    usage "$arch: no epoch" "train $arch" "--epochs takes a whole number of 1 or more, or auto, not '0'" --train x -o y --epochs 0
done
usage 'counts' 'train xc' "--counts takes log1p|raw, not 'log'" --train x -o y --counts log
usage 'a window of the whole text' 'train w2v' '--window takes at most 1000, not 1001' --train x -o y --window 1001
usage 'the window is for words' 'train lm' "unknown option '--window'" --train x -o y --window 3
fails 'a batch too large' 1 'wideout: -b: batch is 1048577, expected 1 to 1048576' train xc o.net --batch 1048577
fails 'steps whose product is none' 1 'wideout: --steps: steps is 9.223372037e+18, expected 0 to 1048576' \
    train lm o.net --batch 2 --steps 9223372036854775808
usage 'embed without a network' embed 'expected one network, found 0' --data x -o y
usage 'embed without data' embed 'needs --data FILE' o.net -o y
usage 'embed without -o' embed 'needs -o FILE for the log' o.net --data x
usage 'embed: a state dict without words' embed '--arch lm needs --vocab FILE' o.net --data x -o y --arch lm
usage 'embed: a score without labels' embed '--score judges the places of words: it does not go with --distinct' o.net --data x -o y --distinct --score
usage 'embed: other types' embed "--dtype takes f32|bf16, not 'f16'" o.net --data x -o y --dtype f16

# ---- What comes out ----------------------------------------------------------------------------------------------
fields='[.m, .d, .epochs, .loss, .valid_p_at_1, .valid_p_at_5, .test_p_at_1, .test_p_at_5, .examples_per_s, .seconds]'
for arch in xc w2v lm; do
    train "$arch" "$arch.net" --json --valid "${valid[$arch]}" --test "${tests[$arch]}" -e 6 --lr 0.02 >"$arch.json"
    check "$arch: every figure of --json is a number" jq -e "$fields | all(type == \"number\")" "$arch.json"
    check "$arch: they are sensible" jq -e '.m > 500 and .d == 8 and .epochs == 6 and .loss > 0 and .valid_p_at_1 <= 1 and
        .test_p_at_5 > 0 and .test_p_at_5 <= 1 and .examples_per_s > 0 and .seconds > 0' "$arch.json"
    check "$arch: the loss falls" below "$(jq .loss "$arch.json")" "$(loss "$arch" -e 1 --lr 0.02)"
    check "$arch: no checkpoint stays" test ! -e "$arch.net.checkpoint"
    check "$arch: a network whose checksums hold" jq -en 'input | .kind == "network" and .checksums == "ok"' \
        <("$WIDEOUT" info --json "$arch.net")
done
same 'without --valid and --test there are no such figures' '[null,null,null,null]' \
    "$(train xc o.net --json -e 1 | jq -c '[.valid_p_at_1, .valid_p_at_5, .test_p_at_1, .test_p_at_5]')"
same 'names from beside the data' 1100 "$("$WIDEOUT" info --json xc.net |
    jq '.tensors[] | select(.name == "names.labels.indptr") | .shape[0] - 1')"
same 'what it was trained on' '["2000","6","0.02","1"]' "$("$WIDEOUT" info --json xc.net |
    jq -c '.metadata | [.["train.examples"], .["train.epochs"], .["train.lr"], .["train.seed"]]')"
same 'and the steps and the clipping of lm' '["35","0.5"] [null,null]' \
    "$(for arch in lm xc; do "$WIDEOUT" info --json $arch.net | jq -c '.metadata | [.["train.steps"], .["train.clip"]]'; done | paste -sd ' ')"
same 'features of some text' words "$("$WIDEOUT" info --json xc.net | jq -r .metadata.extractor)"
sed '1s/.*/section:games/' x/features.txt >fields
train xc o.net -e 1 --feature-names fields >/dev/null
same 'features of Debian packages' deb822 "$("$WIDEOUT" info --json o.net | jq -r .metadata.extractor)"
same 'PyTorch'\''s names' 'embed.weight lstm.bias_hh_l0 lstm.bias_hh_l1 lstm.bias_ih_l0 lstm.bias_ih_l1 lstm.weight_hh_l0 lstm.weight_hh_l1 lstm.weight_ih_l0 lstm.weight_ih_l1 output.bias output.weight' \
    "$("$WIDEOUT" info --json lm.net | jq -r '.tensors[].name' | grep -E 'weight|bias' | sort | paste -sd ' ')"
check 'w2v says what a fixed list scores' grep -q 'P@1 0.956' <(train w2v o.net -e 1)
check 'unless words are dropped' bash -c '! grep -q 0.956' < <(train w2v o.net -e 1 --drop-top 9)
# What a file says of itself is held against the same bounds, before anything is read around a word.
train w2v wide.net -e 1 --window 1000 --drop-top 2
bad_number() { # KEY SENTENCE OLD NEW
    "$sign" wide.net bad.net "\"$1\":\"$3\"" "\"$1\":\"$4\""
    fails "a network's $1 of $4" 1 "wideout: bad.net: '$1' is \"$4\", expected a number up to $2" \
        "$WIDEOUT" embed bad.net --data "${data[w2v]}" -o bad.log
}
bad_number window 1000 1000 1001
bad_number window 1000 1000 -001
bad_number window 1000 1000 1e03
bad_number drop_top "$("$WIDEOUT" info --json wide.net | jq '.tensors[] | select(.name == "output.bias").shape[0]')" 2 -
check 'a text is read in the widest window' "$WIDEOUT" embed -q wide.net --data "${data[w2v]}" --max-queries 100 -o wide.log
check 'a report for people' grep -q 'test  P@1 0\.[0-9]*  P@5 0\.[0-9]*  over 200 examples' <(train xc o.net -e 1 --test x/test.txt)

# Words that always come in threes: a window of 1 around the one in the middle holds the same two, and half of those around
# the others. A fixed list scores less than 0.01.
awk 'BEGIN{x = 1; for (i = 0; i < 3000; i++) {x = x * 16807 % 2147483647; w = x % 200; printf "a%d b%d c%d ", w, w, w}}' >threes
"$WIDEOUT" data text -q threes -o 3 >/dev/null
learns() { # ARGUMENT...: the test P@1 of the word network
    "$WIDEOUT" train w2v --train 3/train.tokens.safetensors --test 3/test.tokens.safetensors -t 1 -d 16 --lr 0.02 --window 1 \
        -o o.net --json "$@" | jq .test_p_at_1
}
check 'w2v learns neighbours' below 0.9 "$(learns -e 12)"
check 'w2v: with sampled softmax, later' below 0.9 "$(learns -e 24 --sampled 200)"

# A terminal that does not say how wide it is has 80 columns. A bare chroot has no terminals (/dev/pts).
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    script -qec "'$WIDEOUT' train xc --train x/train.txt --valid x/valid.txt -d 8 -t 1 -e 60 -o o.net" /dev/null </dev/null |
        tr '\r' '\n' | sed 's/\x1b\[K//' >screen
    check 'a progress line' grep -qE '^training.* [0-9]+/60, loss [0-9.]+, .*P@1 0\.[0-9]+ P@5 0\.[0-9]+' screen
    check 'that does not wrap' bash -c '! grep -E "^(training|evaluating).*" screen | grep -E ".{80}"'
else
    ok 'the progress line is not looked at: no terminal can be made here # skip'
fi

# ---- Threads and seeds -------------------------------------------------------------------------------------------
for arch in xc w2v lm; do
    for how in '' '--sampled 64'; do
        # shellcheck disable=SC2086 # none, or an option and its value
        train "$arch" one.net -e 2 -t 1 $how >/dev/null
        # shellcheck disable=SC2086
        train "$arch" two.net -e 2 -t 2 $how >/dev/null
        check "$arch $how: one thread or two, the same file" cmp one.net two.net
    done
    train "$arch" two.net -e 2 -t 2 --seed 2 >/dev/null
    check "$arch: another seed, another file" bash -c '! cmp -s one.net two.net'
done

# ---- Stopped and resumed -----------------------------------------------------------------------------------------
# Waits for the first checkpoint and presses Ctrl-C, long before the last of the epochs.
stop() { # ARCH NET ARGUMENT...: prints the exit code
    "$WIDEOUT" train "$1" --train "${data[$1]}" -o "$2" "${small[@]}" "${@:3}" >stop.out 2>stop.err &
    local run=$!
    while [ ! -e "$2.checkpoint" ] && kill -0 $run 2>/dev/null; do sleep 0.01; done
    kill -INT $run 2>/dev/null
    wait $run
    echo $?
}
# Goes on from a checkpoint, keeps it as kept.checkpoint, and stops after the next one.
stop_later() { # ARCH NET ARGUMENT...
    ln -f "$2.checkpoint" kept.checkpoint
    "$WIDEOUT" train "$1" --train "${data[$1]}" -o "$2" "${small[@]}" "${@:3}" >stop.out 2>stop.err &
    local run=$!
    while [ "$2.checkpoint" -ef kept.checkpoint ] && kill -0 $run 2>/dev/null; do sleep 0.01; done
    kill -INT $run 2>/dev/null
    wait $run
}
for arch in xc w2v lm; do
    long=(-e 30 --valid "${valid[$arch]}")
    [ $arch != xc ] || long+=(-d 32)
    [ $arch != lm ] || long+=(-e 12 -b 16)
    [ $arch != w2v ] || long+=(--drop-top 3 --sampled 100)
    same "$arch: Ctrl-C" 130 "$(stop "$arch" int.net "${long[@]}")"
    same "$arch: one sentence" '1 yes' "$(wc -l <stop.err) $(grep -qE 'stopped|cancelled|interrupted' stop.err && echo yes)"
    check "$arch: then there is no network" test ! -e int.net
    check "$arch: but a checkpoint" test -e int.net.checkpoint
    [ $arch != xc ] || cp int.net.checkpoint kept
    check "$arch: --resume" train "$arch" int.net "${long[@]}" --resume -t 2
    train "$arch" through.net "${long[@]}" >/dev/null
    check "$arch: the very network of an undisturbed run" cmp int.net through.net
    check "$arch: the checkpoint goes" test ! -e int.net.checkpoint
    rm int.net
done
long=(-e 30 --valid "${valid[xc]}" -d 32)
train xc through.net "${long[@]}" >/dev/null

# The checkpoint in "kept" is of an xc network, stopped early on.
other="wideout: k.net: its checkpoint: belongs to another network, other data or other options; delete it, or train without --resume"
cp kept k.net.checkpoint
echo old >k.net
fails 'resume: another rate' 1 "$other" train xc k.net "${long[@]}" --resume --lr 0.1
fails 'resume: another seed' 1 "$other" train xc k.net "${long[@]}" --resume --seed 9
fails 'resume: another size' 1 "$other" train xc k.net "${long[@]}" --resume -d 7
fails 'resume: more epochs' 1 "$other" train xc k.net "${long[@]}" --resume -e 31
fails 'resume: raw counts' 1 "$other" train xc k.net "${long[@]}" --resume --counts raw
fails 'resume: sampled' 1 "$other" train xc k.net "${long[@]}" --resume --sampled 9
fails 'resume: another network' 1 "$other" train lm k.net "${long[@]:0:2}" --resume
sed '2s/:[0-9]/:9/' x/train.txt >x/changed.txt
fails 'resume: other data' 1 "$other" "$WIDEOUT" train xc --train x/changed.txt "${small[@]}" "${long[@]}" --resume -o k.net
check 'then the checkpoint is as it was' cmp kept k.net.checkpoint
same 'and so is the network' old "$(cat k.net)"
fails 'resume: nothing to go on from' 1 'wideout: none.net: its checkpoint: the file cannot be opened: No such file or directory' \
    train xc none.net "${long[@]}" --resume
head -c 5000 kept >k.net.checkpoint
same 'resume: a cut checkpoint' '1 1' "$(train xc k.net "${long[@]}" --resume 2>err >/dev/null; echo "$? $(wc -l <err)")"
size=$(stat -c %s kept)
{ head -c $((size - 1)) kept; printf '\xff'; } >k.net.checkpoint
same 'resume: a damaged checkpoint' "wideout: k.net: its checkpoint: tensor 'output.bias.adam_v' was changed" \
    "$(train xc k.net "${long[@]}" --resume 2>&1 >/dev/null | sed 's/ ([0-9]* bytes at byte [0-9]*)//; s/: its checksum is.*//')"
cp xc.net k.net.checkpoint
fails 'resume: a network is no checkpoint' 1 "wideout: k.net: its checkpoint: exists and is no checkpoint of wideout's: move it away" \
    train xc k.net "${long[@]}" --resume

# ---- As many epochs as pay ---------------------------------------------------------------------------------------
# --epochs auto: the network is that of the best epoch by the validation file.
for arch in xc w2v lm; do
    usage "$arch: auto without --valid" "train $arch" '--epochs auto needs --valid FILE, which says when to stop' --train x -o y --epochs auto
    auto=(-e auto --valid "${valid[$arch]}" --lr 0.02)
    [ $arch != lm ] || auto+=(-b 16)
    [ $arch != w2v ] || auto+=(--drop-top 3 --sampled 100)
    train $arch auto.net "${auto[@]}" --json >auto.json
    check "$arch: auto stops before the limit, and not at once" jq -e '.epochs >= 5 and .epochs < 60' auto.json
    check "$arch: P@1 of each epoch" jq -e '.epochs == (.valid_p_at_1_by_epoch | length)' auto.json
    check "$arch: the first of the best is kept" jq -e '.kept_epoch == (.valid_p_at_1_by_epoch | index(max)) + 1' auto.json
    check "$arch: that is the P@1 of the network" jq -e '.valid_p_at_1 == (.valid_p_at_1_by_epoch | max)' auto.json
    "$WIDEOUT" embed auto.net --data "${valid[$arch]}" -o auto.log --score --json >embed.json
    same "$arch: also of the one in the file" "$(jq -c '[.valid_p_at_1, .valid_p_at_5]' auto.json)" "$(jq -c '[.p_at_1, .p_at_5]' embed.json)"
    same "$arch: the record says so" "$(jq -c '[.epochs, .kept_epoch]' auto.json)" \
        "$("$WIDEOUT" info --json auto.net | jq -c '.metadata | [.["train.epochs"], .["train.kept_epoch"]] | map(tonumber)')"
    check "$arch: no checkpoint stays" test ! -e auto.net.checkpoint
    train $arch two.net "${auto[@]}" -t 2 >auto.out
    check "$arch: auto: one thread or two, the same file" cmp auto.net two.net
    same "$arch: auto: a line for people" "  $(jq .epochs auto.json) epochs, of which number $(jq .kept_epoch auto.json) is kept: valid P@1 $(jq .valid_p_at_1 auto.json | awk '{printf "%.4f", $1}')" \
        "$(sed -n '/is kept/p' auto.out)"

    # Stopped again and again: while the rate is at its peak, when it has just fallen, when all that is left is to evaluate.
    rm -f int.net int.net.checkpoint
    stop $arch int.net "${auto[@]}" --json >/dev/null
    stops=1
    while [ -e int.net.checkpoint ] && [ $stops -lt 70 ]; do
        stop_later $arch int.net "${auto[@]}" --json --resume
        stops=$((stops + 1))
    done
    check "$arch: auto: stopped $stops times, the very network of an undisturbed run" cmp int.net auto.net
    figures='[.epochs, .kept_epoch, .loss, .valid_p_at_1, .valid_p_at_1_by_epoch]'
    same "$arch: auto: and the same figures" "$(jq -c "$figures" auto.json)" "$(jq -c "$figures" stop.out)"
    [ $arch != xc ] || cp kept.checkpoint kept.auto
done

# The checkpoint in "kept.auto" is of an xc network; another validation file would have decided otherwise.
auto=(-e auto --valid x/valid.txt --lr 0.02)
cp kept.auto k.net.checkpoint
fails 'resume auto: another validation file' 1 "$other" train xc k.net "${auto[@]/x\/valid.txt/x/test.txt}" --resume
fails 'resume auto: a number of epochs' 1 "$other" train xc k.net "${auto[@]}" -e 60 --resume
cp kept k.net.checkpoint
fails 'resume auto: the checkpoint of a number of epochs' 1 "$other" train xc k.net "${auto[@]}" --resume
cp x/valid.txt same.txt
cp kept.auto k.net.checkpoint
train xc auto.net "${auto[@]}" >/dev/null
check 'resume auto: the validation file by another name' train xc k.net "${auto[@]/x\/valid.txt/same.txt}" --resume
check 'to the very same network' cmp k.net auto.net
sed '1!s/^[0-9,]*//' x/valid.txt >none.txt
fails 'auto: a validation file without labels' 1 \
    'wideout: none.txt: no example has a label, by which it would be known when to stop; give --epochs a number' \
    train xc o.net -e auto --valid none.txt
usage 'auto is a word of its own' 'train xc' "--epochs takes a whole number of 1 or more, or auto, not 'automatic'" \
    --train x -o y -e automatic
check 'auto: --time-steps' grep -q '^3 steps: ' <(train xc timed.net -e auto --valid x/valid.txt --time-steps 3)
same 'a number of epochs: P@1 of each, the last is kept' '[3,3,3,true]' \
    "$(train xc o.net -e 3 --valid x/valid.txt --json | jq -c '[.epochs, .kept_epoch, (.valid_p_at_1_by_epoch | length), .valid_p_at_1 == .valid_p_at_1_by_epoch[2]]')"

# ---- A full disk -------------------------------------------------------------------------------------------------
cp kept k.net.checkpoint
full_disk 'a full disk' 'wideout: k.net: its checkpoint: the file cannot be written: File too large' \
    100 "$WIDEOUT" train xc --train x/train.txt "${small[@]}" "${long[@]}" --resume -o k.net
check 'keeps the last good checkpoint' cmp kept k.net.checkpoint
check 'from which a run goes on' train xc k.net "${long[@]}" --resume
check 'to the very same network' cmp k.net through.net
"$WIDEOUT" embed xc.net --data x/test.txt -o full.log >/dev/null
cp full.log full.kept
full_disk 'embed: a full disk' 'wideout: full.log: the file cannot be written: File too large' \
    4 "$WIDEOUT" embed xc.net --data x/train.txt -o full.log
check 'keeps the old log' cmp full.log full.kept
check 'and nothing is left behind' test -z "$(find . -name '*.tmp.*')"

# ---- Bad input ---------------------------------------------------------------------------------------------------
# Training for a million epochs: whatever is wrong is said before that.
early() { # NAME SENTENCE ARCH ARGUMENT...
    local name=$1 sentence=$2 arch=$3
    shift 3
    fails "$name" 1 "wideout: $sentence" timeout 20 "$WIDEOUT" train "$arch" "${small[@]}" -e 1000000 "$@"
}
sed '1s/1100$/1101/' x/valid.txt >labels
sed '1s/ [0-9]* / 999999 /' x/valid.txt >features
sed '1s/1100$/9/' x/train.txt >out-of-range
early 'a missing folder' 'no/o.net: the file cannot be created: No such file or directory' xc --train x/train.txt -o no/o.net
early 'an output that is a folder' 'x: the output exists and is not a plain file' xc --train x/train.txt -o x
early 'no training file' 'nowhere: the file cannot be opened: No such file or directory' xc --train nowhere -o o.net
for what in valid test; do
    early "$what: more labels than the network has" "labels: has 1101 labels, the network 1100; 'wideout data split' of the whole set gives its parts one header" xc --train x/train.txt --$what labels -o o.net
    early "$what: more features" "features: has 999999 features, the network $(sed -n '1s/.* \(.*\) .*/\1/p' x/train.txt); 'wideout data split' of the whole set gives its parts one header" \
        xc --train x/train.txt --$what features -o o.net
    early "$what: a missing file" 'nowhere: the file cannot be opened: No such file or directory' lm --train "${data[lm]}" --$what nowhere -o o.net
done
same 'a label out of range' '1 1' "$("$WIDEOUT" train xc --train out-of-range -o o.net "${small[@]}" 2>err >/dev/null; echo "$? $(wc -l <err)")"
printf '0 5 3\n' >empty.txt
early 'no rows' 'empty.txt: no row has a label: there is nothing to learn' xc --train empty.txt -o o.net
printf '2 5 3\n 1:1\n 2:1\n' >unlabelled.txt
early 'no labels' 'unlabelled.txt: no row has a label: there is nothing to learn' xc --train unlabelled.txt -o o.net
printf '1 5 3\n0 1:nan\n' >nan.txt
same 'NaN' '1 1' "$("$WIDEOUT" train xc --train nan.txt -o o.net "${small[@]}" 2>err >/dev/null; echo "$? $(wc -l <err)")"
printf '2 5 3\n0 1:1\n1 2:-1 4:1\n' >minus.txt
early 'a count that has no logarithm' 'minus.txt: row 2: feature 2 has the value -1, which is no count; try --counts raw' \
    xc --train minus.txt -o o.net
check 'which --counts raw takes' "$WIDEOUT" train xc --train minus.txt --counts raw -e 1 -o o.net
for arch in w2v lm; do
    early "$arch: text as tokens" "x/train.txt: is no token file; 'wideout data text' makes one of text" $arch --train x/train.txt -o o.net
    early "$arch: a network as tokens" "xc.net: is of kind network, expected a token file; 'wideout data text' makes one of text" $arch --train xc.net -o o.net
done
printf 'a b c\n' >abc
"$WIDEOUT" data text -q --split 1,1,1 abc -o abc.d >/dev/null
early 'w2v: a corpus of one word' 'abc.d/train.tokens.safetensors: has 1 words, expected 2 or more' w2v --train abc.d/train.tokens.safetensors -o o.net
early 'lm: a corpus of one word' 'abc.d/train.tokens.safetensors: has 1 words, expected more than the batch of 64' \
    lm --train abc.d/train.tokens.safetensors -o o.net
early 'lm: a batch larger than the corpus' "${data[lm]}: has 6142 words, expected more than the batch of 9999" \
    lm --train "${data[lm]}" -b 9999 -o o.net
early 'w2v: every word dropped' "${data[w2v]}: has 601 words: without the 601 most frequent none is left; try a smaller --drop-top" \
    w2v --train "${data[w2v]}" --drop-top 601 -o o.net
head -n 1099 x/labels.txt >few
early 'label names of another length' 'few: has 1099 names, the data 1100' xc --train x/train.txt --label-names few -o o.net
early 'feature names of another length' "few: has 1099 names, the data $(wc -l <x/features.txt)" xc --train x/train.txt --feature-names few -o o.net
early 'no such names' 'nowhere: the file cannot be opened: No such file or directory' xc --train x/train.txt --label-names nowhere -o o.net
mkdir beside
cp x/train.txt few beside
mv beside/few beside/labels.txt
early 'names of another length beside the data' 'beside/train.txt: labels.txt: has 1099 names, the data 1100' xc --train beside/train.txt -o o.net
awk 'BEGIN{printf "1 200 2\n0"; for (i = 0; i < 200; i++) printf " %d:3e38", i; print ""}' >huge.txt
same 'a loss that is none' '1 wideout: huge.txt: the loss is' "$("$WIDEOUT" train xc --train huge.txt --counts raw --normalize none \
    -e 3 --lr 1 -o o.net 2>&1 >/dev/null | sed 's/\(the loss is\) .*/\1/' | sed 's/^/1 /')"

# The squares of these gradients are beyond a float: a checkpoint with them could not be read again.
printf '2 2 2\n0 0:1e21\n1 0:2e21 1:1e21\n' >large.txt
same 'a state that cannot be resumed' '1 wideout: large.net: its checkpoint: would have inf as element' "$("$WIDEOUT" train xc --train large.txt \
    --counts raw --normalize none -e 3 -o large.net 2>&1 >/dev/null | sed 's/\(as element\) .*/\1/' | sed 's/^/1 /')"
check 'is not saved' test ! -e large.net -a ! -e large.net.checkpoint

# A test file whose last row is bad is found out at the end: the network and all epochs are kept.
{ head -n -1 x/test.txt; echo oops; } >late.txt
lines=$(wc -l <late.txt)
fails 'a bad last row of the test file' 1 "wideout: late.txt: line $lines: expected a label number, found 'oops'" \
    train xc late.net -e 2 --test late.txt
check 'the checkpoint stays' test -e late.net.checkpoint
cp x/test.txt late.txt
check 'and is enough' train xc late.net -e 2 --test late.txt --resume
train xc o.net -e 2 >/dev/null
check 'for the same network' cmp o.net late.net

# ---- embed -------------------------------------------------------------------------------------------------------
shape() { # LOG: shape and type of the queries, number of labels
    "$WIDEOUT" info --json "$1" | jq -c '[.kind, .checksums, (.tensors[] | select(.name == "queries") | .shape, .dtype)]'
}
for arch in xc w2v lm; do
    "$WIDEOUT" embed "$arch.net" --data "${tests[$arch]}" -o "$arch.log" -t 2 --score --json >embed.json
    same "$arch: --score is what training printed" "$(jq -c '[.test_p_at_1, .test_p_at_5]' "$arch.json")" \
        "$(jq -c '[.p_at_1, .p_at_5]' embed.json)"
    n=$(jq .n embed.json)
    same "$arch: a log" "[\"log\",\"ok\",[$n,8],\"F32\"]" "$(shape "$arch.log")"
    "$WIDEOUT" embed "$arch.net" --data "${tests[$arch]}" -o two.log -t 1 >/dev/null
    check "$arch: one thread or two, the same log" cmp "$arch.log" two.log
    "$WIDEOUT" embed "$arch.net" --data "${tests[$arch]}" -o half.log --dtype bf16 --max-queries 50 >/dev/null
    same "$arch: --dtype bf16 --max-queries 50" '["log","ok",[50,8],"BF16"]' "$(shape half.log)"
    "$WIDEOUT" embed "$arch.net" --data "${tests[$arch]}" -o half2.log --dtype bf16 --max-queries 50 --seed 2 >/dev/null
    check "$arch: another seed, another sample" bash -c '! cmp -s half.log half2.log'
done
same 'lm --next 3' "[\"log\",\"ok\",[$(($(jq .n embed.json) - 2)),8],\"F32\"]" \
    "$("$WIDEOUT" embed lm.net --data "${tests[lm]}" -o next.log --next 3 >/dev/null && shape next.log)"
"$WIDEOUT" embed w2v.net --data "${data[w2v]}" --distinct -o words.log --json >words.json
read -r from bytes < <("$WIDEOUT" info --json "${data[w2v]}" | jq -r '.tensors[] | select(.name == "tokens") | "\(.offset) \(.bytes)"')
n=$(od -An -v -t d4 -w4 -j "$from" -N "$bytes" "${data[w2v]}" | sort -u | wc -l)
same 'w2v --distinct: every word once' "[\"log\",\"ok\",[$n,8],\"F32\"] $n" "$(shape words.log) $(jq .n words.json)"
check 'counted' jq -en 'input.tensors | map(.name) | contains(["queries.counts", "labels.indices", "labels.counts"])' <("$WIDEOUT" info --json words.log)
"$WIDEOUT" data draw words.log -n "$n" -o all.log >/dev/null
counted() { "$WIDEOUT" info --json "$1" | jq -c '.metadata | [."xxh3.queries.counts", ."xxh3.labels.counts", ."xxh3.labels.indices"]'; }
same 'a draw of all has the counts' "$(counted words.log)" "$(counted all.log)"
"$WIDEOUT" embed w2v.net --data "${data[w2v]}" --distinct -o half.log --dtype bf16 --max-queries 50 >/dev/null
same 'w2v --distinct: --dtype bf16 --max-queries 50' '["log","ok",[50,8],"BF16"]' "$(shape half.log)"
for arch in xc lm; do
    fails "$arch: --distinct" 1 "wideout: $arch.net: is a network of kind $arch, expected w2v, whose queries are single words; leave out --distinct" \
        "$WIDEOUT" embed $arch.net --data "${tests[$arch]}" --distinct -o p.log
done
same 'embed for people' 'p.log: 200 queries of 8 numbers' "$("$WIDEOUT" embed xc.net --data x/test.txt -o p.log | sed 's/, [0-9.]* s$//')"
fails 'embed: no network' 1 "wideout: xc.log: is not a network of wideout's" "$WIDEOUT" embed xc.log --data x/test.txt -o p.log
fails 'embed: data of more labels' 1 "wideout: labels: has 1101 labels, the network 1100; 'wideout data split' of the whole set gives its parts one header" "$WIDEOUT" embed xc.net --data labels -o p.log
fails 'embed: text longer than the corpus' 1 "wideout: ${tests[lm]}: has $(($(jq .n embed.json) + 1)) words, expected more than 999999" \
    "$WIDEOUT" embed lm.net --data "${tests[lm]}" --next 999999 -o p.log
fails 'embed: text for a language model' 1 "wideout: x/test.txt: is no token file; 'wideout data text' makes one of text" \
    "$WIDEOUT" embed lm.net --data x/test.txt -o p.log
fails 'embed into a missing folder' 1 'wideout: no/p.log: the file cannot be created: No such file or directory' \
    "$WIDEOUT" embed xc.net --data x/test.txt -o no/p.log
fails 'embed: words that the network lacks' 1 \
    "wideout: abc.d/test.tokens.safetensors: the word 'a' is not in the network's vocabulary, which has no <unk>" \
    "$WIDEOUT" embed lm.net --data abc.d/test.tokens.safetensors -o p.log

# Rows that say nothing but their labels: what a sanitizer has to say of it.
printf '2 3 2\n0 \n1 \n' >silent
check 'xc: rows without a feature' "$WIDEOUT" train xc --train silent -d 4 -e 1 -q -o silent.net

# ---- PyTorch's network -------------------------------------------------------------------------------------------
# The first 8 hidden values after each of the first 64 words of the test text, against those that PyTorch computed.
if [ -e "$torch/torch/reference.json" ] && [ -e "$torch/wiki.test.tokens.gz" ]; then
    gzip -dc "$torch/wiki.test.tokens.gz" 2>/dev/null | head -n 5 >first
    "$WIDEOUT" data text -q first first first -o f >/dev/null
    check 'PyTorch: embed' "$WIDEOUT" embed "$torch/torch/lstm.safetensors.index.json" --arch lm --vocab "$torch/torch/vocab.txt" \
        --data f/train.tokens.safetensors -o torch.log
    header=$(od -An -t u8 -N 8 torch.log | tr -d ' ')
    begin=$((8 + header + $(tail -c +9 torch.log | head -c "$header" | jq '.queries.data_offsets[0]')))
    od -An -v -t f4 -w800 -j "$begin" -N $((64 * 800)) torch.log | awk '{print $1, $2, $3, $4, $5, $6, $7, $8}' >ours
    jq -r '.hidden_first8[] | join(" ")' "$torch/torch/reference.json" >theirs
    same 'PyTorch: hidden values within 0.001' '64 rows, 0 beyond' "$(paste -d ' ' ours theirs |
        awk '{for (i = 1; i <= 8; i++) {d = $i - $(i + 8); if (NF != 16 || d > 0.001 || d < -0.001) n++}} END{print NR " rows, " n + 0 " beyond"}')"
    fails 'PyTorch: another vocabulary' 1 "wideout: $torch/torch/lstm.safetensors.index.json: has 33278 words, x/labels.txt 1100" \
        "$WIDEOUT" embed "$torch/torch/lstm.safetensors.index.json" --arch lm --vocab x/labels.txt --data f/train.tokens.safetensors -o torch.log
else
    ok "PyTorch's network # skip no data in $torch"
fi

finish
