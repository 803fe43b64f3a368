#!/bin/bash
# Tuning: goals, what is fixed, what is printed and kept, bad input.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cd "$scratch" || exit 1
export OMP_WAIT_POLICY=passive

usage() { # NAME SENTENCE ARGUMENT...
    local name=$1 sentence=$2
    shift 2
    fails "$name" 2 "wideout build: $sentence (see 'wideout build --help')" "$WIDEOUT" build --layer a --log b -o c "$@"
}
tune() { # ARGUMENT...
    "$WIDEOUT" build --layer s/layer.safetensors --log s/train.log.safetensors -t 1 --max-time 0.1s "$@"
}

"$WIDEOUT" data synthetic -q -m 400 -d 8 -n 4000 -o s >/dev/null
valid=(--tune-log s/test.log.safetensors)

# ---- Plain -------------------------------------------------------------------------------------------------------
tune "${valid[@]}" --iterations 10 --target 0.9 --target5 0.8 -o plain >plain.text 2>err
same 'nothing on standard error' '' "$(cat err)"
check 'the goal is told' grep -q "^  tuned to 0.9 of FULL's P@1 and 0.8 of its P@5, on 400 queries, batch 1$" plain.text
same 'one row is this index' 1 "$(grep -c '<- this index$' plain.text)"
check 'FULL is in the table' grep -q ' full$' plain.text
"$WIDEOUT" info plain >info.text
same 'info shows the same table' "$(sed -n '/^  tuned/,/^  built/p' plain.text | grep -v '^  built')" \
    "$(sed -n '/^  tuned/,/^  tune\.\|^  format\|^  index\.\|^  [a-z.]*:/p' info.text | grep -v '^  [a-z0-9_.]*: ')"
"$WIDEOUT" info --json plain >info.json
# shellcheck disable=SC2016 # jq's variable
check 'and as JSON' jq -e '.tuning | .met and .target == 0.9 and .target5 == 0.8 and .target_us == null and .batch == 1 and
    .k == 5 and .queries == 400 and .chosen.met and .curve[0].settings == "full" and .curve[0].p_at_1 > 0 and
    (.chosen.us > 0) and (.chosen as $c | .curve | any(. == $c)) and (.curve | length > 7)' info.json
check 'with the index' jq -e '(.index | has("full_from") and has("full_to")) and .metadata["tune.target"] == "0.90000000000000002"' info.json
"$WIDEOUT" info --curve plain >curve.csv
same 'all that was tried' "$(jq '.tuning.curve | length' info.json)" "$(($(wc -l <curve.csv) - 1))"
same 'with its columns' settings,p_at_1,p_at_5,agreement,sure_p_at_1,sure_p_at_5,sure_agreement,classes,us,met,chosen,method,router,K,L,nodes,leaves,beam,route_d,probes,lambda,popular,weights,fallback,source,thin,cap,prior,focus,spread,error_p_at_1 \
    "$(head -1 curve.csv)"
same 'numbers each' '' "$(awk -F, 'NF != 31' curve.csv)"
same 'the curve as JSON' "$(jq -c .tuning info.json)" "$("$WIDEOUT" info --curve --json plain | jq -c .)"
check 'it is an index' jq -en 'input.n == 400' <("$WIDEOUT" eval -q --no-timing --index plain --layer s/layer.safetensors --log s/test.log.safetensors --json)
same 'it answers' 400 "$("$WIDEOUT" predict --index plain s/test.log.safetensors | wc -l)"
tune "${valid[@]}" --iterations 10 --target 0.9 --target5 0.8 -o json --json >json.json
check 'the report as JSON' jq -e '.tuning.met and (.tuning.curve | length > 7) and .seconds > 0' json.json
tune "${valid[@]}" --iterations 10 --target 1 -o full --json >full.json 2>err
all='no number of queries shows that cells that imitate FULL have all of its hits: an index must have more, or look through all classes'
same 'that no number of queries shows all is said early' "wideout: $all" "$(cat err)"
"$WIDEOUT" info full >full.text
same 'and nobody is told to bring more' '' "$(grep 'too few' full.text)"
[ "$(jq -r .tuning.proof full.json)" != all-equal ] ||
    check 'but what it is' grep -q '^  no number of queries shows that of cells that imitate FULL; it looks through all classes, ' full.text
