#!/bin/bash
# Each parser over the malformed files, its seeds, the golden files and some thousands of mutations of them. 'make fuzz' goes further.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
tests/cli/malformed.sh --make "$scratch/seeds"
cp tests/golden/* tests/fuzz/seeds/* "$scratch/seeds"
mutations=200
[ "${SAN:-}" != thread ] || mutations=5 # no threads here, and mapping files is slow under TSan
for target in safetensors npy xc deb822 text index; do
    files=("$scratch"/seeds/*)
    [ $target != index ] || files=(tests/golden/index-*.safetensors)
    out=$("$BUILD/tests/fuzz/fuzz_$target" $mutations "${files[@]}" 2>&1)
    case $?:$out in
    0:*inputs) ok "fuzz_$target, $out" ;;
    *) not_ok "fuzz_$target" "$out" ;;
    esac
done
finish
