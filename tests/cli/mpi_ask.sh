#!/bin/bash
# What wideout-mpi is asked under mpirun, beside one process: --rows, and the options of eval and predict.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/mpi/one_machine.sh
. "$(dirname "$0")/../mpi/one_machine.sh"
case $BUILD in /*) built=$BUILD ;; *) built=$PWD/$BUILD ;; esac
mpi=$built/wideout-mpi
if [ ! -x "$mpi" ] || ! command -v mpirun >/dev/null; then
    ok 'wideout-mpi is not built, or there is no mpirun # SKIP'
    finish
    exit
fi
cd "$scratch" || exit 1
export TMPDIR=$scratch # of mpirun's own files
run() { # P COMMAND...
    timeout 120 mpirun --quiet -n "$1" "${@:2}"
}

for command in eval predict; do
    given=()
    [ $command != eval ] || given=(--log x)
    fails "$command: a name without its layer" 2 "wideout-mpi $command: --weight-name, --bias-name and --bias go with --layer (see 'wideout-mpi $command --help')" \
        "$mpi" $command --index x "${given[@]}" --bias x
done

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
# Numbers that are too many for a call of MPI's: blocks are smaller.
"$WIDEOUT" data synthetic -q -m 10 -d 9000 -n 20 -t 1 -o long >/dev/null
run 2 "$mpi" build -q -t 1 --layer long/layer.safetensors --method full -o parts/long >/dev/null
run 2 "$mpi" eval -t 1 --index parts/long --log long/test.log.safetensors --json --rounds 1 -b 65536 --no-full >two.json
check 'a block of at most 2^28 bytes' jq -e '.batch > 1000 and .batch * .d * 4 <= 268435456 and .n > 0' two.json
same 'blocks as asked for' 1024 "$(jq .batch four.json)"
same 'each rank routes its share' true "$(jq '[.phases[].phase] | index("routing") != null' four.json)"
"$WIDEOUT" eval --index one --log $test --no-timing -t 1 --json -k 3,20 --max-queries 150 >one.json
run 2 "$mpi" eval -t 1 --index parts/index --log $test 2>/dev/null >/dev/null && not_ok 'an index of four in a job of two'
run 4 "$mpi" eval -t 1 --index parts/index --log $test --json -k 3,20 --max-queries 150 --no-timing >four.json
wanted='[.p_at_1, .p_at_5, .full_p_at_1, .agreement_at_3, .agreement_at_20, .agreement_at_1, .sample_size, .n, .us_per_query]'
same 'a sample, and other k' "$(jq -c "$wanted" one.json | sed 's/,[^,]*]$/,null]/')" "$(jq -c "$wanted" four.json)"
fails 'a k that is none' 2 "wideout-mpi eval: -k takes up to 16 numbers from 1 to 1000, as 1,5: found '0' (see 'wideout-mpi eval --help')" \
    run 4 "$mpi" eval --index parts/index --log $test -k 0

# ---- Masks -------------------------------------------------------------------------------------------------------
seq -f 'class %.0f' 0 3000 >names
"$WIDEOUT" build -q -t 1 --layer $layer --log $train --router tree --names names -o one >/dev/null
run 2 "$mpi" build -q -t 1 --layer $layer --log $train --router tree --names names -o parts/named >/dev/null
printf 'class 7\nclass 2999\n' >few
best=$("$WIDEOUT" predict --index one -k 1 --json $test | jq .answers[0].id | sort -n | uniq -c | sort -n | tail -3 | awk '{ print $2 }' | paste -sd,)
for mask in "--forbid $best" "--require 0,17,1500,2998" "--forbid few --require $best,5" "--require few --exact --forbid $best"; do
    # shellcheck disable=SC2086 # several words
    "$WIDEOUT" predict --index one -k 7 --json $mask $test >expected
    # shellcheck disable=SC2086
    run 2 "$mpi" predict -t 1 --index parts/named -k 7 --json $mask $test >got
    check "answers with $mask" cmp expected got
done
# Names that are other classes' numbers. One shard has no names for the first half of the classes.
(seq 1 3000; echo 0) >digits
run 2 "$mpi" build -q -t 1 --layer $layer --log $train --method full --names digits -o parts/digits >/dev/null
ambiguous=': --forbid: 2999 is the number of one class and the name of another: number:2999 or name:2999 says which is meant'
same 'a number that is a name, of one shard' "wideout$ambiguous" \
    "$("$WIDEOUT" predict --index parts/digits-00002-of-00002.safetensors --forbid 2999 $test 2>&1 | grep -v warning)"
fails 'of all shards' 1 "wideout-mpi$ambiguous" run 2 "$mpi" predict -t 1 --index parts/digits --forbid 2999 $test
fails 'which is required' 1 "wideout-mpi${ambiguous/forbid/require}" run 2 "$mpi" predict -t 1 --index parts/digits --require 2999 $test
# Names of a file, instead of those that the ranks have; rank 0 alone has them.
sed 's/class/kind/' names >kinds
printf 'kind 7\nkind 2999\n' >few_kinds
"$WIDEOUT" predict --index one --names kinds --forbid few_kinds $test >expected
run 2 "$mpi" predict -t 1 --index parts/named --names kinds --forbid few_kinds $test >got
check 'other names' cmp expected got
fails 'too few names' 1 "$("$WIDEOUT" predict --index one --names few $test 2>&1 | sed 's/^wideout:/wideout-mpi:/')" \
    run 2 "$mpi" predict --index parts/named --names few $test
# Raw examples, with features from 1, and names of the network where the index has none.
"$WIDEOUT" data synthetic -q --as text -m 200 -n 2000 -o texts >/dev/null
head -1 texts/valid.txt >from1
tail -n +2 texts/valid.txt | awk '{ for (i = 2; i <= NF; i++) { split($i, p, ":"); $i = p[1] + 1 ":" p[2] } print }' >>from1
seq -f 'label %.0f' 0 199 >texts/labels
"$WIDEOUT" train xc -q -t 1 --train texts/train.txt --label-names texts/labels -d 8 -e 1 -o net.xc >/dev/null
"$WIDEOUT" embed -q net.xc --data texts/train.txt -o xc.log >/dev/null
python3 - net.xc bare <<'PY'
import json, struct, sys
data = open(sys.argv[1], 'rb').read()
n = struct.unpack('<Q', data[:8])[0]
header = json.loads(data[8:8 + n])
parts, body = {}, b''
for name in ('output.weight', 'output.bias'):
    a, b = header[name]['data_offsets']
    parts[name.replace('output.', '')] = {**header[name], 'data_offsets': [len(body), len(body) + b - a]}
    body += data[8 + n + a:8 + n + b]
text = json.dumps(parts).encode()
text += b' ' * (-len(text) % 8)
open(sys.argv[2], 'wb').write(struct.pack('<Q', len(text)) + text + body)
PY
"$WIDEOUT" build -q -t 1 --layer bare --log xc.log --router tree -o xc.index >/dev/null
run 2 "$mpi" build -q -t 1 --layer bare --log xc.log --router tree -o parts/xc >/dev/null
"$WIDEOUT" predict --index xc.index --net net.xc texts/valid.txt >expected
run 2 "$mpi" predict -t 1 --index parts/xc --net net.xc --one-based from1 >got
check 'features from 1, and the names of the network' cmp expected got
check 'which are there' grep -q '^label ' got
fails 'a vocabulary alone' 2 "wideout-mpi predict: --arch lm and --vocab FILE go together, with --net (see 'wideout-mpi predict --help')" \
    run 2 "$mpi" predict --index parts/xc --vocab names from1

"$WIDEOUT" predict --index one --json $test >expected
run 2 "$mpi" predict -t 1 --index parts/named --json --phases $test >got
check 'a last line of phases' cmp expected <(head -n -1 got)
check 'seconds and bytes' jq -e '.ranks == 2 and ([.phases[] | select(.phase == "exchange")] | length == 1)' <(tail -1 got)
fails 'a class that is not there' 1 'wideout-mpi: --forbid: class 3001 is not below the 3001 of the index' \
    run 2 "$mpi" predict --index parts/named --forbid 3001 $test

# ---- Building ----------------------------------------------------------------------------------------------------
"$WIDEOUT" build -q -t 1 --layer $layer --log $train --log data/valid.log.safetensors --router tree -o one >/dev/null
run 2 "$mpi" build -q -t 1 --layer $layer --log $train --log data/valid.log.safetensors --router tree --memory 300M -o parts/two >/dev/null
"$WIDEOUT" join parts/two-* -o joined >/dev/null
check 'two logs as one, within a limit' cmp one joined
same 'no file is left beside' 'two-00001-of-00002.safetensors two-00002-of-00002.safetensors' "$(find parts -name 'two*' -printf '%f\n' | sort | paste -sd' ')"

# A limit of the system's, which is too little for the small rows of a rank: MPI alone takes 20 MB.
if [ -z "${SAN:-}" ]; then
    "$WIDEOUT" data synthetic -m 300000 -d 64 -n 5000 -o wide -q >/dev/null
    wide=(build --layer wide/layer.safetensors --log wide/train.log.safetensors --method evidence --router tree --nodes 8 --leaves 8
        --source labels --weights int8-bf16 -t 1 -q)
    limited=(prlimit --data=36000000 "$mpi" "${wide[@]}")
    fails 'without --memory, two processes of 36 MB have too little' 1 'wideout-mpi: out of memory: 19200000 bytes asked for' \
        run 2 "${limited[@]}" -o parts/wide
    check 'with it they do' run 2 "${limited[@]}" --memory 8M -o parts/wide
    "$WIDEOUT" "${wide[@]}" -o one >/dev/null
    "$WIDEOUT" join parts/wide-* -o joined >/dev/null
    check 'and make the same index' cmp one joined
fi
finish
