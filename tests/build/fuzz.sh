#!/bin/bash
# Each parser over the malformed corpus, the golden files and some thousands of mutations of them. 'make fuzz' goes further.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
tests/cli/malformed.sh --make "$scratch/seeds"
cp tests/golden/* "$scratch/seeds"
printf '2 5 3\n0,2 1:0.5 4:1e-3\n 0:2 3:.5\n' >"$scratch/seeds/xc-good"
printf '2 3\n0:1 2:1\n\n' >"$scratch/seeds/xc-matrix-good"
mutations=200
[ "${SAN:-}" != thread ] || mutations=5 # no threads here, and mapping files is slow under TSan
for target in safetensors npy xc; do
    out=$("$BUILD/tests/fuzz/fuzz_$target" $mutations "$scratch"/seeds/* 2>&1)
    case $?:$out in
    0:*inputs) ok "fuzz_$target, $out" ;;
    *) not_ok "fuzz_$target" "$out" ;;
    esac
done
finish
