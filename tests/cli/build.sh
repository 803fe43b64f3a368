#!/bin/bash
# Building indexes: every method and option, the same file for one thread and two, bad input, damaged index files.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cd "$scratch" || exit 1
export OMP_WAIT_POLICY=passive

usage() { # NAME SENTENCE ARGUMENT...
    local name=$1 sentence=$2
    shift 2
    fails "$name" 2 "wideout build: $sentence (see 'wideout build --help')" "$WIDEOUT" build "$@"
}
build() { # ARGUMENT...: from the layer and the log of s, unless others are named
    local layer=(--layer s/layer.safetensors) log=(--log s/train.log.safetensors)
    case " $* " in *' --layer '*) layer=() ;; esac
    case " $* " in *' --log '*) log=() ;; esac
    "$WIDEOUT" build "${layer[@]}" "${log[@]}" -q "$@"
}
st() { # FILE HEADER BYTES: a safetensors file of other people's, the bytes as printf escapes
    { printf '%b' "$(printf '\\x%02x\\x%02x\\0\\0\\0\\0\\0\\0' $((${#2} & 255)) $((${#2} >> 8)))$2$3"; } >"$1"
}
zeros() { # N: bytes, as printf escapes
    printf '\\0%.0s' $(seq "$1")
}

"$WIDEOUT" data synthetic -q -m 500 -d 8 -n 1500 -o s >/dev/null
methods='full popular slide lss evidence'
declare -A few=([full]='' [popular]='--popular 40' [slide]='-K 3 -L 4' [lss]='-K 3 -L 4 --iterations 12' [evidence]='-K 5 -L 2 --iterations 12')

# ---- Every method ------------------------------------------------------------------------------------------------
for method in $methods; do
    # shellcheck disable=SC2086 # none, or options and their values
    build --method "$method" ${few[$method]} -t 1 -o "$method.one" --json >"$method.json"
    # shellcheck disable=SC2086
    build --method "$method" ${few[$method]} -t 2 -o "$method.two" >"$method.text"
    check "$method: one thread or two, the same file" cmp "$method.one" "$method.two"
    # shellcheck disable=SC2016 # jq's variable
    check "$method: --json" jq -e --arg method "$method" '.method == $method and .m == 500 and .d == 8 and .seconds > 0 and
        .peak_mib > 0 and .file_bytes > 1000 and .options.seed == 1 and (.index | type) == "string"' "$method.json"
    same "$method: the size of the file" "$(stat -c %s "$method.one")" "$(jq .file_bytes "$method.json")"
    check "$method: the report names the next command" grep -q "^next: wideout eval --index $method.two --log s/train.log.safetensors  # better" "$method.text"
    same "$method: an index whose checksums hold" "[\"index\",\"ok\",\"$method\"]" \
        "$("$WIDEOUT" info --json "$method.one" | jq -c '[.kind, .checksums, .index.method]')"
    same "$method: info tells what build told" "$(jq -cS 'del(.file_bytes, .seconds, .peak_mib, .index, .layer, .held_out)' "$method.json")" \
        "$("$WIDEOUT" info --json "$method.one" | jq -cS .index)"
    check "$method: info for people" grep -q "^  method $method" <("$WIDEOUT" info "$method.one")
    same "$method: answers" 150 "$("$WIDEOUT" predict --index "$method.one" s/test.log.safetensors | wc -l)"
    # shellcheck disable=SC2086
    build --method "$method" ${few[$method]} --seed 2 -o other >/dev/null
    check "$method: another seed, another file" bash -c "! cmp -s other $method.one"
done
same 'cells of popular' '[1,40,0,40]' "$(jq -c '[.cells, .entries, .empty_cells, .largest_cell]' popular.json)"
same 'cells of slide: every class in every table' '[32,2000]' "$(jq -c '[.cells, .entries]' slide.json)"
same 'cells of evidence: none is empty' '[64,0]' "$(jq -c '[.cells, .empty_cells]' evidence.json)"
same 'full has none' '[0,0]' "$(jq -c '[.cells, .entries]' full.json)"
"$WIDEOUT" predict --index full.one s/test.log.safetensors >full.answers
"$WIDEOUT" predict --index evidence.one --exact s/test.log.safetensors >exact.answers
check 'full answers as --exact does' cmp full.answers exact.answers
build --lambda 0 --probes 32 -K 5 -L 1 --learner none -o open >/dev/null
"$WIDEOUT" predict --index open -k 3 s/test.log.safetensors >open.answers
check 'every cell open: the best of all that occurs' bash -c \
    "paste open.answers exact.answers | awk -F '\t' '\$1 == \$7 {n++} END {exit n < 140}'"

# ---- The tree ----------------------------------------------------------------------------------------------------
for threads in 1 2; do build --router tree -t $threads -o tree.$threads --json >tree.json; done
check 'tree: one thread or two, the same file' cmp tree.1 tree.2
same 'its fan-outs follow from the data' '{"beam":2,"leaves":2,"nodes":16,"probes":1,"route_d":8,"router":"tree"}' \
    "$(jq -cS '.options | {router, nodes, leaves, beam, route_d, probes}' tree.json)"
same 'what hyperplanes have, it has not' '[256,null,null,null,null,null]' \
    "$(jq -c '[.cells, (.options | .K, .L, .learner, .iterations, .rate)]' tree.json)"
