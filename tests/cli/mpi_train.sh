#!/bin/bash
# wideout-mpi train xc on 1 to 4 ranks: the loss of one process, resumed runs, failures of one rank, ranks that are killed
# (TORTURE=1: at 20 moments, not at three).
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/mpi/one_machine.sh
. "$(dirname "$0")/../mpi/one_machine.sh"
mpi=$(dirname "$WIDEOUT")/wideout-mpi
if [ ! -x "$mpi" ] || ! command -v mpirun >/dev/null; then
    ok 'wideout-mpi train # skip: no MPI'
    finish
    exit
fi
preload=$(realpath "$BUILD/tests/failing_io.so")
export WIDEOUT_MPI_TIMEOUT=60
cd "$scratch" || exit 1
"$WIDEOUT" data synthetic --as text -m 300 -n 3000 --exponent 0.5 -o x -q >/dev/null
options=(--train x/train.txt --valid x/valid.txt --test x/test.txt -d 12 -b 100 --lr 0.02 -t 1 -q)

ranks() { # P ARGUMENTS...: wideout-mpi train xc; what mpirun itself says is left out
    local p=$1
    shift
    timeout 120 mpirun -q -n "$p" "$mpi" train xc "${options[@]}" "$@"
}

near() { # A.json B.json: losses to 1e-4 of each other, precisions to two of 300 examples
    jq -es '(.[0].loss - .[1].loss | fabs) < 1e-4 * .[0].loss and
        (.[0].valid_p_at_1 - .[1].valid_p_at_1 | fabs) < 0.007 and (.[0].test_p_at_5 - .[1].test_p_at_5 | fabs) < 0.007' "$1" "$2"
}

# ---- The same as one process -------------------------------------------------------------------------------------
"$WIDEOUT" train xc "${options[@]}" -e 3 -o one.net --json >one.json
for p in 1 2 4; do
    ranks $p -e 3 -o "p$p.net" --json >"p$p.json"
    same "P = $p: ends well" 0 $?
    check "P = $p: loss and precision of one process" near one.json "p$p.json"
    same "P = $p: one file, and no checkpoints" "p$p.json p$p.net" "$(echo p$p.*)"
    # shellcheck disable=SC2016 # jq's own $p
    check "P = $p: --json has ranks, and bytes by phase" \
        jq -e --argjson p $p '.ranks == $p and ([.phases[].phase] | contains(["read", "train", "checkpoint", "evaluate", "write"])) and
            ((.phases[] | select(.phase == "train") | .bytes) > 0) == ($p > 1)' "p$p.json"
    "$WIDEOUT" embed "p$p.net" --data x/test.txt -o p.log --score --json >embed.json 2>/dev/null
    same "P = $p: the tool opens it, and finds the same" "$(jq -c '[.test_p_at_1, .test_p_at_5]' "p$p.json")" \
        "$(jq -c '[.p_at_1, .p_at_5]' embed.json)"
done
check 'P = 1: the very file of wideout' cmp one.net p1.net
ranks 2 -e 3 -o again.net >/dev/null
check 'P = 2: twice the same bytes' cmp p2.net again.net
ranks 2 -e 3 -t 2 -o again.net >/dev/null
check 'P = 2: whatever the threads' cmp p2.net again.net
"$WIDEOUT" train xc "${options[@]}" -e auto -o auto1.net --json >auto1.json
ranks 3 -e auto -o auto3.net --json >auto3.json
same '--epochs auto: as many, and the same one kept' "$(jq -c '[.epochs, .kept_epoch]' auto1.json)" "$(jq -c '[.epochs, .kept_epoch]' auto3.json)"
check '--epochs auto: loss and precision' near auto1.json auto3.json
same '--time-steps' 'nothing was written' "$(ranks 2 --time-steps 3 -o timed.net | grep -o 'nothing was written')"
check 'then nothing was' test ! -e timed.net -a ! -e timed.net.checkpoint -a ! -e timed.net.checkpoint.1

