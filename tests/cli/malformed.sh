#!/bin/bash
# Files as strangers might send them, each with the one sentence that it must get, exit code 1 and nothing on stdout.
# 'malformed.sh --make DIR' leaves the files in DIR instead (seeds for fuzzing).
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
dir=$scratch keep=
if [ "${1:-}" = --make ]; then
    keep=1 dir=$2
    mkdir -p "$dir"
fi

# Little-endian u64 of $1.
u64() {
    local value=$1 i
    for i in 0 1 2 3 4 5 6 7; do printf '%b' "\\x$(printf %02x $(((value >> (8 * i)) & 255)))"; done
}

judge() { # FILE SENTENCE [COMMAND...]
    [ -z "$keep" ] || return 0
    local name=$1 sentence=$2
    shift 2
    [ $# -gt 0 ] || set -- info
    fails "$name" 1 "wideout: $dir/$name: $sentence" "$WIDEOUT" "$@" "$dir/$name"
}

raw() { # NAME SENTENCE BYTES(printf %b)
    printf '%b' "$3" >"$dir/$1"
    judge "$1" "$2"
}

st() { # NAME SENTENCE HEADER DATA_BYTES: a safetensors file with the right header length
    { u64 "$(printf %s "$3" | wc -c)"; printf %s "$3"; head -c "$4" /dev/zero; } >"$dir/$1"
    judge "$1" "$2"
}

t() { # a tensor entry: NAME DTYPE SHAPE BEGIN END
    printf '"%s":{"dtype":"%s","shape":%s,"data_offsets":[%s,%s]}' "$@"
}

npy() { # NAME SENTENCE VERSION HEADER DATA_BYTES
    local n
    n=$(printf %s "$4" | wc -c)
    {
        printf '\x93NUMPY%b\x00' "\\x0$3"
        if [ "$3" = 1 ]; then u64 "$n" | head -c 2; else u64 "$n" | head -c 4; fi
        printf %s "$4"
        head -c "$5" /dev/zero
    } >"$dir/$1"
    judge "$1" "$2"
}

xc() { # NAME SENTENCE TEXT(printf %b) [OPTION...]
    local name=$1 sentence=$2
    printf '%b' "$3" >"$dir/$name"
    shift 3
    judge "$name" "$sentence" data xc "$@"
}

# ---- Any file ----------------------------------------------------------------------------------------------------
raw empty 'the file is empty' ''
raw zip 'the file is a zip archive (.npz or PyTorch .pt): save the arrays as .npy or as safetensors' 'PK\x03\x04rest'
raw xz 'the file is compressed with xz: unpack it first (unxz)' '\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4\x46'
raw zstd 'the file is compressed with zstd: unpack it first (unzstd)' '\x28\xb5\x2f\xfd\x24\x02\x11\x00'
raw bzip2 'the file is compressed with bzip2: unpack it first (bunzip2)' 'BZh91AY&SY\x00\x00'
raw pickle 'the file is a pickle, which could run code: save as safetensors' '\x80\x02}q\x01.'
if [ -z "$keep" ]; then
    mkdir "$dir/folder"
    judge folder 'the path is a directory, expected a file'
    mkfifo "$dir/fifo"
    judge fifo 'the path is not a plain file'
    judge absent 'the file cannot be opened: No such file or directory'
    ln -s loop "$dir/loop"
    judge loop 'the file cannot be opened: Too many levels of symbolic links'
fi

# ---- safetensors: the frame --------------------------------------------------------------------------------------
raw st-1-byte 'the file has 1 bytes, a safetensors file begins with 8 bytes of header length' '\x00'
raw st-7-bytes 'the file has 7 bytes, a safetensors file begins with 8 bytes of header length' '\x40\x00\x00\x00\x00\x00\x00'
raw st-8-bytes 'the header length 64 is more than the 0 bytes that follow' '\x40\x00\x00\x00\x00\x00\x00\x00'
raw st-no-header 'the header length is 0' '\x00\x00\x00\x00\x00\x00\x00\x00'
raw st-header-past-end 'the header length 64 is more than the 2 bytes that follow' '\x40\x00\x00\x00\x00\x00\x00\x00{}'
raw st-header-100mb 'the header length 100000001 is over the limit of 100000000 bytes' '\x01\xe1\xf5\x05\x00\x00\x00\x00{}'
raw st-header-huge 'the header length 18446744073709551615 is over the limit of 100000000 bytes' \
    '\xff\xff\xff\xff\xff\xff\xff\xff{}'
raw st-not-brace "the header begins with '[', expected '{'" '\x02\x00\x00\x00\x00\x00\x00\x00[]'
raw st-space-first "the header begins with ' ', expected '{'" '\x03\x00\x00\x00\x00\x00\x00\x00 {}'
st st-json-cut "header: line 1: string or '}' expected near end of file" '{' 0
st st-json-garbage "header: line 1: end of file expected near 'x'" '{}x' 0
st st-json-comma "header: line 1: string or '}' expected near ','" '{,}' 0
st st-json-number "header: line 1: too big integer near '99999999999999999999'" \
    '{"a":{"shape":[99999999999999999999]}}' 0
st st-json-utf8 "header: line 1: unable to decode byte 0xff near '\"'" "$(printf '{"\xff":1}')" 0
st st-json-nul 'header: line 1: NUL byte in object key not supported near '"'"'"\u0000"'"'" '{"\u0000":1}' 0
st st-duplicate "header: line 1: duplicate object key near '\"a\"'" "{$(t a U8 '[1]' 0 1),$(t a U8 '[1]' 1 2)}" 2
st st-duplicate-key "header: line 1: duplicate object key near '\"dtype\"'" '{"a":{"dtype":"F32","dtype":"U8"}}' 0
{ u64 200001; printf '{"a":'; head -c 199996 /dev/zero | tr '\0' '['; } >"$dir/st-nested"
judge st-nested 'header: its 200001 bytes hold more lists, objects and numbers than a model'"'"'s would'
{ u64 50000; printf '{"a":'; head -c 4000 /dev/zero | tr '\0' '['; head -c 45995 /dev/zero | tr '\0' ' '; } >"$dir/st-deep"
judge st-deep 'header: line 1: maximum parsing depth reached near '"'['"

# ---- safetensors: tensors ----------------------------------------------------------------------------------------
st st-entry "tensor 'a': its entry is a number, expected an object" '{"a":5}' 0
st st-no-dtype "tensor 'a': dtype is missing, expected a string" '{"a":{"shape":[1],"data_offsets":[0,4]}}' 4
st st-dtype-number "tensor 'a': dtype is a number, expected a string" '{"a":{"dtype":4,"shape":[1],"data_offsets":[0,4]}}' 4
st st-dtype "tensor 'a': dtype 'F33' is not one that wideout knows" "{$(t a F33 '[1]' 0 4)}" 4
st st-no-shape "tensor 'a': shape is missing, expected a list" '{"a":{"dtype":"F32","data_offsets":[0,4]}}' 4
st st-shape-number "tensor 'a': shape is a number, expected a list" "{$(t a F32 1 0 4)}" 4
st st-shape-negative "tensor 'a': shape[1] is -2, expected 0 or more" "{$(t a F32 '[1,-2]' 0 4)}" 4
st st-shape-fraction "tensor 'a': shape[0] is 1.5, expected a whole number" "{$(t a F32 '[1.5]' 0 4)}" 4
st st-shape-string "tensor 'a': shape[0] is a string, expected a whole number" "{$(t a F32 '["1"]' 0 4)}" 4
st st-shape-9 "tensor 'a': shape has 9 dimensions, at most 8 are supported" "{$(t a F32 '[1,1,1,1,1,1,1,1,1]' 0 4)}" 4
st st-shape-overflow "tensor 'a': the product of its shape overflows at shape[1] = 4294967296" \
    "{$(t a F32 '[4294967296,4294967296]' 0 4)}" 4
st st-bytes-overflow "tensor 'a': 4611686018427387904 elements of F32 overflow" "{$(t a F32 '[4611686018427387904]' 0 4)}" 4
st st-offsets-missing "tensor 'a': data_offsets is missing, expected a list of two" '{"a":{"dtype":"F32","shape":[1]}}' 4
st st-offsets-three "tensor 'a': data_offsets has 3 entries, expected two" \
    '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}' 4
st st-offsets-negative "tensor 'a': data_offsets[0] is -4, expected 0 or more" "{$(t a F32 '[1]' -4 0)}" 4
st st-offsets-fraction "tensor 'a': data_offsets[1] is 4.5, expected a whole number" "{$(t a F32 '[1]' 0 4.5)}" 4
st st-offsets-backwards "tensor 'a': data_offsets go backwards, from 4 to 0" "{$(t a F32 '[1]' 4 0)}" 4
st st-past-end "tensor 'a': data ends at byte 8, but the file holds 4 bytes of data" "{$(t a F32 '[2]' 0 8)}" 4
st st-wrong-size "tensor 'a': data_offsets span 8 bytes, but its shape and dtype F32 take 4" "{$(t a F32 '[1]' 0 8)}" 8
st st-size-of-half "tensor 'a': data_offsets span 4 bytes, but its shape and dtype F16 take 2" "{$(t a F16 '[1]' 0 4)}" 4
st st-overlap "tensor 'b': it begins at byte 2 of the data, inside the tensor before it" \
    "{$(t a U8 '[4]' 0 4),$(t b U8 '[4]' 2 6)}" 6
st st-same-bytes "tensor 'b': it begins at byte 0 of the data, inside the tensor before it" \
    "{$(t a U8 '[4]' 0 4),$(t b U8 '[4]' 0 4)}" 4
st st-hole "tensor 'b': it begins at byte 6 of the data, leaving a hole of 2 bytes" "{$(t a U8 '[4]' 0 4),$(t b U8 '[2]' 6 8)}" 8
st st-hole-first "tensor 'a': it begins at byte 2 of the data, leaving a hole of 2 bytes" "{$(t a U8 '[2]' 2 4)}" 4
st st-trailing '3 bytes follow the last tensor, at byte 62' "{$(t a U8 '[1]' 0 1)}" 4
st st-only-data '4 bytes follow the last tensor, at byte 10' '{}' 4
st st-control-name "tensor 'a?[31m?b': dtype 'X' is not one that wideout knows" '{"a\u001b[31m\nb":{"dtype":"X"}}' 0
st st-metadata-list '__metadata__ is a list, expected an object' '{"__metadata__":[]}' 0
st st-metadata-number "__metadata__: the value of 'n' is a number, expected a string" '{"__metadata__":{"n":1}}' 0
st st-no-checksum 'the header of a wideout file has no checksum in its place' '{"__metadata__":{"wideout.format":"1","kind":"layer"}}' 0
st st-other-format "the file was written in format '2', this version of wideout reads format 1" \
    '{"__metadata__":{"wideout.format":"2","xxh3.header":"fedcba9876543210"}}' 0
st st-no-kind 'the metadata of a wideout file have no kind' '{"__metadata__":{"wideout.format":"1","xxh3.header":"ac28cda26c3a6065"}}' 0
st st-damaged-format "the header was changed: its checksum is 682f7304df21f853, the file says 'fedcba9876543210'" \
    '{"__metadata__":{"wideout.formaz":"1","kind":"layer","xxh3.header":"fedcba9876543210"}}' 0
st st-spaced-checksum 'the header of a wideout file has no checksum in its place' \
    '{"__metadata__":{"wideout.format":"1","kind":"layer","xxh3.header": "fedcba9876543210"}}' 0
st st-bad-checksum "the header was changed: its checksum is ac28cda26c3a6065, the file says 'fedcba9876543210'" \
    '{"__metadata__":{"wideout.format":"1","xxh3.header":"fedcba9876543210"}}' 0

# ---- safetensors: one of ours, damaged ---------------------------------------------------------------------------
damage() { # NAME SENTENCE OFFSET BYTE: the golden file with one byte changed
    cp tests/golden/layer-v1.safetensors "$dir/$1"
    chmod u+w "$dir/$1"
    printf '%b' "$4" | dd of="$dir/$1" bs=1 seek="$3" conv=notrunc status=none
    judge "$1" "$2"
}
damage st-flipped-data "tensor 'weight' (140 bytes at byte 1664) was changed: its checksum is 0d53ea1ac7497fa0, the file says 1c3247b9cfb91f6d" 1700 '\xee'
damage st-flipped-shape "the header was changed: its checksum is 75973703fc5eae81, the file says '90ee849436c6576e'" 692 '9'
head -c 2000 tests/golden/layer-v1.safetensors >"$dir/st-truncated"
judge st-truncated "tensor 'padding.3': data ends at byte 384, but the file holds 336 bytes of data"

# ---- Logs --------------------------------------------------------------------------------------------------------
log() { # NAME SENTENCE INDPTR INDICES: a log of two queries of two floats; numbers as int64
    local h data
    h="{$(t queries F32 '[2,2]' 0 16),$(t labels.indptr I64 "[$(wc -w <<<"$3")]" 16 $((16 + 8 * $(wc -w <<<"$3"))))"
    data=$((16 + 8 * $(wc -w <<<"$3")))
    h="$h,$(t labels.indices I64 "[$(wc -w <<<"$4")]" "$data" $((data + 8 * $(wc -w <<<"$4"))))}"
    { u64 ${#h}; printf %s "$h"; head -c 16 /dev/zero; for i in $3 $4; do u64 "$i"; done; } >"$dir/$1"
    judge "$1" "$2"
}
log log-indptr-negative 'labels.indptr[1] is -1, expected 0 or more' '0 -1 2' '5 6'
log log-indptr-unsorted 'labels.indptr[2] is 1, expected 2 or more' '0 2 1' '5'
log log-indptr-start 'labels.indptr[0] is 1, expected 0' '1 2 2' '5 6'
log log-indptr-end 'labels.indptr ends at 3, but there are 2 labels.indices' '0 1 3' '5 6'
log log-indptr-short 'labels.indptr has 2 entries, expected one more than the 2 queries' '0 2' '5 6'
log log-label-negative 'labels.indices[1] is -7, expected 0 to 2147483647' '0 1 2' '5 -7'
log log-label-huge 'labels.indices[0] is 4294967296, expected 0 to 2147483647' '0 1 2' '4294967296 5'
st log-half "the file is no log: it has no tensor 'labels.indices'" \
    "{$(t queries F32 '[1,1]' 0 4),$(t labels.indptr I64 '[2]' 4 20)}" 20
st log-queries-flat "'queries' has 1 dimensions, expected 2" \
    "{$(t queries F32 '[1]' 0 4),$(t labels.indptr I64 '[2]' 4 20)}" 20
st log-queries-zero 'queries have no numbers: expected (n, d), n queries of d numbers' \
    "{$(t queries F32 '[400000000,0]' 0 0),$(t labels I64 '[400000000,0]' 0 0)}" 0
st log-queries-type "'queries' is of type I32, expected F32, F16, BF16 or F64" \
    "{$(t queries I32 '[1,1]' 0 4),$(t labels.indptr I64 '[2]' 4 20)}" 20

# ---- Sharded models ----------------------------------------------------------------------------------------------
{ h="{$(t x U8 '[2]' 0 2)}"; u64 ${#h}; printf %s "$h"; printf ab; } >"$dir/shard-x"
raw index-not-json "JSON: line 1: string or '}' expected near 'x'" '{x'
raw index-no-map 'the JSON file has no weight_map: expected the index of a sharded safetensors model' '{"metadata":{}}'
raw index-empty-map 'the JSON file has no weight_map: expected the index of a sharded safetensors model' '{"weight_map":{}}'
raw index-map-number "tensor 'x': its shard in weight_map is not a string" '{"weight_map":{"x":1}}'
raw index-outside "tensor 'x': its shard '../shard-x' is not a plain file name" '{"weight_map":{"x":"../shard-x"}}'
raw index-absolute "tensor 'x': its shard '/etc/passwd' is not a plain file name" '{"weight_map":{"x":"/etc/passwd"}}'
raw index-missing-file "shard 'none': the file cannot be opened: No such file or directory" '{"weight_map":{"x":"none"}}'
raw index-missing-tensor "tensor 'y': weight_map puts it in shard 'shard-x', which does not have it" '{"weight_map":{"x":"shard-x","y":"shard-x"}}'
cp "$dir/shard-x" "$dir/shard-x2"
raw index-twice "tensor 'x': it stands in two shards" '{"weight_map":{"x":"shard-x","z":"shard-x2"}}'
raw index-duplicate "JSON: line 1: duplicate object key near '\"x\"'" '{"weight_map":{"x":"shard-x","x":"a"}}'
head -c 20 "$dir/shard-x" >"$dir/shard-cut"
raw index-bad-shard "shard 'shard-cut': the header length 53 is more than the 12 bytes that follow" '{"weight_map":{"x":"shard-cut"}}'

# ---- npy ---------------------------------------------------------------------------------------------------------
f4="'descr': '<f4', 'fortran_order': False"
raw npy-magic 'the file is not a whole .npy file: it has 3 bytes, or no \x93NUMPY at the start' '\x93NU'
raw npy-8-bytes 'the file is not a whole .npy file: it has 8 bytes, or no \x93NUMPY at the start' '\x93NUMPY\x01\x00'
raw npy-cut-length 'the file ends at byte 10, inside the header length' '\x93NUMPY\x02\x00\x10\x00'
raw npy-version 'npy version 4.0 is not supported: expected 1.0, 2.0 or 3.0' '\x93NUMPY\x04\x00\x10\x00{}'
raw npy-header-past-end 'the header length 4096 is more than the 2 bytes that follow' '\x93NUMPY\x01\x00\x00\x10{}'
npy npy-empty-header "header: it ends at byte 10, expected '{'" 1 '' 0
npy npy-not-dict "header: byte 10: expected '{', found '[1]'" 1 '[1]' 0
npy npy-unclosed "header: it ends at byte 20, expected a type such as '<f4'" 1 "{'descr': " 0
npy npy-missing-key 'header: it ends at byte 27, expected the keys descr, fortran_order and shape' 1 "{'descr': '<f4',}" 4
npy npy-other-key "header: byte 11: expected the keys descr, fortran_order and shape, once each, found '?x?: 1}'" 1 "{'x': 1}" 4
npy npy-twice "header: byte 64: expected the keys descr, fortran_order and shape, once each, found '?descr?: ?<f'" 1 \
    "{'descr': '<f4', 'fortran_order': False, 'shape': (), 'descr': '<f4'}" 4
npy npy-object 'the array is one of Python objects, which is a pickle and could run code: save numbers' 1 \
    "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}" 8
npy npy-record 'the array is one of records: expected one of f2, f4, f8, i4, i8' 1 "{'descr': [('a', '<f4')], 'shape': (1,)}" 4
npy npy-type "the type '<c8' is not supported: expected one of f2, f4, f8, i4, i8" 1 "{'descr': '<c8', 'shape': (1,)}" 8
npy npy-order "header: byte 44: expected True or False, found 'Maybe}'" 1 "{'descr': '<f4', 'fortran_order': Maybe}" 0
npy npy-negative "header: byte 61: expected a whole number of 0 or more in the shape, found '-1,)}'" 1 "{$f4, 'shape': (-1,)}" 4
npy npy-fraction "header: byte 62: expected ',' or ')' in the shape, found '.5,)}'" 1 "{$f4, 'shape': (1.5,)}" 4
npy npy-int-shape "header: byte 62: expected ',' after the only number of the shape, found ')}'" 1 "{$f4, 'shape': (1)}" 4
npy npy-number "header: byte 80: expected a number below 2^64 in the shape, found '99,)}'" 1 "{$f4, 'shape': (999999999999999999999,)}" 4
npy npy-9-dims "header: byte 77: expected at most 8 dimensions, found '1)}'" 1 "{$f4, 'shape': (1,1,1,1,1,1,1,1,1)}" 4
npy npy-overflow 'the product of the shape overflows at shape[1] = 4294967296' 1 "{$f4, 'shape': (4294967296, 4294967296)}" 4
npy npy-short 'shape and type take 3 x 4 bytes of data, but 8 follow the header' 2 "{$f4, 'shape': (3,)}" 8
npy npy-long 'shape and type take 1 x 4 bytes of data, but 8 follow the header' 3 "{$f4, 'shape': (1,)}" 8
npy npy-after-dict "header: byte 66: expected nothing after '}', found 'x'" 1 "{$f4, 'shape': (1,)} x" 4

# ---- Extreme-classification text ---------------------------------------------------------------------------------
xc xc-empty 'the file is empty' ''
xc xc-header-words "line 1: expected the header 'N F L' (or 'rows cols'), found 'a b c'" 'a b c\n'
xc xc-header-one "line 1: expected the header 'N F L' (or 'rows cols'), found '5'" '5\n'
xc xc-header-four "line 1: expected the header 'N F L' (or 'rows cols'), found '1 2 3 4'" '1 2 3 4\n'
xc xc-header-spaces "line 1: expected the header 'N F L' (or 'rows cols'), found '1  2 3'" '1  2 3\n'
xc xc-header-negative "line 1: expected the header 'N F L' (or 'rows cols'), found '-1 2 3'" '-1 2 3\n'
xc xc-fasttext "line 1: '__label__a some words' is fastText's text, which has words: expected numbers, 'l1,l2 f:v f:v'; its trained .bin is a network: 'wideout embed FILE.bin --data TEXT'" '__label__a some words\n'
xc xc-header-missing "line 1: expected the header 'N F L' (or 'rows cols'), found '0,1 2:1'; --lenient accepts it" '0,1 2:1\n'
xc xc-header-huge "line 1: a count in the header '1 99999999999 3' is more than 2147483647" '1 99999999999 3\n 0:1\n'
xc xc-header-wrap "line 1: a count in the header '1 1 18446744073709551617' is more than 2147483647" '1 1 18446744073709551617\n 0:1\n'
xc xc-label-range 'line 2: label 3 is not below the 3 labels of the header' '1 5 3\n0,3 1:1\n'
xc xc-label-huge 'line 2: label 99999999999999999999999 is not below the 3 labels of the header' '1 5 3\n99999999999999999999999 1:1\n'
xc xc-label-negative "line 2: expected a label number, found '-1'" '1 5 3\n-1 1:1\n'
xc xc-label-word "line 2: expected a label number, found 'cat'" '1 5 3\ncat 1:1\n'
xc xc-label-empty-item 'line 2: an empty item in the label list' '1 5 3\n0,,2 1:1\n'
xc xc-label-last-comma 'line 2: an empty item in the label list' '1 5 3\n0, 1:1\n'
xc xc-label-first-comma 'line 2: an empty item in the label list' '1 5 3\n,0 1:1\n'
xc xc-label-semicolon "line 2: expected ',' or a space after a label, found ';2'" '1 5 3\n0;2 1:1\n'
xc xc-label-order 'line 2: label 0 comes after a larger one; --lenient accepts it' '1 5 3\n2,0 1:1\n'
xc xc-label-twice 'line 2: label 2 is repeated; --lenient accepts it' '1 5 3\n2,2 1:1\n'
xc xc-feature-range 'line 3: feature 5 is not below the 5 features of the header' '2 5 3\n0 4:1\n0 5:1\n'
xc xc-feature-word "line 2: expected a feature number, found 'x:1'" '1 5 3\n0 x:1\n'
xc xc-feature-order 'line 2: feature 1 comes after a larger one; --lenient accepts it' '1 5 3\n0 2:1 1:1\n'
xc xc-feature-twice 'line 2: feature 2 is repeated; --lenient accepts it' '1 5 3\n0 2:1 2:1\n'
xc xc-feature-first "line 2: begins with the feature '2:1': a row without labels begins with a space" '1 5 3\n2:1\n'
xc xc-no-colon "line 2: '4' has no colon, expected feature:value" '1 5 3\n0 2:1 4\n'
xc xc-no-value "line 2: the value of feature 2 is '', expected a finite number" '1 5 3\n0 2:\n'
xc xc-value-nan "line 2: the value of feature 2 is 'nan', expected a finite number" '1 5 3\n0 2:nan\n'
xc xc-value-inf "line 2: the value of feature 2 is '-inf', expected a finite number" '1 5 3\n0 2:-inf\n'
xc xc-value-1e999 "line 2: the value of feature 2 is '1e999', expected a finite number" '1 5 3\n0 2:1e999\n'
xc xc-value-hex "line 2: the value of feature 2 is '0x10', expected a finite number" '1 5 3\n0 2:0x10\n'
xc xc-value-word "line 2: the value of feature 2 is '1.5abc', expected a finite number" '1 5 3\n0 2:1.5abc\n'
xc xc-value-two-points "line 2: the value of feature 2 is '1.2.3', expected a finite number" '1 5 3\n0 2:1.2.3\n'
xc xc-two-colons "line 2: the value of feature 2 is '1:3', expected a finite number" '1 5 3\n0 2:1:3\n'
xc xc-nul "is not text, it has NUL bytes; 'wideout info' says what a file is" '1 5 3\n0\0000 2:1\n'
xc xc-two-spaces 'line 2: two spaces in a row; --lenient accepts it' '1 5 3\n0 1:1  2:1\n'
xc xc-two-spaces-first 'line 2: two spaces in a row; --lenient accepts it' '1 5 3\n0  1:1\n'
xc xc-last-space 'line 2: a space at the end; --lenient accepts it' '1 5 3\n0 1:1 \n'
xc xc-tab "line 2: the value of feature 1 is '1?2:1', expected a finite number" '1 5 3\n0 1:1\t2:1\n'
xc xc-crlf 'line 2: ends in CRLF, expected LF; --lenient accepts it' '1 5 3\n0 1:1\r\n'
xc xc-crlf-header 'line 1: ends in CRLF, expected LF; --lenient accepts it' '1 5 3\r\n0 1:1\r\n'
xc xc-blank 'line 3: is empty: a row without labels begins with a space; --lenient accepts it' '3 5 3\n0 1:1\n\n0 1:1\n'
xc xc-fewer-rows 'ends after 2 rows, the header says 3' '3 5 3\n0 1:1\n0 1:1\n'
xc xc-more-rows 'line 3: more rows than the 1 of the header' '1 5 3\n0 1:1\n0 1:1\n'
xc xc-blank-end 'line 3: more rows than the 1 of the header' '1 5 3\n0 1:1\n\n'
xc xc-matrix-range 'line 2: column 3 is not below the 3 columns of the header' '1 3\n3:1\n'
xc xc-matrix-labels "line 2: '0,1' has no colon, expected column:value" '1 3\n0,1 2:1\n'
xc xc-matrix-space "line 2: expected a column number, found ' 2:1'" '1 3\n 2:1\n'
xc xc-lenient-zero 'line 1: feature 0 in a file whose features count from 1' '1 0:1\n' --lenient --one-based
xc xc-lenient-large 'line 1: feature 2147483648 is too large' '0 2147483648:1\n' --lenient
xc xc-lenient-sum 'line 1: the values of feature 1 add up to infinity' '0 1:3e38 1:3e38\n' --lenient
xc xc-lenient-range 'line 2: feature 9 is not below the 5 features of the header' '1 5 3\n0 9:1\n' --lenient
printf '1 5 3\n0 1:1\n' | gzip -n >"$dir/xc-whole.gz"
head -c 25 "$dir/xc-whole.gz" >"$dir/xc-gzip-cut"
judge xc-gzip-cut 'gzip data after byte 12 of the text: the file is truncated' data xc
{ head -c 10 "$dir/xc-whole.gz"; printf '\xff\xff\xff\xff\xff\xff\xff\xff'; } >"$dir/xc-gzip-damaged"
judge xc-gzip-damaged 'gzip data after byte 0 of the text: invalid block type' data xc
{ head -c 24 "$dir/xc-whole.gz"; printf 'XXXXXXXX'; } >"$dir/xc-gzip-crc"
judge xc-gzip-crc 'gzip data after byte 0 of the text: incorrect data check' data xc

{ cat "$dir/xc-whole.gz"; echo garbage; } >"$dir/xc-gzip-garbage"
judge xc-gzip-garbage 'gzip data after byte 12 of the text: bytes follow that are not gzip' data xc
xc xc-bom "begins with a byte order mark, expected the header 'N F L'" '\0357\0273\02771 5 3\n0 1:1\n'
xc xc-lenient-cr "line 1: the value of feature 1 is '1?1', expected a finite number" '0 1:1\r1 2:1\n' --lenient
raw png "is not text, it has NUL bytes; 'wideout info' says what a file is" '\x89PNG\r\n\x1a\n\x01\x01\x01\rIHDR\x00'

# ---- fastText ----------------------------------------------------------------------------------------------------
patch() { # FROM NAME SENTENCE OFFSET BYTES(printf %b): a good file with some bytes changed
    cp "tests/golden/$1" "$dir/$2"
    printf '%b' "$5" | dd of="$dir/$2" bs=1 seek="$4" conv=notrunc 2>/dev/null
    judge "$2" "$3"
}
cut_off() { # FROM NAME SENTENCE BYTES: as much of a good file
    head -c "$4" "tests/golden/$1" >"$dir/$2"
    judge "$2" "$3"
}
ft() { patch fasttext-ngrams.bin "$@"; }
cut_off fasttext-ngrams.bin ft-magic 'the file ends at byte 4, inside the options' 4
cut_off fasttext-ngrams.bin ft-options 'the file ends at byte 63, inside the options' 63
cut_off fasttext-ngrams.bin ft-counts 'the file ends at byte 91, inside the dictionary' 91
cut_off fasttext-ngrams.bin ft-entry 'the dictionary has 38 entries, more than the 100 bytes that follow can hold' 192
cut_off fasttext-ngrams.bin ft-entries 'the file ends at byte 500, inside entry 29 of the dictionary' 500
cut_off fasttext-ngrams.bin ft-input 'the input matrix is 83 x 4: expected 4 columns and at most 69 rows, which the bytes that follow can hold' 1800
cut_off fasttext-ngrams.bin ft-output 'the output matrix is 5 x 4: expected 4 columns and at most 4 rows, which the bytes that follow can hold' 2116
ft ft-version "fastText's format version 11 is not read: expected 12" 4 '\v'
ft ft-dim 'dim is 0, expected 1 to 65536' 8 '\x00'
ft ft-dim-large 'dim is 67108868, expected 1 to 65536' 8 '\x04\x00\x00\x04'
ft ft-ngrams 'wordNgrams is 17, expected 0 to 16' 28 '\x11'
ft ft-loss 'the loss is 5, expected 2 to 4' 32 '\x05'
ft ft-hs 'the model was trained with -loss hs, whose output is a tree, not a layer: train it with softmax, ova or ns' 32 '\x01'
ft ft-vectors 'the model is one of word vectors, not a classifier: it has no layer of labels' 36 '\x02'
ft ft-bucket 'bucket is 0, expected 1 to 2147483647' 40 '\x00'
ft ft-buckets 'the input matrix has 83 rows, expected at least 84, for words and buckets' 40 '3'
ft ft-minn 'minn is -1, expected 0 to 2147483647' 44 '\xff\xff\xff\xff'
ft ft-maxn 'maxn is 256, expected 0 to 16' 48 '\x00\x01'
ft ft-size 'the dictionary has 37 entries, 33 words and 5 labels: expected a sum, and a label' 64 '%'
ft ft-many 'the dictionary has 553648166 entries, more than the 2025 bytes that follow can hold' 64 '&\x00\x00\x21\x21\x00\x00\x21'
ft ft-pruned 'the model is quantised and pruned: give the .bin file that it was made from' 84 '\x00\x00\x00\x00\x00\x00\x00\x00'
cp tests/golden/fasttext-ngrams.bin "$dir/ft-more"
printf x >>"$dir/ft-more"
judge ft-more '1 bytes follow the output matrix, expected none'
sed 's/__label__tree/__label__\xffree/' tests/golden/fasttext-ngrams.bin >"$dir/ft-utf8"
judge ft-utf8 "the label '__label__?ree' is not one line of UTF-8"
patch fasttext-quantised.ftz ft-quantised 'the model is quantised: give the .bin file that it was made from' 0 '\xba'

# ---- journals ----------------------------------------------------------------------------------------------------
jo() { patch log.journal "$@"; }
cut_off log.journal journal-head 'the journal has 23 bytes, its header alone has 24' 23
jo journal-version 'the header of the journal is damaged: its checksum differs' 8 '\x02'
jo journal-d 'the header of the journal is damaged: its checksum differs' 12 '\x04'
jo journal-mark 'record 0 of the journal is damaged: others follow it' 24 'x'
jo journal-count 'record 0 of the journal is damaged: others follow it' 28 '\x09'
jo journal-number 'record 1 of the journal is damaged: others follow it' 70 '\xff'
jo journal-sum 'record 2 of the journal is damaged: others follow it' 115 '\xff'

# ---- GGUF --------------------------------------------------------------------------------------------------------
gg() { patch model.gguf "$@"; }
cut_off model.gguf gguf-head 'the file ends at byte 20, inside the header' 20
cut_off model.gguf gguf-pairs 'the file ends at byte 360, inside a pair' 360
cut_off model.gguf gguf-tensors 'the file ends at byte 585, inside a tensor' 585
cut_off model.gguf gguf-no-data 'the file ends at byte 930, before the data of its tensors' 930
cut_off model.gguf gguf-data "tensor 'blk.0.attn.weight' lies at 2240 and takes 1632 bytes, but the data have 3040" 4000
gg gguf-version 'GGUF version 1 is not read: expected 2 or 3' 4 '\x01'
gg gguf-big-endian 'GGUF version 50331648 is not read: expected 2 or 3' 4 '\x00\x00\x00\x03'
gg gguf-many-tensors 'the header has 4294967303 tensors and 15 pairs, more than the 4986 bytes that follow can hold' 12 '\x01'
gg gguf-many-pairs 'the header has 7 tensors and 4294967311 pairs, more than the 4986 bytes that follow can hold' 20 '\x01'
gg gguf-key 'a key has 1095216660500 bytes, more than the 4978 that follow' 28 '\xff'
gg gguf-type 'a value has the type 13, expected 0 to 12' 117 '\r'
gg gguf-alignment 'general.alignment is 20, expected a multiple of 8' 98 '\x14'
gg gguf-alignment-none 'general.alignment is 0, expected a multiple of 8' 98 '\x00'
gg gguf-alignment-type 'general.alignment has the type 5, expected 4' 94 '\x05'
gg gguf-array 'an array has 1095216660483 elements of 4 bytes, more than the 4634 bytes that follow hold' 372 '\xff'
gg gguf-array-type 'a value has the type 77, expected 0 to 12' 364 'M'
gg gguf-token 'a string has 1095216660483 bytes, more than the 4533 that follow' 473 '\xff'
gg gguf-name 'the name of a tensor has 1095216660493 bytes, more than the 4463 that follow' 543 '\xff'
gg gguf-dims "tensor 'output.weight' has 5 dimensions, expected at most 4" 560 '\x05'
gg gguf-overflow "tensor 'output.weight': the product of its shape overflows at 18374686479671623686" 571 '\xff\x06\x00\x00\x00\x00\x00\x00\xff'
gg gguf-rows "tensor 'output.weight' has rows of 257 numbers, which are no blocks of 256" 564 '\x01'
gg gguf-size "tensor 'output.weight' lies at 0 and takes 37728 bytes, but the data have 4050" 573 '\x01'
gg gguf-place "tensor 'output.weight' lies at 1095216660480 and takes 864 bytes, but the data have 4050" 588 '\xff'
gg gguf-unaligned "tensor 'output.weight' lies at 8, which is no multiple of 64" 584 '\b'

[ -n "$keep" ] || finish