check 'what no cells reach for sure is what scores every class' jq -e '(.method == "screen" or .method == "full") and .tuning.met and .tuning.chosen.settings == .method' full.json

# ---- Held out ----------------------------------------------------------------------------------------------------
tune --iterations 10 --target 0.9 --target5 0.8 -o held >/dev/null 2>err
same 'without a tune log' "wideout: warning: without --tune-log a tenth of the log was held out to judge on; queries that the network was trained on flatter every index" \
    "$(cat err)"
same 'a tenth' 400 "$("$WIDEOUT" info --json held | jq .tuning.queries)"
tune -q --iterations 10 --target 0.9 --target5 0.8 -o held >/dev/null 2>err
same 'quietly' '' "$(cat err)"

"$WIDEOUT" data draw s/train.log.safetensors -n 15 -o fifteen >/dev/null
"$WIDEOUT" build --layer s/layer.safetensors --log fifteen -t 1 --max-time 60s -o tiny --json >tiny.json 2>err
same 'fewer than 20 are judged on what they are built from; that they show nothing is said' \
    "wideout: warning: the queries to judge by are too few to show that goal, whatever the index: little is tried, and what looks through all classes is taken; about N labelled queries would show it by hits
wideout: warning: without --tune-log all of the log, fewer than 20 queries, was taken both to build from and to judge on; queries that the network was trained on flatter every index" \
    "$(sed 's/about [0-9,]* /about N /' err)"
check 'and little is tried' jq -e '.tuning.provable == "all-equal" and .tuning.queries == 15 and (.tuning.curve | length <= 3)' tiny.json

# Hits of a hundred are too few: what will do instead is said before the search.
"$WIDEOUT" data draw s/test.log.safetensors -n 100 -o hundred >/dev/null
tune --tune-log hundred -o few >few.text 2>err
same 'what will be shown by what is said early' "wideout: hits on 100 labelled queries are too few to show that goal: FULL's own answers can show it, there and on 400 queries of the log that are held out; about N labelled queries would show it by hits" \
    "$(sed 's/about [0-9,]* /about N /' err)"
[ "$("$WIDEOUT" info --json few | jq -r .tuning.proof)" != all-equal ] ||
    check 'and the report does not say the contrary' grep -q '^  no cells were shown to reach that; it looks through all classes, ' few.text
tune --tune-log hundred -q -o few >few.text 2>err
same 'but not with -q' '' "$(cat err)"
tune --tune-log hundred --target best --target-us 1000000 --method evidence -o estimate >estimate.text 2>err
check 'the best is an estimate' grep -qE '^  not proved: the best by [0-9]+ hits on 100 labelled queries; the standard error of its share of P@1 is [0-9.]+%$' estimate.text
check 'with its error' jq -en 'input.tuning | .measure == "hits" and .chosen.error_p_at_1 > 0 and .chosen.error_p_at_1 < 0.2' <("$WIDEOUT" info --json estimate)
tune --tune-log hundred --target best --target-us 1000000 -o estimate >estimate.text
check 'which FULL and a screen are too' grep -qE '^  (not proved: the best by [0-9]+ hits on 100 |nothing better was found: this is FULL itself$)' estimate.text

# ---- Odd logs ----------------------------------------------------------------------------------------------------
# odd NAME LABEL QUERY [LAST]: 40 queries, all as this one (8 numbers as printf escapes), and all with this label, but for
# the last; none: ''.
odd() {
    local queries='"queries":{"dtype":"F32","shape":[40,8],"data_offsets":[0,1280]}' labels=
    [ -z "$2" ] || labels=',"labels":{"dtype":"I32","shape":[40],"data_offsets":[1280,1440]}'
    local header="{$queries$labels}"
    {
        printf '%b%s' "$(printf '\\x%02x\\0\\0\\0\\0\\0\\0\\0' ${#header})" "$header"
        for _ in $(seq 40); do printf '%b' "$3"; done
        for _ in $(seq 39); do printf '%b' "$2"; done
        printf '%b' "${4-$2}"
    } >"$1"
}
ones=$(printf '\\0\\0\\x80\\x3f%.0s' 1 2 3 4 5 6 7 8) nothing=$(printf '\\0\\0\\0\\0%.0s' 1 2 3 4 5 6 7 8)
odd equal.log '\xc8\0\0\0' "$ones"
odd zero.log '\xc8\0\0\0' "$nothing"
odd unlabelled.log '' "$ones"
for log in equal zero unlabelled; do
    "$WIDEOUT" build --layer s/layer.safetensors --log $log.log -t 1 --max-time 0.1s -q -o $log.idx >$log.text
    why="on 40 labelled queries FULL's best answer is never a label"
    [ $log = unlabelled ] || why="$why: do labels count from 0?"
    [ $log != unlabelled ] || why='the queries have no labels'
    same "$log queries: an index, and what it was judged by" "tuned to 0.99 of FULL's own 5 best, on 4 queries, batch 1