# What docs/SCALING.md says that a step exchanges: 64 examples in batches of 32, all with the same 12 features.
awk 'BEGIN { print 64, 12, 20; for (i = 0; i < 64; i++) { line = i % 20; for (j = 0; j < 12; j++) line = line " " j ":1"; print line } }' >even.txt
for p in 2 4; do
    same "P = $p: bytes of a step" $((4 * 8 * (2 * 32 + 12) * (p - 1) / p + (16 * 33 + 8 * 32 * 8 / p) * (p - 1) + 8)) \
        "$(timeout 120 mpirun -q -n $p "$mpi" train xc --train even.txt -d 8 -b 32 --time-steps 3 -t 1 -q --json -o even.net |
            jq '.phases[] | select(.phase == "train").bytes / 8')" # 5 steps go before the three
done

# ---- Stopped and resumed -----------------------------------------------------------------------------------------
started() { # FILE: waits until it is there
    for ((i = 0; i < 600; i++)); do [ ! -e "$1" ] || return 0; sleep 0.05; done
    return 1
}

long=(-e 300)
mpirun -q -n 3 "$mpi" train xc "${options[@]}" "${long[@]}" -o k.net >k.out 2>k.err & # timeout would signal the ranks itself
run=$!
started k.net.checkpoint.2
kill -TERM $run
wait $run
same 'stopped: exit code 1' 1 $?
check 'one sentence at most' test "$(wc -l <k.err)" -le 1 # mpirun kills after a second, and may lose what ranks said
check 'no network' test ! -e k.net
fails 'resume: another P' 1 \
    "wideout-mpi: k.net: its checkpoint of rank 0: is share '0 of 3' of a run, expected 0 of 2: resume with as many processes" \
    ranks 2 "${long[@]}" -o k.net --resume
fails 'resume: other options' 1 \
    'wideout-mpi: k.net: its checkpoint of rank 0: belongs to another network, other data or other options; delete it, or train without --resume' \
    ranks 3 "${long[@]}" --seed 2 -o k.net --resume
fails 'resume by wideout' 1 \
    "wideout: k.net: its checkpoint: is share '0 of 3' of a run, expected 0 of 1: resume with as many processes" \
    "$WIDEOUT" train xc "${options[@]}" "${long[@]}" -o k.net --resume
mv k.net.checkpoint.1 aside
rm -f k.net.checkpoint.1.next # whole, where the run was stopped just then
fails 'resume: a checkpoint is missing' 1 'wideout-mpi: k.net: its checkpoint of rank 1: the file cannot be opened: No such file or directory' \
    ranks 3 "${long[@]}" -o k.net --resume
head -c 5000 aside >k.net.checkpoint.1
same 'resume: a checkpoint is cut' '1 1 1' "$(ranks 3 "${long[@]}" -o k.net --resume 2>err >/dev/null; echo "$? $(wc -l <err) $(grep -c 'k.net: its checkpoint of rank 1: ' err)")"
rm -f k.net.checkpoint*

# Ranks killed at any moment: what they leave is gone on from, to the same bytes.
kills=3
[ -z "${TORTURE:-}" ] || kills=20
ranks 3 -e 60 -o whole.net >/dev/null
for ((kill = 1; kill <= kills; kill++)); do
    rm -f k.net*
    timeout 120 mpirun -q -n 3 "$mpi" train xc "${options[@]}" -e 60 -o k.net >/dev/null 2>&1 &
    run=$!
    started k.net.checkpoint.$((kill % 2 + 1))
    sleep "0.$(printf %02d $((kill * 13 % 40)))"
    victim=$(pgrep -P "$(pgrep -P $run)" 2>/dev/null | sed -n "$((kill % 3 + 1))p") # timeout's child is mpirun
    [ -z "$victim" ] || kill -9 "$victim"
    wait $run
    if [ -e k.net ]; then
        ok "kill $kill: it was done"
        continue
    fi
    left=$(echo k.net*)
    resume=--resume # before the first epoch is done everywhere there is nothing to go on from
    if [ ! -e k.net.checkpoint ] && [ ! -e k.net.checkpoint.next ]; then resume=; fi
    # shellcheck disable=SC2086 # perhaps nothing
    ranks 3 -e 60 -o k.net $resume >out 2>&1
    check "kill $kill: gone on from $left" cmp whole.net k.net
    same "kill $kill: nothing is left" k.net "$(echo k.net*)"