check 'and not as null either' jq -e '.options | has("learner") | not' tree.json
same 'info tells what build told' "$(jq -cS 'del(.file_bytes, .seconds, .peak_mib, .index, .layer, .held_out)' tree.json)" \
    "$("$WIDEOUT" info --json tree.1 | jq -cS .index)"
same 'info for people' '  method evidence, probes 1, router tree, nodes 16, leaves 2, beam 2, route_d 8, source both,
    source_k 5, lambda 0.1, thin 16, fallback 0, cap 0, prior 0, focus 0, spread 0, partition 0,
    fallback_by wider, rows 0, keep 8192; seed 1' "$("$WIDEOUT" info tree.1 | grep -A 2 '^  method')"
build --router tree --nodes 33 --leaves 7 --beam 40 --route-d 16 --probes 3 --thin 4 --lambda 0.2 --cap 9 --prior 0.5 \
    --focus 12.5 --spread 4 --seed 7 -o o >/dev/null
same 'tree: every option' '{"beam":40,"cap":9,"fallback":0,"fallback_by":"wider","focus":12.5,"keep":8192,"lambda":0.2,"leaves":7,"nodes":33,"partition":false,"prior":0.5,"probes":3,"route_d":8,"router":"tree","rows":0,"seed":7,"source":"both","source_k":5,"spread":4,"thin":4,"weights":"f32"}' \
    "$("$WIDEOUT" info --json o | jq -cS .index.options)"
"$WIDEOUT" data synthetic -q -m 60 -d 40 -n 300 -o u >/dev/null
build --layer u/layer.safetensors --log u/train.log.safetensors --router tree -o o >/dev/null
same 'coordinates: 32 where there are more' '[32,[10,128]]' "$("$WIDEOUT" info --json o |
    jq -c '[.index.options.route_d, (.tensors[] | select(.name == "tree.basis") | .shape)]')"
"$WIDEOUT" predict --index tree.1 s/test.log.safetensors >tree.answers
check 'tree: it answers' bash -c "paste tree.answers full.answers | awk -F '\t' '\$1 == \$11 {n++} END {exit NR != 150 || n < 100}'"
fails 'coordinates that are no multiple of 16' 1 "wideout: --route-d: route_d is 20, expected a multiple of 16, or all 40" \
    build --layer u/layer.safetensors --log u/train.log.safetensors --router tree --route-d 20 -o bad
fails 'more probes than a search opens' 1 'wideout: --probes: 65 probes are too many: at most 64' \
    "$WIDEOUT" predict --index tree.1 --probes 65 s/test.log.safetensors
for option in '-K 5' '-L 2' '--learner mix' '--iterations 5' '--rate 0.1' '--learn-batch 64'; do
    # shellcheck disable=SC2086 # an option and its value
    usage "${option% *} with a tree" "${option% *} belongs to --router hash" --layer a --log b -o c --router tree $option
done
for option in --nodes --leaves --beam --route-d; do
    usage "$option without a tree" "$option belongs to --router tree" --layer a --log b -o c $option 16
    usage "$option with lss" "$option belongs to --method evidence, not to lss" --layer a --log b -o c --method lss $option 16
done
usage '--router with slide' '--router belongs to --method evidence, not to slide' --layer a --log b -o c --method slide --router tree
usage 'other routers' "--router takes hash|tree, not 'graph'" --layer a --log b -o c --router graph
usage 'nodes' "--nodes takes a whole number from 0 to 1024, not '1040'" --layer a --log b -o c --router tree --nodes 1040
usage 'leaves' "--leaves takes a whole number from 0 to 65536, not '65537'" --layer a --log b -o c --router tree --leaves 65537
usage 'beam' "--beam takes a whole number from 1 to 64, not '65'" --layer a --log b -o c --router tree --beam 65
usage 'small rows of full' '--weights is int8, but method full answers with f32 rows: f32 or none' --layer a -o c --method full --weights int8

# ---- Queries that know little -----------------------------------------------------------------------------------
little=(--router tree --nodes 3 --leaves 20 --source labels --fallback 30)
build "${little[@]}" -o wider >/dev/null
for threads in 1 2; do build "${little[@]}" --fallback-by screen -t $threads -o screened.$threads --json >screened.json; done
check 'fallback by the screen: one thread or two, the same file' cmp screened.1 screened.2
same 'it is in the options' '["screen",30]' "$(jq -c '.options | [.fallback_by, .fallback]' screened.json)"
same 'readers must know it' '"screen-fallback,uneven-tree"' "$("$WIDEOUT" info --json screened.1 | jq -c '.metadata["wideout.needs"]')"
share() { "$WIDEOUT" eval -q --no-timing --json --index "$1" --log s/test.log.safetensors | jq -c "$2"; }
check 'it agrees with FULL more often' jq -en "$(share screened.1 .agreement_at_5) > $(share wider .agreement_at_5)"
same 'the same queries know little' "$(share wider .wider_share)" "$(share screened.1 .wider_share)"
same 'eval names who helps' '  queries that the screen helped' \
    "$("$WIDEOUT" eval -q --no-timing --index screened.1 --log s/test.log.safetensors | grep -o '^  queries that .* helped')"