no hits to judge by: ${why/40/4}" "$(grep -A 1 '^  tuned' $log.text | sed 's/^  //')"
    same 'it answers' 40 "$("$WIDEOUT" predict --index $log.idx $log.log | wc -l)"
done
"$WIDEOUT" build --layer s/layer.safetensors --log zero.log -t 1 --max-time 0.1s -q --target-us 1000000 -o hits.idx --json >hits.json
same 'hits decide what is best, though FULL has none' '[1,0]' \
    "$(jq -c '.tuning | [.chosen.p_at_1, (.curve[] | select(.settings == "full") | .p_at_1)]' hits.json)"
check 'which is said' grep -qE '^  not proved: the best by 4 hits on 4 labelled queries; FULL has none$' <("$WIDEOUT" info hits.idx)

"$WIDEOUT" build --layer s/layer.safetensors --log zero.log -t 1 --max-time 0.1s --target 0.9 -o hits.idx >/dev/null 2>err
check 'a share of nothing is no goal, which is said early' grep -q "^wideout: warning: FULL finds no label of the queries to judge by: --target is taken for --target-agree 0.9, the share of FULL's own answers; --target best goes by the index's hits$" err
tune --tune-log unlabelled.log --target best --target-us 1000000 -o unlabelled.idx >unlabelled.text 2>err
same 'without labels: what is the best, early' "wideout: warning: no query to judge by has labels: the best is what has most of FULL's own answers
wideout: warning: unlabelled.log: all 40 queries are the same one: what they show is not shown of others" "$(cat err)"
check 'in the report' grep -q "^  no hits to judge by: the queries have no labels; the best has most of FULL's own 5 best$" unlabelled.text
same 'and as JSON' '"agreement"' "$("$WIDEOUT" info --json unlabelled.idx | jq .tuning.measure)"

# FULL has a hit at one query of 40, an index of labels at 39: 3900%, in a column of its own.
"$WIDEOUT" build -q --layer s/layer.safetensors --method full -o full.idx >/dev/null
best=$("$WIDEOUT" predict --json --index full.idx zero.log | head -1 | jq '.answers[0].id')
odd one.log '\xc8\0\0\0' "$nothing" "$(printf '\\x%02x\\x%02x\\0\\0' $((best % 256)) $((best / 256)))"
"$WIDEOUT" build -q --layer s/layer.safetensors --log zero.log --tune-log one.log -t 1 --max-time 0.1s --target best --target-us 1000000 -o one.idx >one.text
check 'columns do not run together' grep -qE '^ +0\.9750   3900% +0\.[0-9]{4} +[0-9]+% .*<- this index$' <(COLUMNS=200 "$WIDEOUT" info one.idx)

# ---- Other goals, what is fixed ----------------------------------------------------------------------------------
tune "${valid[@]}" -k 10 --target-agree 0.5 --router tree -o agree --json >agree.json
same 'agreement' '[0.5,null,10,"top",10,true,"tree"]' "$(jq -c '[.tuning.target_agree, .tuning.target, .tuning.k,
    .options.source, .options.source_k, .tuning.met, .options.router]' agree.json)"
