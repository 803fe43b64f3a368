#!/bin/bash
# Other people's models: arrays and tensors as they have them, names, and what is likely wrong where they do not fit.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cd "$scratch" || exit 1
export OMP_WAIT_POLICY=passive

tensor() { # FILE NAME: its bytes
    local at
    at=$("$WIDEOUT" info --json "$1" | jq -r --arg name "$2" '.tensors[] | select(.name == $name) | "\(.offset) \(.bytes)"')
    tail -c +$((${at% *} + 1)) "$1" | head -c "${at#* }"
}
npy() { # TYPE SHAPE: the bytes come in, an .npy file goes out
    local header="{'descr': '$1', 'fortran_order': False, 'shape': ($2), }"
    printf '\x93NUMPY\x01\x00'
    printf '%b' "$(printf '\\x%02x\\x%02x' $((${#header} + 1 & 255)) $((${#header} + 1 >> 8)))"
    printf '%s\n' "$header"
    cat
}
st() { # HEADER: the bytes of its tensors come in, a safetensors file goes out
    printf '%b' "$(printf '\\x%02x\\x%02x\\0\\0\\0\\0\\0\\0' $((${#1} & 255)) $((${#1} >> 8)))"
    printf '%s' "$1"
    cat
}
i64() { # NUMBER...: as bytes, those below 2^16 and -1, -100
    local n
    for n; do
        case $n in
        -1) printf '\xff\xff\xff\xff\xff\xff\xff\xff' ;;
        -100) printf '\x9c\xff\xff\xff\xff\xff\xff\xff' ;;
        *) printf '%b' "$(printf '\\x%02x\\x%02x\\0\\0\\0\\0\\0\\0' $((n & 255)) $((n >> 8)))" ;;
        esac
    done
}
build() { "$WIDEOUT" build -q --method popular "$@"; }

"$WIDEOUT" data synthetic -q -m 60 -d 8 -n 300 -o s >/dev/null
tensor s/layer.safetensors weight | npy '<f4' '60, 8' >w.npy
tensor s/layer.safetensors bias | npy '<f4' '60,' >b.npy
tensor s/test.log.safetensors queries | npy '<f4' '30, 8' >q.npy
tensor s/train.log.safetensors queries | npy '<f4' '300, 8' >train.npy

# ---- Queries and labels as arrays --------------------------------------------------------------------------------
"$WIDEOUT" build -q --layer s/layer.safetensors --method full -o full >/dev/null
mapfile -t first < <("$WIDEOUT" predict --index full -k 1 q.npy | cut -f 1)
i64 "${first[@]}" | npy '<i8' '30,' >y.npy
"$WIDEOUT" eval --index full --log q.npy --labels y.npy --no-timing --json >eval.json
same 'eval: the labels are taken' '[30,0,1]' "$(jq -c '[.n, .without_label, .p_at_1]' eval.json)"
"$WIDEOUT" eval --index full --log q.npy --no-timing --json >eval.json
same 'eval: without them there are none' '[30,30,null]' "$(jq -c '[.n, .without_label, .p_at_1]' eval.json)"
first[0]=-1 first[1]=-100
i64 "${first[@]}" | npy '<i8' '30,' >y.npy
same 'eval: -1 and -100 stand for no label' 2 "$("$WIDEOUT" eval --index full --log q.npy --labels y.npy --no-timing --json | jq .without_label)"
first[0]=0 first[1]=0
{ for y in "${first[@]}"; do i64 "$y" -1 $((59 - y)); done; } | npy '<i8' '30, 3' >y3.npy
check 'eval: a table has several each' jq -e '.n == 30 and .p_at_5 > 0.2' <("$WIDEOUT" eval --index full --log q.npy --labels y3.npy --no-timing --json)
"$WIDEOUT" build -q --layer w.npy --bias b.npy --log train.npy --router tree --source top -o a >/dev/null
"$WIDEOUT" build -q --layer s/layer.safetensors --log s/train.log.safetensors --router tree --source top -o b >/dev/null
same 'build: from arrays the same cells as from our files' "$("$WIDEOUT" info --json b | jq '.metadata["xxh3.cells.ids"]')" \
    "$("$WIDEOUT" info --json a | jq '.metadata["xxh3.cells.ids"]')"