usage 'a screen for no query' '--fallback-by screen needs --fallback N: which queries know little' --layer s/layer.safetensors \
    --log s/train.log.safetensors -q --router tree --fallback-by screen -o o

# ---- Evidence as a prior -----------------------------------------------------------------------------------------
uneven=(--router tree --nodes 3 --leaves 20 --beam 3 --probes 4 --lambda 0.02)
build "${uneven[@]}" --prior 1 --focus 5 --spread 3 -t 1 -o prior.1 >/dev/null
build "${uneven[@]}" --prior 1 --focus 5 --spread 3 -t 2 -o prior.2 >/dev/null
build "${uneven[@]}" --spread 3 -o plain >/dev/null
check 'prior: threads change nothing' cmp prior.1 prior.2
same 'prior: readers must know it, and the tree' '"prior,uneven-tree"' \
    "$("$WIDEOUT" info --json prior.1 | jq -c '.metadata["wideout.needs"]')"
same 'prior: a share for each class of a cell' 'true' "$("$WIDEOUT" info --json prior.1 |
    jq -c '[.tensors[] | select(.name == "cells.ids" or .name == "cells.shares") | .shape] | .[0] == .[1]')"
"$WIDEOUT" predict --index prior.1 s/test.log.safetensors >prior.answers
"$WIDEOUT" predict --index plain s/test.log.safetensors >plain.answers
check 'prior: scores are others' bash -c '! cmp -s prior.answers plain.answers'
"$WIDEOUT" predict --no-prior --index prior.1 s/test.log.safetensors >without.answers
check 'prior: predict --no-prior, logits again' cmp without.answers plain.answers
build "${uneven[@]}" --prior 1 --focus 5 --partition -o prior.z >/dev/null
build "${uneven[@]}" --partition --mix off -o plain.z >/dev/null
judged() { # ARGUMENT...
    "$WIDEOUT" eval -q --no-timing --json --log s/test.log.safetensors "$@" |
        jq -c '[.p_at_1, .p_at_5, .agreement_at_5, .perplexity, .log_z_error, .mean_rank]'
}
same 'prior: eval --no-prior, as if there were none' "$(judged --index plain.z)" "$(judged --index prior.z --no-prior)"
check 'prior: which is not what it has' test "$(judged --index plain.z)" != "$(judged --index prior.z)"
# Probabilities: the prior has no part in them, the shares of the cells have.
build "${uneven[@]}" --partition --mix 0.25 -t 1 -o mixed.1 >/dev/null
build "${uneven[@]}" --partition --mix 0.25 -t 2 -o mixed.2 >/dev/null
check 'mix: threads change nothing' cmp mixed.1 mixed.2
same 'mix: readers must know it' '"mixture,partition,uneven-tree" "0.25"' \
    "$("$WIDEOUT" info --json mixed.1 | jq -c '.metadata["wideout.needs", "index.mix"]' | paste -sd ' ')"
for index in plain.z mixed.1 prior.z; do "$WIDEOUT" predict --logprob --index $index s/test.log.safetensors >$index.p; done
check 'mix: probabilities are others' bash -c '! cmp -s plain.z.p mixed.1.p'
"$WIDEOUT" predict --logprob --no-prior --index mixed.1 s/test.log.safetensors >without.p
check 'mix: predict --no-prior, as if there were none' cmp without.p plain.z.p
same 'mix: eval --no-prior too' "$(judged --index plain.z)" "$(judged --index mixed.1 --no-prior)"
"$WIDEOUT" predict --index mixed.1 s/test.log.safetensors >without.p
"$WIDEOUT" predict --index plain.z s/test.log.safetensors >plain.p
check 'mix: logits stay logits' cmp without.p plain.p
for index in plain.z mixed.1 prior.z; do "$WIDEOUT" predict --logprob --exact --index $index s/test.log.safetensors >$index.p; done
check 'mix: the exact probabilities are the layer'"'"'s own' cmp plain.z.p mixed.1.p
check 'prior: and have none of it' cmp plain.z.p prior.z.p
usage 'mix: of what' '--mix is of probabilities: give --partition too' --layer s/layer.safetensors --log s/train.log.safetensors \
    -q --router tree --mix 0.2 -o o
same 'prior: timed without it too' '[1,1024]' "$("$WIDEOUT" eval -q --rounds 1 --json --log s/test.log.safetensors \
    --index prior.1 --no-prior | jq -c '[.timings[].batch]')"
same 'prior: scores say what they are' 'logits+prior logits' "$(for how in -q --no-prior; do
    "$WIDEOUT" predict --index prior.1 $how --json s/test.log.safetensors | head -1 | jq -r .scores; done | paste -sd ' ')"
check 'prior: never lower' bash -c "paste prior.answers plain.answers |
    awk -F '\t' '{ if (\$2 + 1e-5 < \$(NF / 2 + 2)) exit 1 }'"
build --router tree --nodes 1 --leaves 25 --beam 1 --cap 3 -t 1 -o flat >/dev/null
build --router tree --nodes 1 --leaves 25 --beam 1 --cap 3 -t 2 -o flat.2 >/dev/null
check 'flat: one thread or two, the same file' cmp flat flat.2
same 'flat: one node, at most three classes a cell' '[1,32,3]' \
    "$("$WIDEOUT" info --json flat | jq -c '.index | [.options.nodes, .cells, .largest_cell]')"