tune "${valid[@]}" --target-us 1000000 -o slow --json >slow.json
check 'all the time there is' jq -e '.tuning.target_us == 1000000 and .tuning.met' slow.json
tune "${valid[@]}" --target-us 1000 --router tree --lambda 0.5 --batch 16 -o slow --json >slow.json
same 'what is fixed' '["tree",0.5,16]' "$(jq -c '[.options.router, .options.lambda, .tuning.batch]' slow.json)"
same 'is all that was tried' '[0.5]' "$("$WIDEOUT" info --curve slow | tail -n +2 | grep -v '^full,' | cut -d, -f21 | sort -u | jq -cs .)"
tune "${valid[@]}" --method popular --target 0.5 -o less --json >less.json
same 'less of P@1 asks for no more of P@5' '[0.5,0.5]' "$(jq -c '[.tuning.target, .tuning.target5]' less.json)"
tune "${valid[@]}" --method evidence --fallback 16 --iterations 10 --target 0.5 --target5 0.3 -o wide --json >wide.json
check 'a fallback that is fixed is kept to' jq -e '.method == "evidence" and .options.fallback == 16' wide.json
tune "${valid[@]}" --method evidence --fallback 16 --fallback-by screen --iterations 10 --target 0.5 --target5 0.3 -o wide --json >wide.json
check 'and who helps those queries' jq -e '.options.fallback == 16 and .options.fallback_by == "screen"' wide.json
tune "${valid[@]}" -K 4 -L 3 --iterations 10 --target 0.5 --target5 0.3 -o fixed --json >fixed.json
same 'tables' '["evidence","hash",4,3]' "$(jq -c '[.method, .options.router, .options.K, .options.L]' fixed.json)"
"$WIDEOUT" build -q --layer s/layer.safetensors --log s/train.log.safetensors -K 4 -L 3 --iterations 10 -o exact --json >exact.json
same 'without a goal nothing is tuned' '[4,3,0.1,null]' "$(jq -c '[.options.K, .options.L, .options.lambda, .tuning]' exact.json)"
"$WIDEOUT" eval -q --no-timing --index exact --log s/test.log.safetensors --exact-fallback >/dev/null 2>err
same 'a fallback without a threshold' "wideout: warning: exact has no threshold, so that --exact-fallback changes nothing: 'wideout build --fallback N' sets one" "$(cat err)"
fails 'no curve' 1 'wideout: exact: has no curve: it was not tuned' "$WIDEOUT" info --curve exact
fails 'no index' 1 'wideout: s/layer.safetensors: is not an index: nothing else has a curve' "$WIDEOUT" info --curve s/layer.safetensors
settings=$(jq -r .tuning.chosen.settings fixed.json)
lambda=$(jq .options.lambda fixed.json) probes=$(jq .options.probes fixed.json) fallback=$(jq '.options.fallback // empty' fixed.json)
# shellcheck disable=SC2046 # an option and its value, or nothing
"$WIDEOUT" build -q --layer s/layer.safetensors --log s/train.log.safetensors -K 4 -L 3 --iterations 10 --lambda "$lambda" --probes "$probes" \
    --weights "$(jq -r .options.weights fixed.json)" $([ -z "$fallback" ] || echo --fallback "$fallback") -o named >/dev/null
same "the options that it names give the same cells ($settings)" "$("$WIDEOUT" info --json fixed | jq -c '.metadata["xxh3.cells.ids"]')" \
    "$("$WIDEOUT" info --json named | jq -c '.metadata["xxh3.cells.ids"]')"

# ---- What the report tells ---------------------------------------------------------------------------------------
check 'shares of FULL' grep -qE '^ +P@1 of FULL +P@5 of FULL +agree +classes +us/query +x FULL$' plain.text
check "FULL's own are all of it" grep -qE '^ +0\.[0-9]+ 100\.00% +0\.[0-9]+ 100\.00%  1\.0000     400\.0 .* 1  full' plain.text
check 'FULL is there where the method is fixed' jq -e '[.tuning.curve[].settings] | index("full")' agree.json
check 'JSON: shares, speed, and what is met' jq -e '.met and .scores_all == false and (.tuning.curve[] | select(.settings == "full") |
    .share_p_at_1 == 1 and .speedup == 1) and .tuning.chosen.share_p_at_1 > 0.5 and .tuning.chosen.speedup > 0' fixed.json
check 'what was proved, and by what' jq -e '.tuning.proof != "hits" or .tuning.chosen.sure_p_at_1 >= 0.9' json.json
if [ "$(jq -r .tuning.proof json.json)" = hits ]; then
    check 'in words' grep -qE "^  shown by the hits on 400 labelled queries: at least 9[0-9.]+% of FULL's P@1 and [0-9.]+% of its P@5$" plain.text
    said=$(grep '^  shown by the hits' plain.text)
    same 'in two lines of a terminal' "${said/: /:$'\n    '}" "$(COLUMNS=80 "$WIDEOUT" info plain | grep -A 1 '^  shown by the hits')"
