#!/bin/bash
# Text of a language model, by an index and by the exact layer; log probabilities in predict, eval and build.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
torch=$(realpath -m "${WIDEOUT_DATA:-../shared/data}")/wikitext-2/torch
cd "$scratch" || exit 1

usage() { # NAME COMMAND SENTENCE ARGUMENT...
    local name=$1 command=$2 sentence=$3
    shift 3
    fails "$name" 2 "wideout $command: $sentence (see 'wideout $command --help')" "$WIDEOUT" "$command" "$@"
}
generate() {
    "$WIDEOUT" generate --net lm.net "$@" 2>speed
}

# ---- Data: a text that a network learns by heart, and one that it does not ------------------------------------------
yes 'a b c d e f g h' | head -n 400 >corpus
"$WIDEOUT" data text -q corpus -o tokens >/dev/null
"$WIDEOUT" train lm --train tokens/train.tokens.safetensors -o lm.net -q -t 1 -d 16 --lr 0.02 -e 20 -b 8 --dropout 0 >/dev/null
"$WIDEOUT" embed lm.net --data tokens/train.tokens.safetensors -o lm.log >/dev/null
"$WIDEOUT" build -q --layer lm.net --log lm.log -K 4 -L 2 --iterations 10 --partition -o lm.idx >built
"$WIDEOUT" build -q --layer lm.net --log lm.log -K 4 -L 2 --iterations 10 -o plain.idx >/dev/null
"$WIDEOUT" build -q --layer lm.net --log lm.log -K 4 -L 2 --iterations 10 --weights none -o bare.idx >/dev/null

# ---- Text --------------------------------------------------------------------------------------------------------------
same 'the exact layer goes on, line after line' $'a b c d e f g h\na b' "$(generate --prompt 'a b c' -n 8 --temperature 0)"
check 'how fast that was' grep -qE '^exact layer: [0-9,]+ words a second; a word: [0-9.]+ us for the next one among [0-9]+[.]0 classes, [0-9.]+ us to read it$' speed
same 'so does the index' $'a b c d e f g h\na b' "$(generate --index lm.idx --prompt ' a  b c' -n 8 --temperature 0 | sed 's/^ a  b/a b/')"
check 'which scores fewer' grep -qE '^index: .* among [0-9.]+ classes' speed
same 'an index without rows has those of the network' $'a b c d' "$(generate --index bare.idx --prompt 'a b' -n 2 --temperature 0)"
same 'both' $'index:\na b c d e\n\nexact layer:\na b c d e' "$(generate --index lm.idx --prompt 'a b' -n 3 --compare --top-k 1)"
same 'and where they part' 'both: 3 of 3 words are the same before they differ' "$(tail -n 1 speed)"
same 'quietly' '' "$(generate --prompt a -q -n 3 >/dev/null; cat speed)"
hot=(--prompt a -n 200 --temperature 50)
generate "${hot[@]}" --seed 7 >one
generate "${hot[@]}" --seed 7 >two
generate "${hot[@]}" --seed 8 >three
check 'one seed, one text' cmp one two
check 'another, another' bash -c '! cmp -s one three'
same 'top-p 0 is the best word' "$(generate --prompt a -n 20 --temperature 0)" "$(generate --prompt a -n 20 --temperature 50 --top-p 0)"
for option in -k --top --top-k; do
    same "the words that are drawn among, $option" 2 "$(generate "${hot[@]}" $option 1 --json | jq -r '.runs[0].words[:2] | unique | length')"
done
check 'the fields of --json' jq -e '.net == "lm.net" and .prompt == "a" and .n == 5 and .seed == 1 and .same_words == 5 and
    ([.runs[].by] == ["index", "exact layer"]) and (.runs | all((.words | length == 5) and .words_a_second > 0 and
    .next_us > 0 and .read_us >= 0 and .candidates > 0))' <(generate --prompt a -n 5 --index lm.idx --compare --temperature 0 --json)

"$WIDEOUT" build -q --layer lm.net --log lm.log -K 4 -L 2 --iterations 10 --source-k 2 -o two.idx >/dev/null
generate --index two.idx --prompt a -n 2 >/dev/null
same 'an index for fewer words than are drawn among: said' "wideout: warning: two.idx was made for 2 answers, and may miss many of 9: 'wideout build --source-k 9' makes one for so many" "$(head -1 speed)"
generate --index two.idx --prompt a -n 2 --temperature 0 >/dev/null
check 'not where the best is taken' grep -q '^index: ' <(head -1 speed)
generate --index two.idx --prompt a -n 2 -k 2 >/dev/null
check 'nor for as many' grep -q '^index: ' <(head -1 speed)

