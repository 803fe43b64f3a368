#!/bin/bash
# An output is never an input, by whatever name, in any command, and an input is given once; and of what stands beside a network, only a checkpoint is
# ever replaced or deleted.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cd "$scratch" || exit 1
export OMP_WAIT_POLICY=passive

# ---- Data --------------------------------------------------------------------------------------------------------
"$WIDEOUT" data synthetic -q --as text -m 40 -n 300 -o x >/dev/null
seq 400 | awk '{printf "w%d w%d ", $1 % 13, $1 % 7} $1 % 9 == 0 {print ""}' >corpus
"$WIDEOUT" data text -q corpus -o t >/dev/null
small=(-q -d 4 -t 1 -e 1)
"$WIDEOUT" train xc --train x/train.txt "${small[@]}" -o xc.net >/dev/null
"$WIDEOUT" train lm --train t/train.tokens.safetensors -b 4 "${small[@]}" -o lm.net >/dev/null
"$WIDEOUT" embed -q xc.net --data x/train.txt -o xc.log >/dev/null
# The network as a model in one shard.
cp xc.net model-1.safetensors
names=$("$WIDEOUT" info --json xc.net | jq -c '[.tensors[].name | {(.): "model-1.safetensors"}] | add')
echo "{\"weight_map\": $names}" >model.json
check 'a sharded model can be built from' "$WIDEOUT" build -q --layer model.json --weight-name output.weight \
    --bias-name output.bias --method full -o shards.idx

keeps() { # NAME COMMAND FILE ARGUMENT...: the command refuses to write FILE, which stays as it was
    local name=$1 command=$2 file=$3
    shift 3
    cp "$file" .kept
    # shellcheck disable=SC2086 # the command may be two words
    fails "$name" 2 "wideout $command: -o '$file' would replace what is read (see 'wideout $command --help')" \
        "$WIDEOUT" $command "$@"
    check "$name: it stays" cmp "$file" .kept
}

# ---- One file ----------------------------------------------------------------------------------------------------
keeps 'train: its data' 'train xc' x/train.txt --train x/train.txt -o x/train.txt
keeps 'train: its validation' 'train xc' x/valid.txt --train x/train.txt --valid x/valid.txt -o x/valid.txt
keeps 'train: its test' 'train xc' x/test.txt --train x/train.txt --test x/test.txt -o x/test.txt
cp x/labels.txt names
keeps 'train: label names' 'train xc' names --train x/train.txt --label-names names -o names
cp x/features.txt features
keeps 'train: feature names' 'train xc' features --train x/train.txt --feature-names features -o features
keeps 'train: names that it finds' 'train xc' x/labels.txt --train x/train.txt -o x/labels.txt
keeps 'train lm: its data' 'train lm' t/train.tokens.safetensors --train t/train.tokens.safetensors -o t/train.tokens.safetensors
cp x/train.txt data.checkpoint
keeps 'train: a checkpoint that is its data' 'train xc' data.checkpoint --train data.checkpoint -o data
keeps 'embed: its network' embed xc.net xc.net --data x/test.txt -o xc.net
keeps 'embed: its data' embed x/test.txt xc.net --data x/test.txt -o x/test.txt
seq 20 >vocab
keeps 'embed: the vocabulary' embed vocab lm.net --data t/test.tokens.safetensors --arch lm --vocab vocab -o vocab
keeps 'build: the layer' build xc.net --layer xc.net --log xc.log -o xc.net
keeps 'build: the log' build xc.log --layer xc.net --log xc.log -o xc.log
keeps 'build: the list of shards' build model.json --layer model.json --method full -o model.json
keeps 'build: a shard' build model-1.safetensors --layer model.json --method full -o model-1.safetensors
keeps 'embed: a shard' embed model-1.safetensors model.json --data t/test.tokens.safetensors --arch lm --vocab vocab -o model-1.safetensors
keeps 'data xc: its input' 'data xc' x/test.txt x/test.txt -o x/test.txt
cp x/test.txt p_X_Xf.txt
keeps 'data xc: into two' 'data xc' p_X_Xf.txt p_X_Xf.txt --split-files -o p

# ---- Other names of a file ---------------------------------------------------------------------------------------
ln xc.log hard
keeps 'a hard link' build hard --layer xc.net --log xc.log -o hard
ln -s xc.log soft
keeps 'a symbolic link' build soft --layer xc.net --log xc.log -o soft
keeps 'a longer way' build ./x/../xc.log --layer xc.net --log xc.log -o ./x/../xc.log