fi
check 'what scores all says so' jq -e '.scores_all and (.method == "full" or .method == "screen")' full.json
"$WIDEOUT" build -q --layer s/layer.safetensors --method full -o exact.layer >exact.text
same 'FULL says so in its first line' 'exact.layer: index, N: this is FULL, the exact layer' "$(head -1 exact.text | sed 's/index, [0-9.]* kB/index, N/')"
same 'and info of it' 'exact.layer: safetensors, kind index: this is FULL, the exact layer' "$("$WIDEOUT" info exact.layer | head -1)"
"$WIDEOUT" build -q --layer s/layer.safetensors --method screen -o exact.layer >exact.text
same 'and a screen' 'exact.layer: index, N: a screen: all classes in int8, and the best few exactly' "$(head -1 exact.text | sed 's/index, [0-9.]* kB/index, N/')"
same 'info too' 'exact.layer: safetensors, kind index: a screen: all classes in int8, and the best few exactly' \
    "$("$WIDEOUT" info exact.layer | head -1)"
"$WIDEOUT" build -q --layer s/layer.safetensors --log s/train.log.safetensors --router tree -o exact.layer >exact.text
same 'one that is neither does not' 'exact.layer: index, N' "$(head -1 exact.text | sed 's/index, [0-9.]* kB/index, N/')"
for columns in 50 80; do
    COLUMNS=$columns "$WIDEOUT" info plain >narrow.text
    same "the table fits $columns columns" '' "$(sed -n '/x FULL$/,/^  kind:/p' narrow.text | awk -v most=$columns 'length > most')"
done

for columns in $(seq 40 100); do COLUMNS=$columns "$WIDEOUT" info plain | sed -n "/^  method/,/seed/{s/^/$columns /p}"; done >narrow.text
same 'nor is a line of options longer, whatever the width' '' "$(awk 'length - length($1) - 1 > $1' narrow.text)"

# ---- Commands to copy --------------------------------------------------------------------------------------------
mkdir "it's a folder"
cp s/layer.safetensors "it's a folder/a layer"
ln s/train.log.safetensors "it's a folder/\$log"
"$WIDEOUT" build -q --layer "it's a folder/a layer" --weight-name weight --log "it's a folder/\$log" -t 1 --max-time 0.1s "${valid[@]}" \
    --target 0.9 --target5 0.8 -K 4 -L 3 --iterations 10 --weights none -o "it's an index" >copy.text
cells() { "$WIDEOUT" info --json "$1" | jq -c '.metadata["xxh3.cells.ids"]'; }
before=$(cells "it's an index")
wideout() { "$WIDEOUT" "$@"; }
same 'next: judges what was tuned, and not FULL, which may be faster for 1,024' \
    "$("$WIDEOUT" info --json plain | jq -r '.index | if .full_from > 1 and .full_from <= 1024 and (.full_to == 0 or .full_to >= 1024) then " -b 1" else "" end')" \
    "$(sed -n '/^next: /s/.*s\/test.log.safetensors\(.*\)  # better.*/\1/p' plain.text)"
check 'next: says that its log was tuned on' grep -q '^next: .*  # better: a log that it was not tuned on$' copy.text
check 'next: works when it is copied' eval "$(sed -n 's/^next: //p' copy.text | sed 's/  #.*//') --no-timing"
kept=$(md5sum <"it's an index")
check 'again: works too' eval "$(sed -n 's/^again: //p' copy.text | sed 's/  #.*//') -q"
same 'and builds the same cells' "$before" "$(cells "it's an index.again")"
"$WIDEOUT" build -q --layer s/layer.safetensors --log s/train.log.safetensors --max-time 0.1s "${valid[@]}" --target 0.5 --target5 0.4 \
    -o planned.idx >copy.text
same 'again: says which batches it is without, where there are any' "$("$WIDEOUT" info --json planned.idx | jq '.index.full_from > 0')" \
    "$(grep -q '^again: .*  # without the batches that FULL answers, which go by measured times$' copy.text && echo true || echo false)"