build --layer w.npy --log q.npy --labels y.npy --popular 3 -o popular --json >popular.json
same 'build: labels of an array' 3 "$(jq .entries popular.json)"
"$WIDEOUT" build -q --layer w.npy --log train.npy --tune-log q.npy --tune-labels y.npy --target 0.1 --max-time 0.1s -o tuned --json >tuned.json
same 'build: and of the queries that are judged' '[0.1,28]' "$(jq -c '[.tuning.target, .tuning.labelled]' tuned.json)"
fails 'labels that are too few' 1 'wideout: y.npy: the labels have 30 rows, expected 300: one for each query' build --layer w.npy --log train.npy --labels y.npy -o bad
fails 'labels that are no numbers of classes' 1 'wideout: b.npy: the labels are of type F32, expected I32 or I64' \
    build --layer w.npy --log w.npy --labels b.npy -o bad
{ i64 "${first[@]:0:29}"; printf '\xfd\xff\xff\xff\xff\xff\xff\xff'; } | npy '<i8' '30,' >negative.npy
fails 'a negative label' 1 'wideout: negative.npy: the label of query 29 is -3, expected 0 to 2147483647, or -1 for none' \
    build --layer w.npy --log q.npy --labels negative.npy -o bad
# A flag for each of the 60 classes is no list of the classes 0 and 1.
{ for y in {0..29}; do for c in {0..59}; do echo $((c == y)); done; done; } | { mapfile -t flags; i64 "${flags[@]}"; } >flags
npy '<i8' '30, 60' <flags >flags.npy
as_flags='the 60 columns of labels are all 0 or 1, as flags are: expected the numbers of the classes, or a CSR matrix of '"SciPy's"
fails 'labels as flags' 1 "wideout: flags.npy: $as_flags" "$WIDEOUT" eval --index full --log q.npy --labels flags.npy --no-timing
python3 -c 'import zipfile; zipfile.ZipFile("flags.npz", "w").write("flags.npy", "arr_0.npy")'
fails 'labels as flags, in an archive' 1 "wideout: flags.npz: $as_flags" \
    "$WIDEOUT" eval --index full --log q.npy --labels flags.npz --no-timing
fails 'labels twice' 1 'wideout: y.npy: the log has labels of its own' build --layer w.npy --log s/test.log.safetensors --labels y.npy -o bad
fails 'labels of nothing' 2 "wideout build: --labels goes with --log: the queries (see 'wideout build --help')" \
    "$WIDEOUT" build --layer w.npy --method full --labels y.npy -o bad
fails 'and for tuning' 2 "wideout build: --tune-labels goes with --tune-log (see 'wideout build --help')" \
    "$WIDEOUT" build --layer w.npy --log q.npy --tune-labels y.npy -o bad

# ---- A log of their own ------------------------------------------------------------------------------------------
{ tensor s/test.log.safetensors queries; i64 "${first[@]}"; } |
    st '{"queries":{"dtype":"F32","shape":[30,8],"data_offsets":[0,960]},"labels":{"dtype":"I64","shape":[30],"data_offsets":[960,1200]}}' >flat.log
i64 "${first[@]}" | npy '<i8' '30,' >y.npy
same 'a tensor of labels, one each' "$("$WIDEOUT" eval --index full --log q.npy --labels y.npy --no-timing --json | jq -c '[.without_label, .p_at_5]')" \
    "$("$WIDEOUT" eval --index full --log flat.log --no-timing --json | jq -c '[.without_label, .p_at_5]')"
