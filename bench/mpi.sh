#!/bin/bash
# wideout-mpi with 1 and 2 processes of one thread each: build and eval, wall and CPU seconds of rank 0, bytes. CPU seconds are what
# an idle machine would show where this one is busy. Usage: bench/mpi.sh [FOLDER [M [D [N]]]]: data are made there once.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
folder=${1:-${TMPDIR:-/tmp}/wideout-mpi-bench}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
data=$folder/data
[ -f "$data/layer.safetensors" ] || "$build/wideout" data synthetic -q -m "${2:-50000}" -d "${3:-64}" -n "${4:-40000}" -o "$data" >/dev/null
"$build/wideout" cpu | head -2
for options in '--router tree' '--router hash -K 9 -L 4' '--method full'; do
    for p in 1 2; do
        # shellcheck disable=SC2086 # several words
        mpirun --quiet -n $p "$build/wideout-mpi" build -q -t 1 --layer "$data/layer.safetensors" --log "$data/train.log.safetensors" \
            $options --json -o "$folder/index" |
            jq -r --arg name "build $options, P = $p" '"\($name): \(.seconds) s, \([.phases[].cpu_s] | add) CPU s, \([.phases[].bytes] | add) bytes"'
        mpirun --quiet -n $p "$build/wideout-mpi" eval -t 1 --index "$folder/index" --log "$data/test.log.safetensors" --json |
            jq -r --arg name "eval $options, P = $p" '"\($name): P@1 \(.p_at_1), \(.us_per_query) us a query, FULL \(.full_us_per_query); \([.phases[].cpu_s] | add) CPU s, \([.phases[].bytes] | add) bytes"'
    done
done