done

# ---- Failures of one rank ----------------------------------------------------------------------------------------
fails 'no -o' 2 "wideout-mpi train xc: needs -o FILE for the network (see 'wideout-mpi train xc --help')" ranks 2
printf '2 3 2\n0 0:1\n1 2:1\n' >few.txt
fails 'P larger than the classes' 1 'wideout-mpi: few.txt: has 2 classes for 3 processes: each needs one' \
    timeout 60 mpirun -q -n 3 "$mpi" train xc --train few.txt -o few.net -t 1
same 'nothing is left' 'few.txt' "$(echo few*)"

# Files that are others on rank 1: the one that is at fault is named.
seq -f 'class %.0f' 0 299 >x/names.txt
for other in valid.txt test.txt names.txt train.txt; do
    rm -rf r0 r1
    cp -r x r0
    cp -r x r1
    { head -1 x/$other; tail -n +2 x/$other | tac; } >r1/$other
    case $other in
    names.txt) differs='other names of labels' ;;
    train.txt) differs='other files or options' ;;
    *) differs='another file' ;;
    esac
    [ $other != names.txt ] || tac x/$other >r1/$other
    # shellcheck disable=SC2016 # the rank's own
    fails "another $other on rank 1" 1 "wideout-mpi: $other: rank 1 has $differs than rank 0" timeout 120 mpirun -q -n 2 bash -c \
        'cd r$OMPI_COMM_WORLD_RANK && exec "$@"' _ "$mpi" train xc --train train.txt --valid valid.txt --test test.txt \
        --label-names names.txt -d 12 -b 100 -e 1 -t 1 -q -o "$scratch/other.net"
done
rm -rf r0 r1

cat >rank <<'END'
#!/bin/bash
# rank SETTINGS RANK COMMAND...: the command, with these variables on one rank
[ "$OMPI_COMM_WORLD_RANK" != "$2" ] || export $1
shift 2
exec "$@"
END
chmod +x rank
odd() { # SETTINGS RANK ARGUMENTS...: of two ranks
    local settings=$1 rank=$2
    shift 2
    timeout 120 mpirun -q -n 2 ./rank "$settings" "$rank" "$mpi" train xc "${options[@]}" "$@"
}
fails 'other instructions on one rank' 1 \
    "wideout-mpi: the instruction set, which \$WIDEOUT_CPU can lower, differs between ranks 0 and 1" odd WIDEOUT_CPU=ref 1 -e 2 -o i.net

case ${SAN:-} in *address* | *thread*)
    finish
    exit
    ;;
esac
mkdir full
full() { # NAME RANK N SENTENCE: the N-th write of this rank finds no space
    fails "$1" 1 "wideout-mpi: $4" odd "LD_PRELOAD=$preload IO_UNDER=$PWD/full/ IO_CALL=write IO_AT=$3 IO_HOW=28" "$2" -e 2 -o "$PWD/full/f.net"
}
full 'no space for the checkpoint of rank 1' 1 1 "$PWD/full/f.net: its checkpoint of rank 1: the file cannot be written: No space left on device"
same 'nothing is left' '' "$(ls full)"
full 'no space for the checkpoint of rank 0' 0 1 "$PWD/full/f.net: its checkpoint of rank 0: the file cannot be written: No space left on device"
same 'nothing is left' '' "$(ls full)"
# The checkpoint takes one write, and so does that of the second epoch; then comes the network.
full 'no space for the network' 0 3 "$PWD/full/f.net: the file cannot be written: No space left on device"
same 'the checkpoints stay' 'f.net.checkpoint f.net.checkpoint.1' "$(echo full/* | sed 's/full.//g')"
ranks 2 -e 2 -o full/f.net --resume >/dev/null
ranks 2 -e 2 -o f.net >/dev/null
check 'and are enough' cmp f.net full/f.net
finish