# A prior is no part of what the network learned.
tree=(-q --layer lm.net --log lm.log --router tree --nodes 1 --leaves 8 --probes 8 --lambda 0)
"$WIDEOUT" build "${tree[@]}" -o tree.idx >/dev/null
"$WIDEOUT" build "${tree[@]}" --prior 2 --focus 1 -o prior.idx >/dev/null
warm=(--prompt a -n 200 -k 5 --temperature 4)
generate "${warm[@]}" --index tree.idx >own
generate "${warm[@]}" --index prior.idx >with
same 'a prior: said' "wideout: prior.idx has a prior, which is added to the network's logits: --no-prior draws by these alone" "$(head -1 speed)"
check 'which makes another text' bash -c '! cmp -s with own'
generate "${warm[@]}" --index prior.idx --no-prior >without
check '--no-prior: the text of an index that has none' cmp without own
check 'of which nothing is said' grep -q '^index: ' <(head -1 speed)

# ---- Words that are not known ------------------------------------------------------------------------------------------
printf 'x <unk> y x <unk> y x <unk> y x y\n%.0s' $(seq 200) >with-unk
"$WIDEOUT" data text -q with-unk -o unk >/dev/null
"$WIDEOUT" train lm --train unk/train.tokens.safetensors -o unk.net -q -t 1 -d 8 --lr 0.02 -e 5 -b 8 --dropout 0 >/dev/null
check '<unk> is written' grep -q '<unk>' <("$WIDEOUT" generate -q --net unk.net --prompt 'x zzz y' -n 40 --temperature 2)
same 'what drives a terminal is not printed, lines of the prompt are' $'x ?]0;title?\ny\tx' \
    "$("$WIDEOUT" generate -q --net unk.net --prompt $'x \e]0;title\a\ny\tx' -n 1 | sed '2s/ [^ ]*$//')"
check 'unless it may not be' bash -c "! '$WIDEOUT' generate -q --net unk.net --prompt 'x y' -n 200 --temperature 2 --no-unk | grep -q '<unk>'"
words=$("$WIDEOUT" info unk.net --json | jq '.tensors[] | select(.name == "output.bias").shape[0]')
(echo y; echo x; yes '<unk>' | head -n $((words - 2))) >several
check 'whichever of several it is' grep -q '<unk>' <("$WIDEOUT" generate -q --net unk.net --vocab several --prompt 'x y' -n 200 --temperature 2)
same 'none is written' 'x y' "$("$WIDEOUT" generate -q --net unk.net --vocab several --prompt x -n 200 --temperature 2 --no-unk |
    tr ' ' '\n' | sort -u | paste -sd ' ')"

if [ -e "$torch/vocab.txt" ]; then
    same "PyTorch's network" 10 "$("$WIDEOUT" generate --net "$torch/lstm.safetensors.index.json" --vocab "$torch/vocab.txt" \
        --prompt 'The city of' -n 10 --temperature 0 --json | jq '.runs[0].words | length')"
else
    ok "PyTorch's network # skip no data in $torch"
fi

usage 'no network' generate 'needs --net FILE' --prompt a
usage 'no prompt' generate 'needs --prompt TEXT' --net lm.net
usage 'a word too many' generate "unexpected 'b': the text to go on from is --prompt TEXT" --net lm.net --prompt a b
usage 'nothing to compare' generate '--compare needs --index FILE' --net lm.net --prompt a --compare
usage 'too many words to draw among' generate '--top takes at most 1000, not 1001' --net lm.net --prompt a --top-k 1001
usage 'below zero' generate "--temperature takes a number from 0 to 1000, not '-1'" --net lm.net --prompt a --temperature -1
usage 'more than all' generate "--top-p takes a number from 0 to 1, not '2'" --net lm.net --prompt a --top-p 2
fails 'no words' 1 'wideout: --prompt: has no words' "$WIDEOUT" generate --net lm.net --prompt ' '
fails 'no UTF-8' 1 'wideout: --prompt: is not UTF-8' "$WIDEOUT" generate --net lm.net --prompt $'\xff'
fails 'an unknown word' 1 "wideout: --prompt: the word 'zz' is not in the network's vocabulary, which has no <unk>" \
    "$WIDEOUT" generate --net lm.net --prompt zz
"$WIDEOUT" train w2v --train tokens/train.tokens.safetensors -o w2v.net -q -t 1 -d 16 -e 1 >/dev/null
fails 'another kind of network' 1 'wideout: w2v.net: is a network of kind w2v, expected a language model (lm)' \
    "$WIDEOUT" generate --net w2v.net --prompt a
check 'the index of another layer' grep -qE '^wideout: unk.net: the layer is not the one that the index was built for: its checksum is' \
    <("$WIDEOUT" generate --net unk.net --index lm.idx --prompt x 2>&1)

