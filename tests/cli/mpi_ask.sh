#!/bin/bash
# What wideout-mpi is asked under mpirun, beside one process: --rows, and the options of eval and predict.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
case $BUILD in /*) built=$BUILD ;; *) built=$PWD/$BUILD ;; esac
mpi=$built/wideout-mpi
if [ ! -x "$mpi" ] || ! command -v mpirun >/dev/null; then
    ok 'wideout-mpi is not built, or there is no mpirun # SKIP'
    finish
    exit
fi
cd "$scratch" || exit 1
# As in mpi.sh.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1 OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_plm=isolated
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_oob_tcp_if_include=lo OMPI_MCA_mpi_yield_when_idle=1
export TMPDIR=$scratch LSAN_OPTIONS=detect_leaks=0 ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
run() { # P COMMAND...
    timeout 120 mpirun --quiet -n "$1" "${@:2}"
}

# ---- Rows into cells: a cell's cap is on the rows of all ranks ---------------------------------------------------
"$WIDEOUT" data synthetic -q -m 3001 -d 32 -n 3000 --exponent 1 -t 1 -o data >/dev/null
layer=data/layer.safetensors train=data/train.log.safetensors test=data/test.log.safetensors
"$WIDEOUT" shard --layer $layer --log $train -n 4 -o net >/dev/null
many='--rows 2 --cap 25 --route-d 32 --beam 4 --source labels --lambda 0 --thin 0 --keep 0 --weights int8-bf16'
for method in '--rows 1 --cap 60' '--rows 2' "$many" '--rows 1 --nodes 4 --leaves 16 --cap 100 --prior 0.5'; do
    # shellcheck disable=SC2086 # several words
    "$WIDEOUT" build -q -t 1 --layer $layer --log $train --router tree $method -o one >/dev/null || not_ok "one process builds $method"
    for p in 2 4; do
        rm -rf parts && mkdir parts
        if [ $p = 4 ]; then of=net; else of=$layer; fi
        # shellcheck disable=SC2086
        run $p "$mpi" build -q -t 1 --layer $of --log $train --router tree $method -o parts/index >/dev/null || not_ok "$p build $method"
        "$WIDEOUT" join parts/index-* -o joined >/dev/null
        check "$p processes, joined, are one: $method" cmp one joined
    done
done

# ---- Streams -----------------------------------------------------------------------------------------------------
"$WIDEOUT" eval --index one --log $test --no-timing -t 1 --json >one.json
wanted='[.p_at_1, .p_at_3, .p_at_5, .full_p_at_1, .agreement_at_1, .agreement_at_5, .sample_size, .n]'
for batch in 7 64 1024; do # many blocks on their way, two, one
    run 4 "$mpi" eval -t 1 --index parts/index --log $test --json --rounds 1 -b $batch >four.json
    same "blocks of $batch, several on their way" "$(jq -c "$wanted" one.json)" "$(jq -c "$wanted" four.json)"
    run 4 "$mpi" eval -t 1 --index parts/index --log $test --json --rounds 1 -b $batch --in-turn >four.json
    same "blocks of $batch in turn" "$(jq -c "$wanted" one.json)" "$(jq -c "$wanted" four.json)"
done
same 'each rank routes its share' true "$(jq '[.phases[].phase] | index("routing") != null' four.json)"
finish
