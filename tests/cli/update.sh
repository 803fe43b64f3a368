#!/bin/bash
# update and check: classes of an index come, change and go, from files as users have them.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cd "$scratch" || exit 1
"$WIDEOUT" data synthetic -q -m 60 -d 8 -n 900 -o s >/dev/null
"$WIDEOUT" data synthetic -q -m 4 -d 8 -n 100 --seed 9 -o r >/dev/null
layer=s/layer.safetensors log=s/train.log.safetensors test=s/test.log.safetensors rows=r/layer.safetensors
tree=(--router tree --nodes 4 --leaves 8 --probes 2 --lambda 0.2)
"$WIDEOUT" build -q --layer $layer --log $log "${tree[@]}" -o index >/dev/null
see() { "$WIDEOUT" predict -q "$@" | awk -F '\t' '{for (i = 1; i < NF; i += 2) print $i}' | sort -un; }
st() { # FILE HEADER BYTES: a safetensors file of others, its data zeros or what comes on standard input
    local header=$2
    while ((${#header} % 8)); do header+=' '; done
    {
        printf '%b' "\\x$(printf %02x $((${#header} & 255)))\\x$(printf %02x $((${#header} >> 8)))\\0\\0\\0\\0\\0\\0"
        printf %s "$header"
        head -c "$3" "${4:-/dev/zero}"
    } >"$1"
}
npy() { # FILE SHAPE: float32, of the bytes that come in
    local header="{'descr': '<f4', 'fortran_order': False, 'shape': ($2), }"
    { printf '\x93NUMPY\x01\x00%b%s\n' "$(printf '\\x%02x\\0' $((${#header} + 1)))" "$header" && cat; } >"$1"
}
tensor() { # FILE NAME: its bytes
    local from bytes
    read -r from bytes < <("$WIDEOUT" info --json "$1" |
        jq -r --arg name "$2" '.tensors[] | select(.name == $name) | "\(.offset + 1) \(reduce .shape[] as $n (4; . * $n))"')
    tail -c "+$from" "$1" | head -c "$bytes"
}

# ---- What comes, and what goes -------------------------------------------------------------------------------------
same 'what it says' 'more: index, 4 classes added, 0 replaced, 2 removed' \
    "$("$WIDEOUT" update -q index --add $rows --remove 7,8 -o more | head -1)"
same 'and as JSON' '[64,4,0,2,2,900]' \
    "$("$WIDEOUT" update index --add $rows --remove 7,8 -o more2 --json | jq -c '[.m, .added, .replaced, .removed_now, .removed, .kept_queries]')"
check 'the same bytes again, whatever the threads' cmp more more2
"$WIDEOUT" update -q index --add $rows --remove 7,8 -o more2 -t 1 >/dev/null
check 'with one thread too' cmp more more2
check 'info shows it' grep -q '  2 classes removed' <<<"$("$WIDEOUT" info more)"
for how in '' --exact '--require 7,8,9' '--probes 8 -k 64' '--softmax' '--exact --softmax -k 64'; do
    # shellcheck disable=SC2086 # options
    same "nobody answers 7 or 8: '$how'" '' "$(see --index more $how $test 2>/dev/null | grep -x '[78]')"
done
same 'all others are there' 62 "$(see --index more --exact -k 64 $test | wc -l)"
printf '0\n59\n' >gone
"$WIDEOUT" update -q more --remove gone -o less >/dev/null
same 'a second update, from a file' 60 "$(see --index less --exact -k 64 $test | wc -l)"
"$WIDEOUT" update -q index --remove 7 --remove gone -o less >/dev/null
same 'removed by several options' '' "$(see --index less --exact -k 64 $test | grep -xE '0|7|59')"
true >empty
same 'a list of nothing' 'wideout: warning: empty names no class' "$("$WIDEOUT" update -q index --remove empty -o same 2>&1 >/dev/null)"
for weights in bf16 int8 none; do
    "$WIDEOUT" build -q --layer $layer --log $log "${tree[@]}" --weights $weights -o other >/dev/null
    own=()
    [ $weights != none ] || own=(--layer "$layer")
    "$WIDEOUT" update -q other "${own[@]}" --add $rows --remove 7,8 -o other.more >/dev/null
    [ $weights != none ] || continue
    same "rows in $weights" '' "$(see --index other.more -k 64 --probes 8 $test 2>/dev/null | grep -x '[78]')"
done
check 'without rows it now has another layer' grep -q 'is not the one that the index was built for' \
    <<<"$("$WIDEOUT" predict -q --index other.more --layer $layer $test 2>&1)"
for method in full screen slide popular lss; do
    given=(--log "$log")
    [ $method != full ] && [ $method != screen ] && [ $method != slide ] || given=()
    "$WIDEOUT" build -q --layer $layer "${given[@]}" --method $method -o other >/dev/null
    "$WIDEOUT" update -q other --add $rows --remove 3 -o other.more >/dev/null
    same "$method" '64 1' "$("$WIDEOUT" info --json other.more | jq -r '"\(.index.m) \(.index.removed)"')"
done

same 'a tuned index keeps as many' 30 "$("$WIDEOUT" build -q --layer $layer --log $log --tune-log $test --target 0.5 --target5 0.5 \
    --max-time 5s --router tree --keep 30 -o tuned --json | jq .kept_queries)"
check 'and can be updated' "$WIDEOUT" update -q tuned --add $rows -o tuned2
"$WIDEOUT" update -q tuned2 --remove 3 -o tuned3 >/dev/null
same 'what tuning measured is of before' '  5 classes added, replaced or removed since: these figures are of before' \
    "$("$WIDEOUT" info tuned3 | grep -A1 '^  tuned to' | tail -n +2)"
same 'and as JSON' '[0,4,5]' "$(for i in tuned tuned2 tuned3; do "$WIDEOUT" info --json $i | jq .tuning.changed; done | jq -cs .)"

# Nothing is left to be answered.
seq 0 59 >all
"$WIDEOUT" build -q --layer $layer --log $log "${tree[@]}" --partition --mix 0.5 -o mixed >/dev/null
"$WIDEOUT" update -q mixed --remove all -o nothing >/dev/null
same 'an index without a class that may be answered is judged' '[0,1]' \
    "$("$WIDEOUT" eval -q --index nothing --log $test --no-timing --json | jq -c '[.sample_size, .empty_share]')"
for command in "eval --no-timing --log $test" "predict $test"; do
    # shellcheck disable=SC2086 # a command
    same "${command%% *}: no class is left" "wideout: warning: nothing: no class is left to be answered: all 60 were removed by 'wideout update'" \
        "$("$WIDEOUT" $command -q --index nothing 2>&1 >/dev/null)"
done
same 'and compared' '  of 900 queries that the index keeps none has an answer by its own rows' "$("$WIDEOUT" check nothing --layer $layer | sed -n 2p)"

# ---- Names ---------------------------------------------------------------------------------------------------------
seq -f 'class %.0f' 0 59 >names
"$WIDEOUT" build -q --layer $layer --log $log --names names "${tree[@]}" -o named >/dev/null
printf 'class 3\nclass 4\n' >gone
"$WIDEOUT" update -q named --add $rows --remove gone -o named2 >/dev/null
"$WIDEOUT" predict -q --index named2 --exact -k 64 $test >answers
same 'classes go by their names' 0 "$(grep -c $'class 3\t' answers)"
check 'and come with their numbers' grep -q $'\t62\t' answers

# As some editors save text: a byte order mark first.
{ printf '\xef\xbb\xbf' && cat names; } >marked
"$WIDEOUT" build -q --layer $layer --log $log --names marked "${tree[@]}" -o marked.index >/dev/null
check 'a mark before the names is no part of them' cmp named marked.index
same 'nor where info looks at them' '60 names' "$("$WIDEOUT" info marked | grep -o '60 names')"
for list in 'class 0\nclass 3\n' '0\r\n3\r\n' '\n0\n3\n'; do
    printf '%b' "\xef\xbb\xbf$list" >gone
    same "nor of a list: '$list'" 2 "$("$WIDEOUT" update -q named --remove gone -o named2 --json | jq .removed_now)"
done
printf '\xef\xbb\xbf' >gone
same 'which may be empty' 'wideout: warning: gone names no class' "$("$WIDEOUT" update -q named --remove gone -o named2 2>&1 >/dev/null)"

seq 59 -1 0 >names
"$WIDEOUT" build -q --layer $layer --log $log --names names "${tree[@]}" -o named >/dev/null
fails 'digits that mean two classes' 1 \
    'wideout: --remove: 59 is the number of one class and the name of another: number:59 or name:59 says which is meant' \
    "$WIDEOUT" update named --remove 59 -o x
removed() { # CLASS: how the class is called that is gone then
    "$WIDEOUT" update -q named --remove "$1" -o named2 >/dev/null && "$WIDEOUT" predict -q --index named2 --exact -k 60 $test |
        head -1 | tr '\t' '\n' | sed -n 'p;n' | sort -n - names | uniq -u
}
same 'that the number is meant' 0 "$(removed number:59)"
same 'that the name is meant' 59 "$(removed name:59)"
seq 1000000 1000059 >names
"$WIDEOUT" build -q --layer $layer --log $log --names names "${tree[@]}" -o named >/dev/null
same 'digits that are a name alone' 1000005 "$(removed 1000005)"

# ---- Rows in other files ---------------------------------------------------------------------------------------------
tensor $rows weight | npy w.npy '4, 8'
tensor $rows bias | npy b.npy '4,'
"$WIDEOUT" update -q index --add w.npy --bias b.npy --remove 7,8 -o more2 >/dev/null
check 'arrays, and their biases' cmp more more2
{ tensor $rows weight && tensor $rows bias; } >both
st two '{"a":{"dtype":"F32","shape":[4,8],"data_offsets":[0,128]},"b":{"dtype":"F32","shape":[4],"data_offsets":[128,144]},"c":{"dtype":"F32","shape":[4,8],"data_offsets":[144,272]},"ids":{"dtype":"I32","shape":[4],"data_offsets":[272,288]}}' 288 <(
    cat both
    tensor $rows weight
    printf '\5\0\0\0\6\0\0\0\7\0\0\0\10\0\0\0'
)
"$WIDEOUT" update -q index --add two --weight-name a --bias-name b --remove 7,8 -o more2 >/dev/null
check 'tensors of other names' cmp more more2
st own '{"weight":{"dtype":"F32","shape":[4,8],"data_offsets":[0,128]},"bias":{"dtype":"F32","shape":[4],"data_offsets":[128,144]},"ids":{"dtype":"I32","shape":[4],"data_offsets":[144,160]}}' 160 <(
    cat both
    printf '\5\0\0\0\6\0\0\0\7\0\0\0\10\0\0\0'
)
"$WIDEOUT" update -q index --replace own --add $rows -o same >/dev/null
"$WIDEOUT" update -q index --replace two --weight-name a --bias-name b --add two -o same2 >/dev/null
check 'also of rows that replace others' cmp same same2
"$WIDEOUT" build -q --layer $layer --log $log "${tree[@]}" --weights none -o rowless >/dev/null
check 'beside a layer they are of that one' "$WIDEOUT" update -q rowless --layer $layer --weight-name weight --bias-name bias --add w.npy -o same

# ---- Rows without biases -----------------------------------------------------------------------------------------------
no_biases="warning: w.npy: the rows have no biases, those of the index have: the new classes get 0"
same 'new classes' "wideout: $no_biases; --bias-name NAME or --bias FILE gives others" "$("$WIDEOUT" update -q index --add w.npy -o same 2>&1 >/dev/null)"
same 'beside a layer, whose options name its own' "wideout: $no_biases" "$("$WIDEOUT" update -q rowless --layer $layer --add w.npy -o same 2>&1 >/dev/null)"
"$WIDEOUT" update -q index --add w.npy --bias b.npy -o same 2>err >/dev/null
same 'not where they have some' '' "$(cat err)"
st own '{"weight":{"dtype":"F32","shape":[4,8],"data_offsets":[0,128]},"ids":{"dtype":"I32","shape":[4],"data_offsets":[128,144]}}' 144 <(
    tensor $layer weight | tail -c +161 | head -c 128
    printf '\5\0\0\0\6\0\0\0\7\0\0\0\10\0\0\0'
)
same 'classes keep theirs' '  the new rows of classes come without biases: these keep theirs' "$("$WIDEOUT" update -q index --replace own -o same | sed -n 2p)"
same 'so that the layer is what it was' '["fine",0]' "$("$WIDEOUT" check same --layer $layer --json | jq -c '[.verdict, .changed]')"
same 'and as JSON' '[4,true] [4,false]' "$("$WIDEOUT" update -q index --replace own -o same --json | jq -c '[.replaced, .biases_kept]') \
$("$WIDEOUT" update -q index --replace two --weight-name a --bias-name b -o same --json | jq -c '[.replaced, .biases_kept]')"

# ---- A layer that changes ------------------------------------------------------------------------------------------
tensor $layer weight | npy w.npy '60, 8'
tensor $layer bias | npy b.npy '60,'
same 'a layer in arrays that is the index'"'"'s own' '["fine",0]' "$("$WIDEOUT" check index --layer w.npy --bias b.npy --json | jq -c '[.verdict, .changed]')"
"$WIDEOUT" build -q --layer w.npy --log $log "${tree[@]}" -o bare.index >/dev/null
same 'nothing has changed' '["fine",0,0,null,900,1]' \
    "$("$WIDEOUT" check index --layer $layer --json | jq -c '[.verdict, .changed, .added, .mean_change, .kept, .same_1]')"
same 'in words' '  fine: the rows are the index'"'"'s own' "$("$WIDEOUT" check index --layer $layer | tail -1)"
# Class 5's row becomes class 6's, twice as long.
"$WIDEOUT" info --json $layer >about
at=$(jq '.tensors[] | select(.name == "weight") | .offset' about)
{
    head -c $((at + 5 * 32)) $layer
    tail -c +$((at + 6 * 32 + 1)) $layer | head -c 32
    tail -c +$((at + 6 * 32 + 1)) $layer
} | tail -c +$((at + 1)) | head -c $((60 * 32)) >w
b=$(jq '.tensors[] | select(.name == "bias") | .offset' about)
tail -c +$((b + 1)) $layer | head -c 240 >>w
st new '{"weight":{"dtype":"F32","shape":[60,8],"data_offsets":[0,1920]},"bias":{"dtype":"F32","shape":[60],"data_offsets":[1920,2160]}}' 2160 w
same 'one row has' '["update",1]' "$("$WIDEOUT" check index --layer new --json | jq -c '[.verdict, .changed]')"
"$WIDEOUT" check -q index --layer new --changed changed >/dev/null
same 'it is written' '["layer",[5]]' "$("$WIDEOUT" info --json changed | jq -c '[.kind, [.tensors[] | select(.name == "ids") | .shape[0]*5]]')"
"$WIDEOUT" update -q index --replace changed -o updated >/dev/null
same 'and taken' '["fine",0]' "$("$WIDEOUT" check updated --layer new --json | jq -c '[.verdict, .changed]')"
check 'which is the layer that it belongs to' "$WIDEOUT" eval -q --index updated --layer new --log $test --no-timing
fails 'nothing to write' 0 'wideout: changed2: not written: no row differs' bash -c "'$WIDEOUT' check -q updated --layer new --changed changed2 >/dev/null"
check 'nothing was' [ ! -e changed2 ]
cp changed before
"$WIDEOUT" check -q updated --layer new --changed changed >report 2>said
same 'nor where rows of another time are, which no update shall take' \
    '1 wideout: changed: not written: no row differs, and what is there is not of this layer' "$? $(cat said)"
check 'they stay' cmp changed before
same 'and the report is there' '  fine: the rows are the index'"'"'s own' "$(tail -1 report)"

# ---- What is refused -----------------------------------------------------------------------------------------------
see_update="(see 'wideout update --help')"
fails 'nothing to do' 2 "wideout update: needs --add FILE, --replace FILE or --remove IDS $see_update" "$WIDEOUT" update index -o x
fails 'no index' 2 "wideout update: expected one index, found 0 $see_update" "$WIDEOUT" update --remove 1 -o x
fails 'no output' 2 "wideout update: needs -o FILE for the new index $see_update" "$WIDEOUT" update index --remove 1
fails 'biases of no layer' 2 "wideout update: --bias goes with --layer or --add $see_update" "$WIDEOUT" update index --replace two --bias b.npy -o x
for option in --weight-name --bias-name; do
    fails "$option of no layer" 2 "wideout update: --weight-name and --bias-name go with --layer, --add or --replace $see_update" \
        "$WIDEOUT" update index --remove 1 $option a -o x
done
fails 'biases that are not there' 1 'wideout: nonexistent: the file cannot be opened: No such file or directory' \
    "$WIDEOUT" update index --add w.npy --bias nonexistent -o x
fails 'the output is the input' 2 "wideout update: -o 'index' would replace what is read $see_update" "$WIDEOUT" update index --remove 1 -o index
fails 'or the rows' 2 "wideout update: -o '$rows' would replace what is read $see_update" "$WIDEOUT" update index --add $rows -o $rows
fails 'or the list' 2 "wideout update: -o 'gone' would replace what is read $see_update" "$WIDEOUT" update index --remove 1 --remove gone -o gone
for option in --add --replace; do
    fails "$option twice" 2 "wideout update: $option is given twice $see_update" "$WIDEOUT" update index $option $rows $option other -o x
done
fails 'a class that is none' 1 'wideout: --remove: class 60 is not below the 60 of the index' "$WIDEOUT" update index --remove 60 -o x
fails 'a class that is gone' 1 'wideout: --remove: class 7 was removed before' "$WIDEOUT" update more --remove 7 -o x
fails 'rows without ids' 1 "wideout: $rows: has no tensor 'ids': rows that replace others come with 'ids' (4) in I32 or I64, their classes" \
    "$WIDEOUT" update index --replace $rows -o x
st few '{"weight":{"dtype":"F32","shape":[2,8],"data_offsets":[0,64]},"ids":{"dtype":"I32","shape":[1],"data_offsets":[64,68]}}' 68
fails 'fewer ids than rows' 1 "wideout: few: its 'ids' are something else: rows that replace others come with 'ids' (2) in I32 or I64, their classes" \
    "$WIDEOUT" update index --replace few -o x
st twice '{"weight":{"dtype":"F32","shape":[2,8],"data_offsets":[0,64]},"ids":{"dtype":"I64","shape":[2],"data_offsets":[64,80]}}' 80
fails 'a class twice' 1 'wideout: --replace: class 0 is named twice' "$WIDEOUT" update index --replace twice -o x
st negative '{"ids":{"dtype":"I32","shape":[1],"data_offsets":[0,4]},"weight":{"dtype":"F32","shape":[1,8],"data_offsets":[4,36]}}' 36 <(
    printf '\377\377\377\377'
    head -c 32 /dev/zero
)
fails 'a class below 0' 1 "wideout: negative: 'ids' has -1 at place 0, which is no class" "$WIDEOUT" update index --replace negative -o x
st narrow '{"weight":{"dtype":"F32","shape":[2,7],"data_offsets":[0,56]}}' 56
fails 'rows of another length' 1 'wideout: --add: the rows have 7 numbers each, those of the index 8' "$WIDEOUT" update index --add narrow -o x
"$WIDEOUT" shard -q --layer $rows -n 2 -o half >/dev/null
fails 'rows that are a shard' 1 'wideout: --add: the rows are shard 2 of 2 of a layer, whose classes have numbers there: expected rows that are no shard' \
    "$WIDEOUT" update index --add half-00002-of-00002.safetensors -o x
"$WIDEOUT" shard -q --layer $layer -n 1 -o one >/dev/null
check 'a shard of one is the layer' "$WIDEOUT" check -q index --layer one-00001-of-00001.safetensors
"$WIDEOUT" data synthetic -q -m 200 -d 8 -n 100 -o others >/dev/null
"$WIDEOUT" shard -q --layer others/layer.safetensors -n 2 -o others/half >/dev/null
fails 'a shard is not held against an index' 1 \
    'wideout: others/half-00001-of-00002.safetensors: the layer is shard 1 of 2, whose rows are not those of the index: expected a whole one' \
    "$WIDEOUT" check index --layer others/half-00001-of-00002.safetensors
"$WIDEOUT" build -q --layer $layer --log $log "${tree[@]}" --keep 0 -o bare >/dev/null
sentence="the index keeps no training queries, which say what cells rows belong into: it was built with keep 0, or by an older version; build it anew: 'wideout build' keeps some unless --keep is 0"
fails 'an index that keeps no queries' 1 "wideout: bare: $sentence" "$WIDEOUT" update bare --add $rows -o x
golden=$OLDPWD/tests/golden/index-evidence-tree.safetensors
"$WIDEOUT" data synthetic -q -m 4 -d 16 -n 100 -o g >/dev/null
fails 'nor does one of an older version' 1 "wideout: $golden: $sentence" "$WIDEOUT" update "$golden" --add g/layer.safetensors -o x
check 'but its classes can go' "$WIDEOUT" update -q "$golden" --remove 3 -o x
rm x
same 'check without queries' '  the index keeps no training queries: what its cells hold cannot be told' "$("$WIDEOUT" check bare --layer $layer | sed -n 2p)"
see_check="(see 'wideout check --help')"
fails 'check without a layer' 2 "wideout check: needs --layer FILE: the layer as it is now $see_check" "$WIDEOUT" check index
fails 'check over its input' 2 "wideout check: -o 'new' would replace what is read $see_check" "$WIDEOUT" check index --layer new --changed new
fails 'another layer' 1 "wideout: g/layer.safetensors: the layer has 16 dimensions, the index 8" "$WIDEOUT" check index --layer g/layer.safetensors
fails 'biases that were left out' 1 'wideout: w.npy: the layer has no bias, the index has: was that left out?; --bias-name NAME or --bias FILE gives one' \
    "$WIDEOUT" check index --layer w.npy --changed x
check 'an index without biases needs none' "$WIDEOUT" check -q bare.index --layer w.npy
fails 'fewer classes' 1 "wideout: $rows: the layer has 4 classes, fewer than the 60 of the index" "$WIDEOUT" check index --layer $rows
check 'no file is left behind' [ ! -e x ]
finish