usage 'prior with slide' '--prior belongs to --method evidence, not to slide' --layer a --log b -o c --method slide --prior 1
usage 'cap with popular' '--cap belongs to --method evidence, not to popular' --layer a --log b -o c --method popular --cap 1
usage 'focus without a tree' '--focus belongs to --router tree' --layer a --log b -o c --focus 1
usage 'prior' "--prior takes a number from 0 to 2, not '3'" --layer a --log b -o c --prior 3
usage 'focus' "--focus takes a number from 0 to 10000, not 'near'" --layer a --log b -o c --router tree --focus near
usage 'cap' "--cap takes a whole number from 0 to 2147483647, not '-1'" --layer a --log b -o c --cap -1

# ---- Without rows ------------------------------------------------------------------------------------------------
build -K 5 -L 2 --iterations 12 --weights none -o bare >/dev/null
check 'without rows the file is smaller' test "$(stat -c %s bare)" -lt "$(stat -c %s evidence.one)"
"$WIDEOUT" predict --index bare --layer s/layer.safetensors s/test.log.safetensors >bare.answers
"$WIDEOUT" predict --index evidence.one s/test.log.safetensors >with.answers
check 'and answers the same' cmp bare.answers with.answers
check 'an index is a layer too' build --layer evidence.one -K 5 -L 2 --iterations 12 -o again
check 'the same one' cmp again evidence.one
same 'info without its layer' '["index","none",null]' "$("$WIDEOUT" info --json bare | jq -c '[.kind, .metadata["index.weights"], .index.cells]')"
same 'and with it' 64 "$("$WIDEOUT" info --json bare --layer s/layer.safetensors | jq .index.cells)"
if "$WIDEOUT" --help | grep -q '^  eval '; then
    for method in $methods; do
        check "$method: eval" jq -en 'input.n == 150' \
            <("$WIDEOUT" eval -q --index "$method.one" --log s/test.log.safetensors --json)
    done
fi

# ---- Options -----------------------------------------------------------------------------------------------------
check 'evidence: every option' build --method evidence -K 4 -L 3 --probes 2 --lambda 0.2 --source top --source-k 7 --learner mix \
    --thin 4 --iterations 5 --rate 0.1 --learn-batch 64 --weights f32 --seed 7 --threads 1 -o o --json
same 'they are in the file' '{"K":4,"L":3,"batch":64,"cap":0,"fallback":0,"fallback_by":"wider","iterations":5,"keep":8192,"lambda":0.2,"learner":"mix","partition":false,"prior":0,"probes":2,"rate":0.1,"router":"hash","seed":7,"source":"top","source_k":7,"thin":4,"weights":"f32"}' \
    "$("$WIDEOUT" info --json o | jq -cS .index.options)"
check 'lss: every option' build --method lss -K 3 -L 2 --probes 3 --loss margin --init random --optimiser sgd --t1 1.5 --t2 -2 \
    --t-values --trace-points 9 --iterations 6 --rate 0.5 --learn-batch 32 --max-neurons 90 -o o --json
same 'they too' '{"K":3,"L":2,"batch":32,"init":"random","iterations":6,"last_step":false,"loss":"margin","max_neurons":90,"optimiser":"sgd","probes":3,"rate":0.5,"seed":1,"t1":1.5,"t2":-2,"t_are_values":true,"trace_points":9,"weights":"f32"}' \
    "$("$WIDEOUT" info --json o | jq -cS .index.options)"
check 'long names' build --bits 4 --tables 1 --learner none --output o
check 'source labels' build -K 4 -L 1 --source labels --learner none -o o
for method in full slide; do
    check "$method needs no log" "$WIDEOUT" build --layer s/layer.safetensors --method $method -o o
done
usage 'no layer' 'needs --layer FILE' --log s/train.log.safetensors -o o
usage 'no output' 'needs -o FILE for the index' --layer s/layer.safetensors --log s/train.log.safetensors
for method in popular lss evidence; do
    usage "$method without a log" "--method $method needs --log FILE: queries to learn from" --layer s/layer.safetensors --method $method -o o
done
usage 'a file too many' "unexpected 'x': files are named by --layer, --log and -o" x
usage 'an index over its layer' "-o 's/layer.safetensors' would replace what is read" --layer s/layer.safetensors \
    --log s/train.log.safetensors -o s/layer.safetensors
usage 'an index over its log' "-o 's/train.log.safetensors' would replace what is read" --layer s/layer.safetensors \
    --log s/train.log.safetensors -o s/train.log.safetensors