# ---- Log probabilities -------------------------------------------------------------------------------------------------
check 'build says how far off log Z is' grep -qE '^  log Z, on logged queries that it was not fitted to: error 0[.][0-9]{4} nats, bias [+-]0[.][0-9]{4}$' built
check 'and in --json, on the tune log too' jq -e '.log_z_held_out and .log_z_error >= 0 and .log_z_error < 0.5 and (.log_z_bias | fabs) < 0.1 and
    .tune_log_z_error < 0.5 and (.tune_log_z_bias | fabs) < 0.1 and .options.partition == true' \
    <("$WIDEOUT" build -q --layer lm.net --log lm.log -K 4 -L 2 --iterations 10 --partition --tune-log lm.log --json -o again.idx)
check 'which changes nothing' cmp lm.idx again.idx
"$WIDEOUT" data draw -q lm.log -n 199 -o few.log >/dev/null
few=(--layer lm.net --log few.log -K 4 -L 2 --iterations 10 --partition)
check 'of a log of few queries: on those that it was fitted to' grep -qE '^  log Z, on logged queries that it was fitted to: error .*; others have a larger one$' \
    <("$WIDEOUT" build -q "${few[@]}" -o few.idx)
same 'and so in --json' false "$("$WIDEOUT" build -q "${few[@]}" -o few.idx --json | jq .log_z_held_out)"
"$WIDEOUT" data synthetic -q -m 400 -d 64 -n 1500 -o far >/dev/null
far=(--layer far/layer.safetensors --log far/train.log.safetensors -K 12 -L 1 --lambda 2 --iterations 5 --partition)
check 'candidates that lack most of Z are warned of' grep -qE '^wideout: warning: log Z is off by [1-9][0-9.]* nats, so that probabilities mean little: ' \
    <("$WIDEOUT" build "${far[@]}" -o far.idx 2>&1)
check 'with --quiet too' grep -q '^wideout: warning: log Z is off by ' <("$WIDEOUT" build -q "${far[@]}" -o far.idx 2>&1 >/dev/null)
usage 'a tune log without a partition' build \
    '--tune-log is for tuning: give --target too, or leave out --method, --router, -K, -L and --lambda' \
    --layer lm.net --log lm.log -K 4 --tune-log lm.log -o no.idx
sums() { # ARGUMENT...: the smallest and the largest sum of probabilities over all classes, by log probabilities
    "$WIDEOUT" predict --index lm.idx lm.log -k 100 --logprob "$@" |
        awk -F '\t' '{s = 0; for (i = 2; i <= NF; i += 2) s += exp($i); if (NR == 1 || s < low) low = s; if (s > high) high = s}
            END {printf "%.2f %.2f\n", low, high}'
}
same 'exact probabilities sum to 1' '1.00 1.00' "$(sums --exact)"
read -r low high < <(sums)
check 'those of candidates to no more, nearly' awk -v low="$low" -v high="$high" 'BEGIN {exit !(low > 0.5 && high < 1.2)}'
same 'the kind of scores' '"logprob"' "$("$WIDEOUT" predict --index lm.idx lm.log --logprob --json | head -1 | jq .scores)"
usage 'two kinds of scores' predict '--softmax and --logprob are two kinds of scores' --index lm.idx lm.log --softmax --logprob
fails 'without a partition' 1 \
    'wideout: plain.idx: the index knows no log Z, which probabilities need: it was built without a partition; build it with --partition, or ask for --exact' \
    "$WIDEOUT" predict --index plain.idx lm.log --logprob
fails 'with forbidden classes' 1 'wideout: --forbid: forbidden does not go with log Z, which was learned without: FULL has the exact one' \
    "$WIDEOUT" predict --index lm.idx lm.log --logprob --forbid 1
fails 'with other probes' 1 'wideout: --probes: probes does not go with log Z, which was learned without: FULL has the exact one' \
    "$WIDEOUT" predict --index lm.idx lm.log --logprob --probes 3
"$WIDEOUT" eval -q --index lm.idx --log lm.log --no-timing >judged
for row in 'perplexity of the labels' 'log Z, error in nats' 'log Z, bias in nats' 'probabilities sum to'; do
    check "eval: $row" grep -q "^  $row  *-*[0-9.]*  *[0-9.]*" judged
done
check 'eval: --json' jq -e '.perplexity >= 1 and .full_perplexity >= 1 and .log_z_error < 0.5 and (.log_z_bias | fabs) < 0.1 and
    .probability_sum > 0.9 and .probability_sum < 1.1 and (.perplexity / .full_perplexity - 1 | fabs) < 0.05' \
    <("$WIDEOUT" eval -q --index lm.idx --log lm.log --no-timing --json)
same 'eval: nothing of it for others' 'false' "$("$WIDEOUT" eval -q --index plain.idx --log lm.log --no-timing --json | jq 'has("perplexity") or has("log_z_error")')"
same 'info: the option' 'true' "$("$WIDEOUT" info --json lm.idx | jq '.metadata["index.partition"] == "1" and (.metadata["wideout.needs"] | test("partition"))')"
same 'files without it are as they were' 'null null' "$("$WIDEOUT" info --json plain.idx | jq -r '"\(.metadata["index.partition"]) \(.metadata["wideout.needs"])"')"
finish