# 1.5, eight times
printf '\0\0\0\0\0\0\xf8\x3f%.0s' 1 2 3 4 5 6 7 8 | st '{"queries":{"dtype":"F64","shape":[1,8],"data_offsets":[0,64]}}' >f64.log
printf '\0\0\xc0\x3f%.0s' 1 2 3 4 5 6 7 8 | npy '<f4' '1, 8' >f32.npy
same 'queries in F64' "$("$WIDEOUT" predict --index full f32.npy)" "$("$WIDEOUT" predict --index full f64.log)"
printf '\0\0\0\0\0\0\xf8\x3f%.0s' 1 2 3 4 5 6 7 8 | npy '<f8' '1, 8' >f64.npy
same 'and as an array' 1 "$("$WIDEOUT" eval --index full --log f64.npy --no-timing --json | jq .n)"
{ tail -c 64 f64.log; i64 1 2; } | st '{"queries":{"dtype":"F64","shape":[1,8],"data_offsets":[0,64]},"labels":{"dtype":"I64","shape":[2],"data_offsets":[64,80]}}' >bad.log
fails 'labels of other queries' 1 'wideout: bad.log: the labels have 2 rows, expected 1: one for each query' "$WIDEOUT" eval --index full --log bad.log

# ---- Names -------------------------------------------------------------------------------------------------------
seq -f 'class %g' 0 59 >names.txt
"$WIDEOUT" build -q --layer w.npy --bias b.npy --method full --names names.txt -o named --json >named.json
same 'build --names: the index has them' true "$(jq .names named.json)"
same 'and answers with them' "$("$WIDEOUT" predict --index full -k 1 q.npy | sed 's/^/class /' | cut -f 1)" "$("$WIDEOUT" predict --index named -k 1 q.npy | cut -f 1)"
same 'predict --names' "$("$WIDEOUT" predict --index full q.npy | cut -f 1 | sed 's/^/class /')" "$("$WIDEOUT" predict --index full --names names.txt q.npy | cut -f 1)"
same 'and names in masks' "$("$WIDEOUT" predict --index full --forbid 0,1,2,3 q.npy | cut -f 2)" \
    "$(head -4 names.txt >forbid; "$WIDEOUT" predict --index full --names names.txt --forbid forbid q.npy | cut -f 2)"
head -59 names.txt >few.txt
fails 'too few names' 1 'wideout: few.txt: has 59 names, one a line, but there are 60 classes' build --layer w.npy --log q.npy --names few.txt -o bad
fails 'for predict too' 1 'wideout: few.txt: has 59 names, one a line, but there are 60 classes' "$WIDEOUT" predict --index full --names few.txt q.npy
fails 'no names' 1 'wideout: none: the file cannot be opened: No such file or directory' "$WIDEOUT" predict --index full --names none q.npy
fails 'names are not written over' 2 "wideout build: -o 'names.txt' would replace what is read (see 'wideout build --help')" \
    build --layer w.npy --log q.npy --names names.txt -o names.txt

# ---- The bias ----------------------------------------------------------------------------------------------------
check 'a bias is told' grep -q "^  the layer: weight 'weight', with a bias, 'bias'$" <("$WIDEOUT" build -q --layer s/layer.safetensors --method full -o o)
check 'or none' grep -q '^  the layer: without a bias$' <("$WIDEOUT" build -q --layer w.npy --method full -o o)
same 'in JSON' '[{"weight":null,"bias":null,"has_bias":true}]' "$("$WIDEOUT" build -q --layer w.npy --bias b.npy --method full -o o --json | jq -c '[.layer]')"
{ tensor s/layer.safetensors weight; tensor s/layer.safetensors bias; } |
    st '{"weight":{"dtype":"F32","shape":[60,8],"data_offsets":[0,1920]},"out_bias":{"dtype":"F32","shape":[60],"data_offsets":[1920,2160]}}' >model
"$WIDEOUT" build -q --layer model --method full -o o >/dev/null 2>err
same 'a bias by another name is offered' "wideout: warning: model: the layer has no bias of its weight's name, but there is 'out_bias' of as many numbers: --bias-name takes it" "$(cat err)"
"$WIDEOUT" build -q --layer model --bias-name out_bias --method full -o o >/dev/null 2>err
same 'and taken' '' "$(cat err)"
"$WIDEOUT" build -q --layer w.npy --bias b.npy --method full --weights none -o norows >/dev/null
"$WIDEOUT" predict --index norows --layer w.npy q.npy 2>err >/dev/null
check 'a forgotten bias is named' grep -q 'expected [0-9a-f]*; it has no bias: was that left out?; --bias-name NAME or --bias FILE gives one$' err

