#!/bin/bash
# Each parser over the malformed files, its seeds, the golden files and some thousands of mutations of them. 'make fuzz' goes further.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
tests/cli/malformed.sh --make "$scratch/seeds"
cp tests/golden/* tests/fuzz/seeds/* "$scratch/seeds"
mutations=200
case ${SAN:-} in
'') ;;
thread) mutations=5 ;; # no threads here, and mapping files is slow under TSan
*) mutations=50 ;;     # a target takes a minute with 200
esac
for target in safetensors npy journal xc deb822 text fasttext gguf npz index serve shards; do
    [ -x "$BUILD/tests/fuzz/fuzz_$target" ] || { ok "fuzz_$target is not built: there is no server here # skip"; continue; }
    files=("$scratch"/seeds/*)
    [ $target != index ] || files=(tests/golden/index-*.safetensors)
    [ $target != serve ] || files=(tests/fuzz/seeds/serve-*)
    [ $target != shards ] || files=(tests/fuzz/seeds/shards-*)
    out=$("$BUILD/tests/fuzz/fuzz_$target" $mutations "${files[@]}" 2>&1)
    case $?:$out in
    0:*inputs) ok "fuzz_$target, $out" ;;
    *) not_ok "fuzz_$target" "$out" ;;
    esac
done
finish
