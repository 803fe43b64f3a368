#!/bin/bash
# Each parser over all malformed files, seeds and golden files, and over some thousands of mutations of those that are of its
# own kind: of what it refuses by its first bytes, mutations say nothing. 'make fuzz' goes further.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
tests/cli/malformed.sh --make "$scratch/seeds"
cp tests/golden/* tests/fuzz/seeds/* "$scratch/seeds"
mutations=400
case ${SAN:-} in
'') ;;
thread) mutations=20 ;; # no threads here, and mapping files is slow under TSan
*) mutations=100 ;;
esac

own() { # TARGET: sets files
    local at=$scratch/seeds
    case $1 in
    safetensors) files=("$at"/{st,log,shard,index,layer,network,tokens,checkpoint}[-.]*) ;;
    journal) files=("$at"/{journal-*,log.journal}) ;;
    text) files=("$at"/{text,fasttext}[-.]*t* "$at"/examples.txt) ;;
    fasttext) files=("$at"/{ft-*,fasttext-*.bin,fasttext-*.ftz}) ;;
    gguf) files=("$at"/{gguf-*,model.gguf}) ;;
    npz) files=("$at"/{*.npz,zip}) ;;
    index) files=(tests/golden/index-*.safetensors) ;;
    serve | shards) files=("tests/fuzz/seeds/$1"-*) ;;
    *) files=("$at/$1"-*) ;;
    esac
}
for target in safetensors npy journal xc deb822 text fasttext gguf npz index serve shards; do
    fuzz=$BUILD/tests/fuzz/fuzz_$target
    [ -x "$fuzz" ] || { ok "fuzz_$target is not built: there is no server here # skip"; continue; }
    own $target
    out=$("$fuzz" $mutations "${files[@]}" 2>&1)
    code=$?
    if [[ $code = 0 && ! $target =~ ^(index|serve|shards)$ ]]; then
        out+=", and $("$fuzz" 0 "$scratch"/seeds/* 2>&1)"
        code=$?
    fi
    case $code:$out in
    0:*inputs) ok "fuzz_$target, $out" ;;
    *) not_ok "fuzz_$target" "$out" ;;
    esac
done
finish