belongs() { # OPTION... METHODS METHOD
    usage "$1 with $3" "$1 belongs to --method $2, not to $3" --layer a --log b -o c --method "$3" "$1" "${@:4}"
}
belongs -K 'slide, lss and evidence' full 3
belongs -L 'slide, lss and evidence' popular 3
belongs --probes 'slide, lss and evidence' full 3
belongs --popular popular evidence 3
for option in --lambda --thin; do belongs $option evidence lss 1; done
belongs --source-k 'popular and evidence' lss 1
belongs --source evidence lss both
belongs --learner evidence slide mix
for option in --t1 --t2; do belongs $option lss evidence 1; done
belongs --t-values lss evidence
belongs --last-step lss evidence
belongs --max-neurons lss slide 5
belongs --loss lss evidence paper
belongs --init lss slide mean
belongs --optimiser lss popular sgd
for option in --iterations --rate --learn-batch; do belongs $option 'lss and evidence' slide 1; done
usage 'learning without a learner' '--rate is for learning, and --learner none does not' --layer a --log b -o c --learner none --rate 1
usage 'K' "-K takes a whole number from 1 to 24, not '25'" --layer a --log b -o c -K 25
usage 'L' "-L takes a whole number from 1 to 256, not '257'" --layer a --log b -o c -L 257
usage 'probes' "--probes takes a whole number from 1 to 64, not '65'" --layer a --log b -o c --probes 65
usage 'more probes than cells' '--probes is 9, more than the 8 cells of a table' --layer a --log b -o c -K 3 --probes 9
usage 'too many cells' '256 tables of 16777216 cells are too many: at most 2^28 in all' --layer a --log b -o c -K 24 -L 256
usage 'lambda' "--lambda takes a number from 0 to 2, not '3'" --layer a --log b -o c --lambda 3
usage 'no rate' "--rate takes a number from 1e-09 to 1000, not '0'" --layer a --log b -o c --rate 0
usage 'neurons that are none' "--max-neurons takes a whole number from 0 to 4294967295, not '5x'" --layer a --log b -o c --method lss --max-neurons 5x
usage 'a limit for the last step' '--max-neurons is 5, but the last step is kept whatever it has' --layer a --log b -o c --method lss \
    --max-neurons 5 --last-step
usage 'other methods' "--method takes full|popular|slide|lss|evidence|screen, not 'magic'" --layer a --log b -o c --method magic

# ---- The trace ---------------------------------------------------------------------------------------------------
"$WIDEOUT" info --trace lss.one >trace
same 'its columns' step,loss,cp_positive,cp_negative,sample_size,label_recall,empty_cells,largest_cell,entropy,judged_recall,judged_neurons,kept "$(head -1 trace)"
same 'a row at the start and one for each step' '0 12 14' "$(sed -n 2p trace | cut -d, -f1) $(tail -1 trace | cut -d, -f1) $(wc -l <trace)"
check 'twelve numbers each' bash -c "awk -F, 'NF != 12 || \$3 < 0 || \$3 > 1 || \$6 > 1 {bad = 1} END {exit bad}' <(tail -n +2 trace)"
same 'as JSON' '[12,13]' "$("$WIDEOUT" info --trace --json lss.one | jq -c '[(.columns | length), (.rows | length)]')"
fails 'no trace' 1 'wideout: slide.one: has no trace: its method does not learn, or kept none' "$WIDEOUT" info --trace slide.one
fails 'no index' 1 'wideout: s/layer.safetensors: is not an index: nothing else has a trace' "$WIDEOUT" info --trace s/layer.safetensors

# ---- The step that lss keeps -------------------------------------------------------------------------------------
# Every step has a row of the trace here, so that the best one can be looked up in it.
lss() { # FILE ARGUMENT...
    build --method lss -K 3 -L 4 --iterations 40 --rate 0.3 -o "$1" "${@:2}"
}
best() { # INDEX LIMIT: the step with the best recall at no more neurons, of equals the one with the fewest, by the trace
    "$WIDEOUT" info --trace "$1" | awk -F, -v limit="$2" '
        NR > 1 && $11 <= limit && ($10 > most || $10 == most && $11 < n) {most = $10; n = $11; step = $1}
        END {print step}'
}
lss any --json >any.json
same 'the best step is kept' "$(best any 1e9)" "$(jq .kept.step any.json)"
same 'and marked' "$(jq .kept.step any.json)" "$("$WIDEOUT" info --trace any | awk -F, '$12 == 1 {print $1}')"
same 'info says the same' "$(jq -c .kept any.json)" "$("$WIDEOUT" info --json any | jq -c .index.kept)"
limit=$(jq '.kept.neurons - 0.5 | floor' any.json)
lss some --max-neurons "$limit" --json >some.json
same 'within a limit' "$(best some "$limit") true true" \
    "$(jq -r --argjson limit "$limit" '"\(.kept.step) \(.kept.neurons <= $limit) \(.kept.within_max_neurons)"' some.json)"
lss fewest --max-neurons 1 >fewest.text
same 'none is within it: the fewest' \
    "$("$WIDEOUT" info --trace fewest | awk -F, 'NR == 2 || NR > 2 && $11 < least {least = $11; step = $1} END {print step}')" \
    "$("$WIDEOUT" info --json fewest | jq .index.kept.step)"
check 'and it says so' grep -q '^  no step has as few as 1 classes a query: this one has the fewest$' fewest.text
lss last --last-step --json >last.json
same 'the last step is not judged' '[null,true,40]' \
    "$(jq -c '[.kept, .options.last_step]' last.json | jq -c ". + [$("$WIDEOUT" info --trace last | awk -F, '$12 == 1 {print $1}')]")"
for limit in 0 "$limit"; do
    lss one -t 1 --max-neurons "$limit" >/dev/null
    lss two -t 2 --max-neurons "$limit" >/dev/null
    check "at most $limit: one thread or two, the same file" cmp one two
done