# ---- Into the folder of the input --------------------------------------------------------------------------------
mkdir d
cp corpus d/valid.tokens.safetensors
keeps 'data text' 'data text' d/valid.tokens.safetensors d/valid.tokens.safetensors -o d
printf 'Package: a\nDepends: b\n\nPackage: c\nDepends: b\n\n' >d/labels.txt
keeps 'data deb822' 'data deb822' d/labels.txt d/labels.txt -o d/
# shellcheck disable=SC2094 # that is the point
keeps 'data deb822, standard input' 'data deb822' d/labels.txt -o d <d/labels.txt
keeps 'data split' 'data split' x/train.txt x/train.txt -o x
check 'nothing else was made there' test "$(ls d)" = $'labels.txt\nvalid.tokens.safetensors'

# ---- An input is given once, and no output is standard output ----------------------------------------------------
# Whatever a command reads or writes, by its own --help.
commands='data_deb822 data_text data_xc data_split data_draw data_synthetic train_xc train_w2v train_lm embed build shard join
update check eval predict generate serve info'
n_read=0 n_written=0
for command in $commands; do
    command=${command/_/ }
    # shellcheck disable=SC2086 # the command may be two words
    while read -r option help; do
        case $option$help in
            '--output'* | '--changed'* | '--ready-file'*)
                n_written=$((n_written + 1))
                said=$("$WIDEOUT" $command $option - 2>&1)
                same "$command $option -" \
                    "2 wideout $command: $option takes a name, not '-': standard output cannot be it (see 'wideout $command --help')" \
                    "$? $said" ;;
            '--access-log'* | *'several are read as one'* | '--forbid'* | '--require'* | '--remove'*) ;;
            *)
                n_read=$((n_read + 1))
                said=$("$WIDEOUT" $command $option a $option b 2>&1)
                same "$command $option twice" "2 wideout $command: $option is given twice (see 'wideout $command --help')" "$? $said" ;;
        esac
    done < <("$WIDEOUT" $command --help | sed '1,/^Options:/d' | tr '\n' ' ' | sed 's/  *\(-[a-zA-Z],\)\? *\(--[a-z]\)/\n\2/g' |
        grep -E '^--[a-z0-9-]+ (FILE|LOG|DIR|PREFIX|NAME  *its tensor)')
done
check 'there are some' test $n_read -gt 40 -a $n_written -gt 10
# Of a log, several make one; one log twice does not, whatever it is called.
ln xc.log same.log
ln -s xc.log link.log
for other in xc.log same.log ./link.log; do
    fails "a log twice, as $other" 2 "wideout build: --log '$other' is given twice: its queries would count twice, and be held out \
from themselves (see 'wideout build --help')" "$WIDEOUT" build --layer xc.net --log xc.log --log $other -o twice.idx
done
cp xc.log more.log
check 'two logs' "$WIDEOUT" build -q --layer xc.net --log xc.log --log more.log --method popular -o twice.idx

# ---- Checkpoints -------------------------------------------------------------------------------------------------
echo 'my notes' >o.net.checkpoint
for more in '' --resume; do
    # shellcheck disable=SC2086 # nothing or one word
    fails "a file that is no checkpoint $more" 1 \
        "wideout: o.net: its checkpoint: exists and is no checkpoint of wideout's: move it away" \
        "$WIDEOUT" train xc --train x/train.txt "${small[@]}" $more -o o.net
done
same 'stays' 'my notes' "$(cat o.net.checkpoint)"
cp xc.net o.net.checkpoint
fails 'nor a network of ours' 1 "wideout: o.net: its checkpoint: exists and is no checkpoint of wideout's: move it away" \
    "$WIDEOUT" train xc --train x/train.txt "${small[@]}" -o o.net
check 'it stays too' cmp xc.net o.net.checkpoint
check '--time-steps writes nothing, and does not mind' "$WIDEOUT" train xc --train x/train.txt "${small[@]}" --time-steps 1 -o o.net
check 'nor deletes it' cmp xc.net o.net.checkpoint
cp "$OLDPWD/tests/golden/checkpoint.safetensors" o.net.checkpoint
check 'a checkpoint of another run is replaced' "$WIDEOUT" train xc --train x/train.txt "${small[@]}" -o o.net
check 'and deleted in the end' test ! -e o.net.checkpoint
finish