# ---- What is likely wrong ----------------------------------------------------------------------------------------
fails 'layer and log swapped: the layer' 1 "wideout: s/test.log.safetensors: the file is of kind 'log': expected a layer, a network, an index or a model; it is a log: are two files swapped?" \
    build --layer s/test.log.safetensors --log s/layer.safetensors -o bad
fails 'layer and log swapped: the log' 1 "wideout: s/layer.safetensors: the file is no log: it has no tensor 'queries'; it is a layer: are two files swapped?" \
    build --layer w.npy --log s/layer.safetensors -o bad
tensor s/layer.safetensors weight | npy '<f4' '8, 60' >turned.npy
tensor s/test.log.safetensors queries | npy '<f4' '8, 30' >turned-q.npy
fails 'a transposed layer' 1 "wideout: q.npy: the log's queries have 8 numbers, the layer's rows 60: is the layer transposed? Its rows are classes" \
    build --layer turned.npy --log q.npy -o bad
tensor s/layer.safetensors bias | npy '<f4' '60,' >b60.npy
fails 'a transposed layer with its biases' 1 'wideout: b60.npy: there are 60 biases for 8 classes of 60 numbers: is the layer transposed? Its rows are classes' \
    build --layer turned.npy --bias b60.npy --log q.npy -o bad
fails 'transposed queries' 1 "wideout: turned-q.npy: the log's queries have 30 numbers, the layer's rows 8: is the log transposed? Its rows are queries" \
    build --layer w.npy --log turned-q.npy -o bad
fails 'transposed queries with labels' 1 \
    'wideout: turned-q.npy: 8 queries of 30 numbers, and there are labels of 30: is the log transposed? Its rows are queries' \
    build --layer w.npy --log turned-q.npy --labels y.npy -o bad
fails 'predict: transposed queries' 1 \
    'wideout: turned-q.npy: has 2 dimensions, the last of 30, expected (n, 8) or (8): is it transposed? Its rows are queries' \
    "$WIDEOUT" predict --index full turned-q.npy
one=("${first[@]}")
one[3]=60
i64 "${one[@]}" | npy '<i8' '30,' >one.npy
fails 'labels from 1' 1 'wideout: one.npy: query 3 has label 60, the layer 60 classes: do labels count from 1? Here they count from 0' \
    build --layer w.npy --log q.npy --labels one.npy -o bad
fails 'eval: labels beyond m' 1 'wideout: one.npy: query 3 has label 60, the layer 60 classes: do labels count from 1? Here they count from 0' \
    "$WIDEOUT" eval --index full --log q.npy --labels one.npy
one[3]=1000
i64 "${one[@]}" | npy '<i8' '30,' >one.npy
fails 'and those that are tuned on' 1 'wideout: one.npy: the tune log: query 3 has label 1000, the layer 60 classes' \
    "$WIDEOUT" build --layer w.npy --log train.npy --tune-log q.npy --tune-labels one.npy --target 0.1 -o bad