# ---- Bad input ---------------------------------------------------------------------------------------------------
small() { # NAME SENTENCE: a log of one query
    fails "$1" 1 "wideout: small.log: $2" build --layer s/layer.safetensors --log small.log -K 2 -L 1 --iterations 2 -o bad
}
labelled='"labels.indptr":{"dtype":"I64","shape":[2],"data_offsets":[32,48]},"labels.indices":{"dtype":"I32","shape":[1],"data_offsets":[48,52]}'
one='\1\0\0\0\0\0\0\0'
st small.log "{\"queries\":{\"dtype\":\"F32\",\"shape\":[1,8],\"data_offsets\":[0,32]},$labelled}" "$(zeros 32)$(zeros 8)$one"'\xf4\x01\0\0'
small 'a label that the layer lacks' 'query 0 has label 500, the layer 500 classes: do labels count from 1? Here they count from 0'
st small.log "{\"queries\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]}}" "$(zeros 32)"
small 'queries of another size' "the log's queries have 4 numbers, the layer's rows 8"
st small.log "{\"queries\":{\"dtype\":\"F32\",\"shape\":[1,8],\"data_offsets\":[0,32]},$labelled}" \
    "$(zeros 20)\\0\\0\\xc0\\x7f$(zeros 8)$(zeros 8)$one$(zeros 4)"
small 'NaN in a query' 'query 0 of the log has nan at place 5'
st small.log "{\"queries\":{\"dtype\":\"F32\",\"shape\":[1,8],\"data_offsets\":[0,32]},$labelled}" \
    "\\0\\0\\x80\\xff$(zeros 28)$(zeros 8)$one$(zeros 4)"
small 'infinity in a query' 'query 0 of the log has -inf at place 0'
st small.log '{"queries":{"dtype":"F32","shape":[0,8],"data_offsets":[0,0]}}' ''
small 'no query' 'the log has no queries'
st small.log '{"queries":{"dtype":"F32","shape":[3,8],"data_offsets":[0,96]}}' "$(zeros 96)"
same 'queries that are all one' 'wideout: warning: small.log: all 3 queries are the same one: what they show is not shown of others' \
    "$("$WIDEOUT" build -q --layer s/layer.safetensors --log small.log -K 2 -L 1 --iterations 2 -o alike 2>&1 >/dev/null)"
st small.log '{"queries":{"dtype":"F32","shape":[1,8],"data_offsets":[0,32]}}' "$(zeros 32)"
fails 'lss without labels' 1 'wideout: small.log: the log has no labels, and lss learns from labels' \
    build --log small.log --method lss -o bad
fails 'no labels to learn from' 1 "wideout: small.log: the log has no labels, and nothing else was to be used: FULL's top-k can be the source; --source top takes it" \
    build --log small.log -K 2 -L 1 --source labels -o bad
# An index that nobody tuned is judged on queries that its cells do not know: as on others, and not as on its log.
"$WIDEOUT" data synthetic -q -m 3000 -d 16 -n 10000 -o held >/dev/null
held() { "$WIDEOUT" build --layer held/layer.safetensors --log held/train.log.safetensors -o held.idx "$@"; }
held --method evidence -K 8 -L 2 --json >held.json 2>held.err
figure() { "$WIDEOUT" eval --no-timing --json --index held.idx --log "held/$1.log.safetensors" | jq .p_at_1; }
# shellcheck disable=SC2016 # $test and $own are jq's
check 'an index is judged as by other queries' jq -e --argjson test "$(figure test)" --argjson own "$(figure train)" \
    '.held_out.queries == 500 and ((.held_out.p_at_1 - $test) | fabs) < 0.07 and $own - .held_out.p_at_1 > 0.05' held.json
check 'a poor one is warned of' grep -qE '^wideout: warning: held.idx has 8[0-9]% of FULL.s P@1 on 500 queries of the log that it did not know: --target 0.995 .*; a smaller --lambda or a longer log helps too$' held.err
check 'and again by another method, without a progress bar too' grep -q 'helps too' <(held -q --method popular --popular 20 2>&1)
held --method evidence -K 8 -L 2 --lambda 0.001 >held.text 2>held.err
same 'a good one is not' '' "$(cat held.err)"
check 'but its figures are there' grep -qE "^  on 500 queries of the log that it did not know: P@1 0\.[0-9]{4}, FULL's 0\.[0-9]{4}; FULL's best answer for 9[0-9.]+%$" held.text
cp held.idx before.idx
"$WIDEOUT" data synthetic -q -m 300 -d 16 -n 999 -o short >/dev/null
short=(--layer short/layer.safetensors --log short/train.log.safetensors -o short.idx)
same 'one of a short log says that nobody judged it' "  a log of 999 queries says nothing of the quality: give 1,000 or more, or judge it on others by 'wideout eval'" \
    "$("$WIDEOUT" build -q "${short[@]}" -K 4 -L 2 | grep 'says nothing')"
same 'what scores all classes need not' '' "$("$WIDEOUT" build -q "${short[@]}" --method screen | grep 'says nothing')"
held -q --method evidence -K 8 -L 2 --lambda 0.001 -t 3 >held.two
same 'with any number of threads' "$(grep 'did not know' held.text)" "$(grep 'did not know' held.two)"
check 'and the index is no other' cmp held.idx before.idx