same 'beside the tuned file' "$kept" "$(md5sum <"it's an index")"
"$WIDEOUT" build -q --layer s/layer.safetensors --log s/train.log.safetensors --router tree -o $'new\nline' >copy.text
check 'a name with a line end' eval "$(sed -n 's/^next: //p' copy.text | sed 's/  #.*//') --no-timing"

# ---- Ctrl-C ------------------------------------------------------------------------------------------------------
"$WIDEOUT" data synthetic -q -m 3000 -d 16 -n 20000 -o w >/dev/null
WIDEOUT_PROGRESS=0.1 "$WIDEOUT" build --layer w/layer.safetensors --log w/train.log.safetensors --tune-log w/test.log.safetensors \
    -t 1 --max-time 15s -o kept >kept.text 2>kept.err &
tuner=$!
for _ in $(seq 600); do
    grep -q '^wideout: tuning.*, [2-9][0-9]%' kept.err && break
    sleep 0.05
done
kill -INT $tuner
wait $tuner
same 'Ctrl-C: the process dies of the signal' 130 $?
check 'off a terminal there are lines of progress' grep -qE '^wideout: tuning( by agreement)?, [0-9]+%, [0-9]+ s left$' kept.err
same 'it says what it does' 'wideout: interrupted: the best so far is built and saved; Ctrl-C again ends without it' "$(grep interrupted kept.err)"
check 'the report tells' grep -q '^  interrupted: the best that was found until then$' kept.text
check 'the best so far is an index' jq -en 'input.tuning.curve | length > 0' <("$WIDEOUT" info --json kept)
"$WIDEOUT" build --layer w/layer.safetensors --log w/train.log.safetensors --tune-log w/test.log.safetensors -t 1 --max-time 15s \
    -o gone >/dev/null 2>gone.err &
tuner=$!
sleep 0.2
kill -TERM $tuner
wait $tuner
same 'SIGTERM ends it' '143 1' "$? $(wc -l <gone.err)"
check 'and nothing is written' test ! -e gone -a -z "$(find . -name '*.tmp.*')"

# A bar fits 50 columns, and names the stage.
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    script -qec "stty cols 50; '$WIDEOUT' build --layer s/layer.safetensors --log s/train.log.safetensors --tune-log s/test.log.safetensors \
        -t 1 --max-time 0.1s -o bar" /dev/null </dev/null | tr '\r' '\n' | sed 's/\x1b\[K//' >screen
    check 'a bar' grep -qE '^tuning( by agreement)? +\[=+ *\] +[0-9]+%' screen
    check 'the last build has its stage' grep -qE '^building the best +\[=* *\] +[0-9]+%' screen
    same 'neither is wider than the terminal' '' "$(grep -E '^(tuning|building)' screen | awk 'length > 49')"
else
    ok 'the bar is not looked at: no terminal can be made here # skip'
fi

# ---- Bad input ---------------------------------------------------------------------------------------------------
usage 'two goals' '--target and --target-agree are two goals: give one' --target 0.9 --target-agree 0.9
usage 'two others' '--target5 and --target-us are two goals: give one' --target5 0.9 --target-us 9
usage 'the last two' '--target-agree and --target-us are two goals: give one' --target-agree 0.9 --target-us 9
usage 'no target' '--target takes a number above 0' --target 0
usage 'no agreement' '--target-agree takes a number above 0' --target-agree 0
usage 'no time' '--target-us takes a number above 0' --target-us 0
usage 'a target above 2' "--target takes a number from 0 to 2, or best, not '2.1'" --target 2.1
usage 'best of what' '--target best and --target-agree are two goals: give one' --target best --target-agree 0.9
tune "${valid[@]}" --target best -o best --json >best.json
check 'the best within a tenth of the time' jq -e '.tuning.target_us > 0 and .tuning.target == null' best.json
tune "${valid[@]}" --target 1.5 -o above --json >above.json
check 'nothing met: JSON says so' jq -e '.met == false and .tuning.met == false' above.json
same 'a target that nothing reaches' '[1.5,false,"none"]' "$(jq -c '[.tuning.target, .tuning.met, .tuning.proof]' above.json)"
usage 'a prior, and answers like FULL' "--prior goes never with --target-agree: a prior means to differ from FULL's own answers" \
    --target-agree 0.3 --prior 1
