#!/bin/bash
# GGUF files: what is in them, as an independent parser says, and their layers. tests/golden/model.gguf.json is what
# @huggingface/gguf printed; where $GGUF_NODE_MODULES names a folder in which npm has installed it, it is asked again:
#   npm install --prefix FOLDER @huggingface/gguf@0.1.12
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
golden=$PWD/tests/golden tools=$PWD/tests/tools
cd "$scratch" || exit 1
model=$golden/model.gguf

# Their places count from where the data begin, which is where the first tensor lies.
ours() {
    "$WIDEOUT" info --json "$1" | jq -cS '.tensors[0].offset as $data | {version, architecture, metadata, tokens, alignment,
        tensors: [.tensors[] | {name, dtype, shape, offset: (.offset - $data)}]}'
}
same 'the header, as @huggingface/gguf reads it' "$(jq -cS . "$golden/model.gguf.json")" "$(ours "$model")"
if [ -n "${GGUF_NODE_MODULES:-}" ] && command -v node >/dev/null; then
    same 'and reads it now' "$(node "$tools/gguf.mjs" "$GGUF_NODE_MODULES" "$model" | jq -cS .)" "$(ours "$model")"
else
    echo '# no node, or no GGUF_NODE_MODULES: what @huggingface/gguf says is in tests/golden'
fi
cp "$model" model.npy
same 'recognised by content' "model.npy: GGUF version 3, llama" "$("$WIDEOUT" info model.npy | head -1)"

# The layer: its names are tokens, and a token that is no line of text is written in bytes.
check 'an index of its layer' "$WIDEOUT" build --layer "$model" --method full -o index -q
same 'which tensors it is' '  the layer: weight '"'output.weight'"', with a bias, '"'output.bias'" "$("$WIDEOUT" build --layer "$model" --method full -o index -q | grep 'the layer')"
"$WIDEOUT" data synthetic -m 6 -d 256 -n 20 -o made -q >/dev/null
same 'names of the classes' '<0x0A> <0xFF> <s> a ▁Straße ▁the' \
    "$("$WIDEOUT" predict --index index -k 6 made/test.log.safetensors | head -1 | tr '\t' '\n' | awk 'NR % 2' | LC_ALL=C sort | paste -sd ' ')"
for tensor in token_embd.weight blk.0.attn.weight blk.0.half blk.0.brain; do
    same "another tensor: $tensor" "  the layer: weight '$tensor', without a bias" \
        "$("$WIDEOUT" build --layer "$model" --weight-name "$tensor" --method full -o other -q | grep 'the layer')"
done
sed 's/output.weight/outbut.weight/' "$model" >tied.gguf
same 'a model with one matrix for both ends' "  the layer: weight 'token_embd.weight', without a bias" \
    "$("$WIDEOUT" build --layer tied.gguf --method full -o other -q | grep 'the layer')"
sed 's/token_embd.weight/token_embt.weight/' tied.gguf >none.gguf

refuses() { # NAME SENTENCE FILE OPTION...
    local name=$1 sentence=$2 file=$3
    shift 3
    fails "$name" 1 "wideout: $file: $sentence" "$WIDEOUT" build --layer "$file" --method full -o other -q "$@"
}
refuses 'no such tensor' "the file has no tensor 'output.weight' or 'token_embd.weight', and none was chosen; choose with --weight-name NAME" none.gguf
refuses 'no tensor of that name' "the file has no tensor 'x'; choose with --weight-name NAME" "$model" --weight-name x
refuses 'no bias of that name' "the file has no tensor 'x' for the biases; choose with --bias-name NAME" "$model" --bias-name x
refuses 'a type that is not read' "tensor 'blk.0.other' has 3 dimensions, expected 2" "$model" --weight-name blk.0.other
refuses 'biases of another size' "tensor 'blk.0.half' has 6 numbers, expected 2, one for each class" "$model" --weight-name blk.0.brain --bias-name blk.0.half
refuses 'a file of biases' 'the file is no .npy file, and only beside one do biases have a file of their own; name a tensor with --bias-name NAME instead of --bias' "$model" --bias "$model"

# ---- What JSON cannot hold as it is ------------------------------------------------------------------------------------
# A tensor of a type that is not read: its name is any bytes, and its shape any numbers.
le() { # VALUE(hex) BYTES: little-endian
    local value=$1 i
    for ((i = 0; i < $2; i++)); do printf '%b' "\\x${value:2*($2-1-i):2}"; done
}
{
    printf GGUF && le 00000003 4 && le 0000000000000001 8 && le 0000000000000001 8
    le 0000000000000014 8 && printf general.architecture && le 00000008 4 && le 0000000000000003 8 && printf 'a\xffb'
    le 0000000000000005 8 && printf 'x\xfe\xc3\xa4y' && le 00000001 4 && le fffffffffffffff0 8 && le 000000c8 4 && le 0000000000000000 8
} >odd.gguf
head -c 64 /dev/zero >>odd.gguf
same 'names that are no UTF-8, and a size beyond 2^63' '["a\ufffdb","x\ufffd\u00e4y"]' "$("$WIDEOUT" info --json odd.gguf 2>&1 | jq -ac '[.architecture, .tensors[].name]' 2>&1)"
same 'which is no negative number' true "$("$WIDEOUT" info --json odd.gguf | jq '.tensors[0].shape[0] > 18446744073709000000')"
finish