# A screen is judged too, by any queries of its log: one scale of int8 for a row does not serve columns of 0.01 to 1000.
columns() { # POWER: w.npy and q.npy, a layer and its queries, whose column j is divided and multiplied by 10 to +-POWER
    python3 - "$1" <<'END'
import array, random, sys
draw = random.Random(1).gauss
size = [10 ** (float(sys.argv[1]) * (-1) ** j) for j in range(16)]
for name, n, power in ("w.npy", 2000, -1), ("q.npy", 200, 1):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 16), }" % n
    head += " " * (117 - len(head)) + "\n"
    body = array.array("f", [draw(0, 1) * size[j] ** power for _ in range(n) for j in range(16)])
    open(name, "wb").write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + body.tobytes())
END
}
screened() { "$WIDEOUT" build --layer w.npy --log q.npy --method screen -o screened "$@"; }
columns 0
screened >screened.text 2>err
same 'a screen of columns alike: no warning' '' "$(cat err)"
check 'what it is worth is there' grep -qx "  on 200 queries of the log that it did not know: FULL's best answer for 100.0%" screened.text
check 'of five answers too' grep -qx '  beside f32 rows, on logged queries: the same best answer for 100.00%, of the five best 100.00%' screened.text
columns 2
screened --json >screened.json 2>err
check 'of columns of very different sizes: a warning' grep -qE "^wideout: warning: screened has [0-9.]+% of FULL's five best answers on 200 queries of the log: int8 is too coarse for this layer, .*; '--method full' is exact, and without --method the tuner finds what serves$" err
check 'and the figures' jq -e '.held_out.queries == 200 and .held_out.same_best == .same_best and .same_best < 0.5 and .same_five < 0.5' screened.json
"$WIDEOUT" build -q --layer w.npy --method screen -o logless >/dev/null
check 'without a log it is the same index' cmp screened logless

# What cannot be shown is said; the index then looks through all classes.
build --log small.log -o unshown >unshown.text
check 'a log without labels' grep -q "^  tuned to 0.99 of FULL's own 5 best, on 1 query" unshown.text
check 'and few of them' grep -q '^  1 query is too few to show that; it looks through all classes' unshown.text
build --log small.log --target-agree 0.9 -o unshown >unshown.text
check 'too few queries to tune by' grep -q '^  method screen' unshown.text
check 'whose few classes come after a look at all' grep -q ' screen of all, in int8  <- this index$' unshown.text
check 'so in a comparison' grep -q '^  classes scored after the screen ' <("$WIDEOUT" eval -q --no-timing --index unshown --log s/test.log.safetensors)
build --tune-log small.log -o unshown >unshown.text
"$WIDEOUT" build --layer s/layer.safetensors --log s/train.log.safetensors --tune-log small.log --target 0.9 -o unshown 2>&1 >/dev/null | grep warning >unshown.err
same 'a share of labels where there are none' "wideout: warning: no query to judge by has labels: --target is taken for --target-agree 0.9, the share of FULL's own answers" \
    "$(head -n 1 unshown.err)"
check 'one query shows nothing, said as soon as it is known' grep -q '^wideout: warning: the queries to judge by are too few to show' unshown.err
build --tune-log small.log --target 0.9 -o unshown 2>&1 >/dev/null | grep warning >quiet.err
check 'and without a progress bar too' cmp unshown.err quiet.err
check 'a tune log without labels' grep -q "^  tuned to 0.99 of FULL's own 5 best, on 1 query" unshown.text
fails 'a tensor that the layer lacks' 1 "wideout: s/layer.safetensors: the file has no tensor 'none': its matrices are weight (500 x 8); choose with --weight-name NAME" \
    build --weight-name none -o bad
fails 'a file of biases beside safetensors' 1 'wideout: s/layer.safetensors: the file is no .npy file, and only beside one do biases have a file of their own; name a tensor with --bias-name NAME instead of --bias' \
    build --bias x -o bad
check 'evidence without labels' build --log small.log -K 2 -L 1 --learner none -o unlabelled
check 'popular without labels' build --log small.log --method popular --popular 3 -o unlabelled
same 'a layer that is a log' '1 1' "$(build --layer s/test.log.safetensors --method evidence -o bad 2>err; echo "$? $(wc -l <err)")"
fails 'a log that is a layer' 1 "wideout: s/layer.safetensors: the file is no log: it has no tensor 'queries'; it is a layer: are two files swapped?" \
    "$WIDEOUT" build --layer s/layer.safetensors --log s/layer.safetensors --method evidence -o bad
fails 'no such layer' 1 'wideout: none: the file cannot be opened: No such file or directory' build --layer none -o bad
fails 'no such log' 1 'wideout: none: the file cannot be opened: No such file or directory' build --log none -o bad
fails 'a missing folder' 1 'wideout: no/bad: the file cannot be created: No such file or directory' build --method full -o no/bad
check 'nothing was written' test ! -e bad -a -z "$(find . -name '*.tmp.*')"

# ---- Other layers, damaged files ---------------------------------------------------------------------------------
"$WIDEOUT" data synthetic -q -m 500 -d 8 -n 10 --seed 2 -o t >/dev/null
same 'another layer is refused' '1 1 the layer is not the one that the index was built for' "$("$WIDEOUT" predict --index evidence.one --layer t/layer.safetensors \
    s/test.log.safetensors 2>err >out; echo "$? $(wc -l <err) $(sed 's/^wideout: t.layer.safetensors: //; s/:.*//' err)$(cat out)")"