tune "${valid[@]}" --target best --target-us 0.000001 -o fastest >fastest.text
check 'the best in no time is the fastest' grep -qE '^  nothing was as fast: this is (FULL, )?the fastest that was found$' fastest.text
check 'and JSON says that it is too slow' jq -en 'input.tuning | .met == false and .target_us == 0.000001' <("$WIDEOUT" info --json fastest)
"$WIDEOUT" build -q --layer s/layer.safetensors --log s/train.log.safetensors "${valid[@]}" --target-us 0.000001 --max-time 0.1s -o bad >out 2>err
same 'without best it is refused' '1 1' "$? $(grep -c 'nothing answers within 1e-06 us a query' err)"
usage 'k' '-k takes at most 1000, not 1001' -k 1001
usage 'batch' '--batch takes at most 65536, not 65537' --batch 65537
for time in x 5x 0 -3 5mm 2e9 1e6h 0x10 0x1p4s; do
    usage "the time $time" "--max-time takes a time like 90s, 5m or 1h, up to 1e9 seconds, not '$time'; less than 5s counts as 5s" --max-time=$time
done
for option in '--tune-log x' '-k 3' '--batch 2' '--max-time 3s'; do
    # shellcheck disable=SC2086 # an option and its value
    usage "${option% *} without tuning" "${option% *} is for tuning: give --target too, or leave out --method, --router, -K, -L and --lambda" \
        --method evidence $option
done
usage 'full' '--method full has nothing to tune' --method full --target 0.9
usage 'screen' '--method screen has nothing to tune' --method screen --target 0.9
fails 'no log' 2 "wideout build: needs --log FILE: queries to learn from (see 'wideout build --help')" \
    "$WIDEOUT" build --layer s/layer.safetensors -o o
fails 'a goal without a log' 2 "wideout build: tuning needs --log FILE: queries to learn from (see 'wideout build --help')" \
    "$WIDEOUT" build --layer s/layer.safetensors --method slide --target 0.9 -o o
fails 'an index over its tune log' 2 \
    "wideout build: -o 's/test.log.safetensors' would replace what is read (see 'wideout build --help')" \
    "$WIDEOUT" build --layer s/layer.safetensors --log s/train.log.safetensors "${valid[@]}" -o s/test.log.safetensors
"$WIDEOUT" data synthetic -q -m 30 -d 4 -n 50 -o other >/dev/null
fails 'a tune log of another layer' 1 \
    "wideout: other/test.log.safetensors: the tune log: the log's queries have 4 numbers, the layer's rows 8" \
    tune --tune-log other/test.log.safetensors -o bad
# shellcheck disable=SC2016 # jq's variable
check 'as many classes in a cell as answers are asked for' jq -en 'input.options.cap as $cap | $cap == null or $cap == 0 or $cap >= 12' \
    <(tune "${valid[@]}" -k 12 --target 0.3 --target5 0.3 -o twelve --json 2>/dev/null)
fails 'the log itself to judge on' 2 "wideout build: --tune-log is the log that is learned from, which flatters every index: give other queries, or leave it out, and a tenth of the log is held out (see 'wideout build --help')" \
    tune --tune-log s/train.log.safetensors -o bad
cp s/train.log.safetensors copied.log
fails 'or a copy of it' 2 "wideout build: --tune-log is the log that is learned from, which flatters every index: give other queries, or leave it out, and a tenth of the log is held out (see 'wideout build --help')" \
    tune --tune-log copied.log -o bad
fails 'no such tune log' 1 'wideout: none: the file cannot be opened: No such file or directory' tune --tune-log none -o bad
fails 'two tables' 2 "wideout info: --trace and --curve are two tables: give one (see 'wideout info --help')" \
    "$WIDEOUT" info --trace --curve plain
"$WIDEOUT" build -q --layer s/layer.safetensors --log s/train.log.safetensors "${valid[@]}" --method popular --popular 3 --target 0.99 -o bad >out 2>err
same 'a goal that is not reached' '1 1' "$? $(wc -l <err)$(cat out)"
check 'says what was' grep -qE "^wideout: popular reached 0\.[0-9]{4} of FULL's P@1 and 0\.[0-9]{4} of its P@5 for sure, not 0.99 and 0.99: log more queries, ask for less, or leave the method open$" err
check 'nothing was written' test ! -e bad -a -z "$(find . -name '*.tmp.*')"

finish