# Labels that are all one too large, and within the layer.
mapfile -t shifted < <("$WIDEOUT" predict --index full -k 1 train.npy | awk '{print ($1 + 1) % 60}')
i64 "${shifted[@]}" | npy '<i8' '300,' >shifted.npy
unlikely="on 300 labelled queries FULL's best answer is never a label: are they labels of this layer, and do they count from 0?"
"$WIDEOUT" eval --index full --log train.npy --labels shifted.npy --no-timing >/dev/null 2>err
same 'labels that FULL never answers: eval' "wideout: warning: train.npy: $unlikely" "$(cat err)"
for _ in 1 2 3 4; do tensor s/train.log.safetensors queries; done | npy '<f4' '1200, 8' >often.npy
i64 "${shifted[@]}" "${shifted[@]}" "${shifted[@]}" "${shifted[@]}" | npy '<i8' '1200,' >often-y.npy
"$WIDEOUT" build --layer w.npy --bias b.npy --log often.npy --labels often-y.npy --method popular -o bad >/dev/null 2>err
check 'an index that is built as it is named' grep -qE "^wideout: warning: often.npy: on [0-9]+ labelled queries FULL's best answer is never a label: " err
"$WIDEOUT" build --layer w.npy --bias b.npy --log often.npy --labels often-y.npy -t 1 --max-time 0.1s -q -o bad >/dev/null 2>err
check 'the tuner, before it searches' grep -qxF "wideout: warning: often.npy: ${unlikely/300/120}" err
# Labels of the layer in another order than their queries: FULL is right now and then, as who always says the same.
mapfile -t right < <("$WIDEOUT" predict --index full -k 1 train.npy | cut -f 1)
moved=("${right[@]:7}" "${right[@]:0:7}")
i64 "${moved[@]}" | npy '<i8' '300,' >moved.npy
others="FULL's best answer is a label for [0-9.]*%, and the most frequent label alone for [0-9.]*%: are these the labels of these queries, in their order?"
"$WIDEOUT" eval --index full --log train.npy --labels moved.npy --no-timing >/dev/null 2>err
check 'labels of other queries: eval' grep -qx "wideout: warning: train.npy: on 300 labelled queries $others" err
i64 "${moved[@]}" "${moved[@]}" "${moved[@]}" "${moved[@]}" | npy '<i8' '1200,' >often-y.npy
"$WIDEOUT" build --layer w.npy --bias b.npy --log often.npy --labels often-y.npy -t 1 --max-time 0.1s -o bad >/dev/null 2>err
check 'the tuner, of those it judged by' grep -qx "wideout: warning: often.npy: on 120 labelled queries $others" err
"$WIDEOUT" eval --index full --log q.npy --labels y.npy --no-timing >/dev/null 2>err
same 'not where it is one' '' "$(cat err)"
rm bad
for file in s/layer.safetensors w.npy; do
    gzip -c "$file" >packed.gz
    fails "gzip is named: a layer, $file" 1 'wideout: packed.gz: the file is compressed with gzip: unpack it first (gunzip), only text is read so' \
        build --layer packed.gz --log q.npy -o bad
done
gzip -c s/test.log.safetensors >packed.gz
fails 'gzip is named: a log' 1 'wideout: packed.gz: the file is compressed with gzip: unpack it first (gunzip), only text is read so' \
    build --layer w.npy --log packed.gz -o bad
fails 'gzip is named: an index' 1 'wideout: packed.gz: the file is compressed with gzip: unpack it first (gunzip), only text is read so' \
    "$WIDEOUT" predict --index packed.gz q.npy
fails 'gzip is named: queries' 1 'wideout: packed.gz: is compressed with gzip: unpack it first (gunzip), or name the network that reads it as text with --net FILE' \
    "$WIDEOUT" predict --index full packed.gz
for file in s/test.log.safetensors s/layer.safetensors w.npy; do
    gzip -c "$file" >packed.gz
    fails "gzip is named: info of $file" 1 'wideout: packed.gz: is compressed with gzip, and no text inside: unpack it first with gzip -d' \
        "$WIDEOUT" info packed.gz
done
printf '1 2 2\n0,2 1:1\n' | gzip >packed.gz
fails 'but packed text is read, and what is wrong with it said' 1 'wideout: packed.gz: line 2: label 2 is not below the 2 labels of the header' \
    "$WIDEOUT" info packed.gz
check 'nothing was written' test ! -e bad

# ---- What an attacker found --------------------------------------------------------------------------------------
check 'data draw: an array' "$WIDEOUT" data draw q.npy -n 5 -o drawn
same 'its queries' '[5,8]' "$("$WIDEOUT" info --json drawn | jq -c '.tensors[0].shape')"
(ulimit -f 1; "$WIDEOUT" data draw q.npy -n 30 -o limited >out 2>err)
same 'a limit on the size of files is a sentence' '1 1' "$? $(grep -c ': File too large$' err)"
check 'and leaves nothing behind' test ! -e limited
for ((i = 0; i < 60; i++)); do printf 'x\0%d\n' $i; done >nul.txt
fails 'names with NUL bytes' 1 'wideout: nul.txt: line 1 has a NUL byte, which no name has' \
    build --layer w.npy --log train.npy --names nul.txt -o bad

finish