same 'no layer for an index without rows' '1 1' "$("$WIDEOUT" predict --index bare s/test.log.safetensors 2>err >out; echo "$? $(wc -l <err)$(cat out)")"
check 'which asks for one' grep -q -e '--layer' err
fails 'a layer is no index' 1 "wideout: s/layer.safetensors: the file is of kind layer, not an index" \
    "$WIDEOUT" predict --index s/layer.safetensors s/test.log.safetensors

# Every bit that is flipped, and every byte that is missing, is found: exit code 1, one sentence, no answer.
build -K 3 -L 1 --method lss --iterations 2 -o whole >/dev/null
size=$(stat -c %s whole)
head=$(($(od -An -t u4 -N 4 whole) + 8))
refused() { # FILE: says so unless it is
    local status
    "$WIDEOUT" predict --index "$1" s/test.log.safetensors >out 2>err
    status=$?
    [ $status -eq 1 ] && [ "$(wc -l <err)" -eq 1 ] && [ ! -s out ] || echo "$2: exit $status, $(cat err)"
}
tries=60
[ -z "${SAN:-}" ] || tries=15
passed=
for i in $(seq 0 $((2 * tries - 1))); do # the header, then the rest
    at=$((i < tries ? i * head / tries : head + (i - tries) * (size - head) / tries))
    cp whole flipped
    byte=$(($(od -An -t u1 -j $at -N 1 whole) ^ (1 << i % 8)))
    printf '%b' "\\x$(printf %02x $byte)" | dd of=flipped bs=1 seek=$at conv=notrunc status=none
    passed+=$(refused flipped "byte $at")
done
same 'bits that are flipped' '' "$passed"
passed=
for i in $(seq 0 $((tries - 1))); do
    head -c $((i * size / tries)) whole >cut.index
    passed+=$(refused cut.index "$((i * size / tries)) bytes")
done
head -c $((size - 1)) whole >cut.index
passed+=$(refused cut.index 'all but one byte')
same 'files that are cut' '' "$passed"
{ cat whole; echo; } >longer
same 'a file that goes on' '' "$(refused longer longer)"

# ---- Several logs --------------------------------------------------------------------------------------------------
cp s/train.log.safetensors again.log
check 'the same queries twice' "$WIDEOUT" build -q --layer s/layer.safetensors --log s/train.log.safetensors --log again.log \
    --method popular --popular 40 -o twice
build --method popular --popular 40 -o once >/dev/null
same 'has the same classes' "$("$WIDEOUT" predict -q --index once -k 9 s/test.log.safetensors | head -9)" \
    "$("$WIDEOUT" predict -q --index twice -k 9 s/test.log.safetensors | head -9)"
"$WIDEOUT" data synthetic -q -m 500 -d 16 -n 300 -o wide >/dev/null
two=(--log s/train.log.safetensors --method popular -o bad)
fails 'logs of two networks' 1 "wideout: wide/train.log.safetensors: the log's queries have 16 numbers, the layer's rows 8" \
    build "${two[@]}" --log wide/train.log.safetensors
fails 'also where the first is of the other' 1 "wideout: wide/train.log.safetensors: the log's queries have 16 numbers, the layer's rows 8" \
    build --log wide/train.log.safetensors "${two[@]}"
"$WIDEOUT" data synthetic -q -m 5000 -d 8 -n 300 -o many >/dev/null
check 'labels that one of them has too many of' grep -qE '^wideout: many/train.log.safetensors: query [0-9]+ has label [0-9]+, the layer [0-9]+ classes$' \
    <(build "${two[@]}" --log many/train.log.safetensors 2>&1)
st unlabelled '{"queries":{"dtype":"F32","shape":[2,8],"data_offsets":[0,64]}}' "$(zeros 64)"
fails 'labels that one of them lacks' 1 'wideout: unlabelled: has no labels, the first log has its own: they do not go together' \
    build "${two[@]}" --log unlabelled
st endless '{"queries":{"dtype":"F32","shape":[2,8],"data_offsets":[0,64]},"labels":{"dtype":"I32","shape":[2],"data_offsets":[64,72]}}' \
    "\\0\\0\\x80\\x7f$(zeros 68)"
fails 'a query that is not finite, of one of them' 1 'wideout: endless: query 0 of the log has inf at place 0' \
    build "${two[@]}" --log endless
same 'where no log is needed: one of them is warned of' \
    'wideout: warning: endless: 1 of 2 queries with numbers or scores that are not finite: no index answers it' \
    "$("$WIDEOUT" build --layer s/layer.safetensors --method slide --log s/train.log.safetensors --log endless -o bad 2>&1 >/dev/null | grep 'not finite')"
fails 'one of them is not there' 1 'wideout: none: the file cannot be opened: No such file or directory' \
    build --log s/train.log.safetensors --log none --method popular -o bad
usage 'labels for two logs' '--labels goes with one --log: several must have labels of their own' \
    --layer s/layer.safetensors --log a --log b --labels c -o bad
usage 'output over the second log' "-o 's/test.log.safetensors' would replace what is read" \
    --layer s/layer.safetensors --log s/train.log.safetensors --log s/test.log.safetensors --method popular -o s/test.log.safetensors
finish
