#!/bin/bash
# wideout-mpi under mpirun, as root and without a network: the collective calls; builds, answers and judgements of 1, 2 and 4
# processes beside those of one; and what ends a job. KILLS=N kills so many builds, before they end, at random
# moments (default 3).
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/mpi/one_machine.sh
. "$(dirname "$0")/../mpi/one_machine.sh"
case $BUILD in /*) built=$BUILD ;; *) built=$PWD/$BUILD ;; esac
mpi=$built/wideout-mpi wrapper=$PWD/mpi/wideout-mpirun
if [ ! -x "$mpi" ] || ! command -v mpirun >/dev/null; then
    ok 'wideout-mpi is not built, or there is no mpirun # SKIP'
    finish
    exit
fi
scaling=$PWD/docs/SCALING.md
cd "$scratch" || exit 1
export TMPDIR=$scratch # of mpirun's own files
run() { # P COMMAND...: no job takes as long as this
    timeout 120 mpirun --quiet -n "$1" "${@:2}"
}

# ---- The calls ---------------------------------------------------------------------------------------------------
for p in 1 2 4; do same "collective calls of $p" fine "$(run $p "$built/tests/mpi/collective" 2>&1)"; done
fails 'a rank that fails says why, and the others nothing' 1 'collective: some/file: the disk is full' \
    run 4 "$built/tests/mpi/collective" fail
WIDEOUT_MPI_TIMEOUT=1 fails 'no wait is longer than the limit' 1 \
    'collective: rank 0 waited 1 s for the other ranks, which is the limit' run 2 "$built/tests/mpi/collective" late
for limit in 10m inf nan -1 1e9; do
    WIDEOUT_MPI_TIMEOUT=$limit fails "a limit of $limit" 1 "collective: \$WIDEOUT_MPI_TIMEOUT is '$limit', expected seconds" run 2 "$built/tests/mpi/collective"
done
# All others wait as long: whichever says it, no other does.
anyone() { # NAME SENTENCE COMMAND...: as fails, exit code 1; which rank says it is left open
    fails "$1" 1 "$2" any_rank "${@:3}"
}
any_rank() {
    "$@" 2>any_rank
    local code=$?
    sed 's/: rank [0-9] waited/: rank N waited/' any_rank >&2
    return $code
}
WIDEOUT_MPI_TIMEOUT=1 anyone 'where three wait, one says it' 'collective: rank N waited 1 s for the other ranks, which is the limit' \
    run 4 "$built/tests/mpi/collective" late
fails 'ranks with different words' 1 'collective: the command line differs between ranks 0 and 1' \
    timeout 60 mpirun --quiet -n 1 "$built/tests/mpi/collective" one : -n 1 "$built/tests/mpi/collective" other

# Each process says who it is, so that one of them can be killed.
echo "echo \$\$ >pid.\$OMPI_COMM_WORLD_RANK; exec \"\$@\"" >with_pid.sh
killed() { # RANK COMMAND...: mpirun's code, once that rank of two is killed
    rm -f pid.* begun.*
    run 2 bash with_pid.sh "${@:2}" &
    local job=$! i
    for ((i = 0; i < 600; i++)); do [ ! -e begun.0 ] || [ ! -e begun.1 ] || break; sleep 0.1; done
    kill -9 "$(<"pid.$1")"
    wait $job
}
fails 'a rank that is killed: the other says it' 137 'collective: the job was ended from outside: perhaps a rank died' \
    killed 1 "$built/tests/mpi/collective" late
for rank in 0 1; do
    WIDEOUT_MPI_TIMEOUT=2 fails "rank $rank never comes" 1 \
        'wideout-mpi: MPI does not start: the other ranks were waited for 2 s, which is the limit' \
        run 3 bash -c "[ \$OMPI_COMM_WORLD_RANK -ne $rank ] || exec sleep 30; exec $mpi predict --index x"
done
WIDEOUT_MPI_TIMEOUT=2 fails 'a rank never ends' 1 \
    'collective: MPI does not end: the other ranks were waited for 2 s, which is the limit' run 2 "$built/tests/mpi/collective" stay

# ---- The same as one process -------------------------------------------------------------------------------------
"$WIDEOUT" data synthetic -q -m 1501 -d 24 -n 3000 -t 1 -o data >/dev/null
layer=data/layer.safetensors train=data/train.log.safetensors test=data/test.log.safetensors
seq -f 'class %.0f' 0 1500 >names
methods=('--router tree' '--router hash -K 6 -L 3 --fallback 40' '--router tree --prior 0.5 --cap 12 --source labels --names names'
    '--router tree --nodes 1 --leaves 40 --weights bf16 --spread 2' '--method full' '--method popular --popular 100'
    '--method slide -K 5 -L 4' '--router tree --weights int8' '--method screen')
for method in "${methods[@]}"; do
    # shellcheck disable=SC2086 # several words
    "$WIDEOUT" build -q -t 1 --layer $layer --log $train $method -o one >/dev/null || not_ok "one process builds $method"
    "$WIDEOUT" predict --index one -k 5 $test >expected
    for p in 2 4; do
        rm -rf parts && mkdir parts
        # shellcheck disable=SC2086
        run $p "$mpi" build -q -t 1 --layer $layer --log $train $method -o parts/index >/dev/null || not_ok "$p build $method"
        "$WIDEOUT" join parts/index-*-of-0000$p.safetensors -o joined >/dev/null
        check "$p processes, joined, are one: $method" cmp one joined
        run $p "$mpi" predict -t 1 --index parts/index -k 5 $test >got
        check "$p processes answer as one: $method" cmp expected got
    done
done
# A screen of all classes beside rows in bf16, which it was not made of; its coordinates go by fours.
"$WIDEOUT" data synthetic -q -m 301 -d 22 -n 2000 -t 1 -o odd >/dev/null
for method in '--router tree --weights bf16' '-K 6 -L 3 --weights int8-bf16' '--router tree'; do
    odd=(--layer odd/layer.safetensors --log odd/train.log.safetensors --fallback 40 --fallback-by screen)
    rm -rf parts && mkdir parts
    # shellcheck disable=SC2086
    "$WIDEOUT" build -q -t 1 "${odd[@]}" $method -o one >/dev/null || not_ok "one process builds $method"
    # shellcheck disable=SC2086
    run 2 "$mpi" build -q -t 1 "${odd[@]}" $method -o parts/index >/dev/null || not_ok "2 build $method"
    "$WIDEOUT" join parts/index-* -o joined >/dev/null
    check "screens joined are one: $method" cmp one joined
done
# More candidates than an int8 screen keeps: each process keeps as many as one, so that together they find what it does, or better.
"$WIDEOUT" build -q -t 1 --layer $layer --log $train --method popular --popular 800 --weights int8 -o one >/dev/null
"$WIDEOUT" predict --index one -k 5 $test >expected
for p in 1 2 4; do
    rm -rf parts && mkdir parts
    run $p "$mpi" build -q -t 1 --layer $layer --log $train --method popular --popular 800 --weights int8 -o parts/index >/dev/null
    "$WIDEOUT" join parts/index-*-of-0000$p.safetensors -o joined >/dev/null 2>&1 || cp parts/index-* joined
    check "$p processes with a screen, joined, are one" cmp one joined
    run $p "$mpi" predict -t 1 --index parts/index -k 5 $test >got
    check "$p processes with a screen answer as one, or better" python3 - expected got $p <<'PY'
import sys
a, b = ([list(map(float, line.split())) for line in open(f)] for f in sys.argv[1:3])
assert len(a) == len(b) > 100
equal = 0
for x, y in zip(a, b):
    assert len(x) == len(y) == 10
    equal += x == y
    assert all(s <= t for s, t in zip(x[1::2], y[1::2])), (x, y)
assert equal >= (0.99 if sys.argv[3] != '1' else 1) * len(a), equal
PY
done
run 1 "$mpi" build -q -t 1 --layer $layer --log $train --router tree -o single >/dev/null
"$WIDEOUT" build -q -t 1 --layer $layer --log $train --router tree -o one >/dev/null
check 'a job of one writes an index' cmp one single-00001-of-00001.safetensors

# ---- The first commands of docs/SCALING.md, in a folder that has nothing but their files -------------------------
mkdir first
cp "$layer" first/net.safetensors
cp "$train" first/train.log
cp "$test" first/test.log
awk '/^    wideout shard /{found = 1} /^    mkdir /{found = 1} found && !/^    /{exit} found' "$scaling" >first/commands
check "SCALING's first commands" bash -c "cd first && PATH=$built:\$PATH timeout 120 bash -e commands"
check 'they end with an index' test -s first/index.safetensors

# ---- Shards that were dealt out ----------------------------------------------------------------------------------
mkdir s
"$WIDEOUT" shard --layer $layer --log $train -n 4 -o s/net >/dev/null
"$WIDEOUT" shard --layer $layer -n 2 -o s/net >/dev/null
run 4 "$mpi" build -q -t 1 --layer s/net --log $train --router tree -o s/index >/dev/null
"$WIDEOUT" join s/index-*.safetensors -o joined >/dev/null
check 'shards of four, dealt out by frequency, joined' cmp one joined
same 'each class is in one of them' "$(seq -s ' ' 0 1500) " "$(for f in s/net-*-of-00004.safetensors; do
    python3 - "$f" <<'PY'
import json, struct, sys
data = open(sys.argv[1], 'rb').read()
n = struct.unpack('<Q', data[:8])[0]
a, b = json.loads(data[8:8 + n])['classes']['data_offsets']
print('\n'.join(map(str, struct.unpack('<%di' % ((b - a) // 4), data[8 + n + a:8 + n + b]))))
PY
done | sort -n | tr '\n' ' ')"
run 2 "$mpi" build -q -t 1 --layer s/net --log $train --router tree --weights none -o s/none >/dev/null
"$WIDEOUT" predict --index one $test >expected
same 'an index without rows takes the shards of the layer' "$(cat expected)" \
    "$(run 2 "$mpi" predict -t 1 --index s/none --layer s/net $test)"
same 'exact answers' "$("$WIDEOUT" predict --index one --exact $test)" "$(run 4 "$mpi" predict -t 1 --index s/index --exact $test)"
near() { # NAME: expected and got, but for rounding
    check "$1" python3 - expected got <<'PY'
import sys
a, b = (open(f).read().split() for f in sys.argv[1:])
assert len(a) == len(b) > 100
for x, y in zip(a, b): assert abs(float(x) - float(y)) <= 2e-5 * max(abs(float(x)), 1), (x, y)
PY
}
"$WIDEOUT" predict --index one --softmax $test >expected
run 4 "$mpi" predict -t 1 --index s/index --softmax $test >got
near 'probabilities over the candidates of all'
"$WIDEOUT" predict --index one --exact --logprob $test >expected
run 4 "$mpi" predict -t 1 --index s/index --exact --logprob $test >got
near 'log Z of all shards'
# A file of answers; of standard output mpirun says nothing.
"$WIDEOUT" predict --index one --json $test >expected
same 'answers to a file: standard output has none' '' "$(run 4 "$mpi" predict -t 1 --index s/index --json -o answers $test)"
check 'answers to a file' cmp expected answers
run 4 "$mpi" predict -t 1 --index s/index --json --phases -o answers $test
same 'with phases, over what was there' "$(cat expected)" "$(sed \$d answers)"
fails 'answers over the queries' 2 "wideout-mpi predict: -o '$test' would replace what is read (see 'wideout-mpi predict --help')" run 4 "$mpi" predict --index s/index -o $test $test
fails 'answers over a shard' 2 "wideout-mpi predict: -o 's/index-00002-of-00004.safetensors' would replace what is read (see \
'wideout-mpi predict --help')" run 4 "$mpi" predict --index s/index -o s/index-00002-of-00004.safetensors $test
fails 'answers to a folder that is not there' 1 'wideout-mpi: nowhere/answers: the file cannot be created: No such file or directory' \
    run 4 "$mpi" predict --index s/index -o nowhere/answers $test
"$WIDEOUT" eval --index one --log $test --no-timing -t 1 --json >one.json
run 4 "$mpi" eval -t 1 --index s/index --log $test --json --rounds 1 -b 100 >four.json
wanted='[.p_at_1, .p_at_3, .p_at_5, .full_p_at_1, .full_p_at_5, .agreement_at_1, .agreement_at_5, .sample_size, .n]'
same 'judged as one' "$(jq -c "$wanted" one.json)" "$(jq -c "$wanted" four.json)"
check 'time and bytes by phase' jq -e '[.phases[] | select(.phase == "exchange" and .bytes > 0 and .seconds > 0)] | length == 1' \
    four.json
same 'a lone shard answers with numbers of the whole' "$(run 4 "$mpi" predict -t 1 --index s/index -k 1 $test | head -5 | cut -f1)" \
    "$(for f in s/index-*.safetensors; do "$WIDEOUT" predict --index "$f" -k 1 $test | head -5 | cat -n; done |
        sort -s -k1,1n -k3,3gr | awk '!seen[$1]++ { print $2 }')"
fails 'a lone shard is not judged' 1 "wideout: s/index-00002-of-00004.safetensors: the index is shard 2 of 4: alone it is not to be \
compared with the whole layer; 'wideout join' makes one index of all, 'wideout-mpi eval' asks all" \
    "$WIDEOUT" eval --index s/index-00002-of-00004.safetensors --log $test

# ---- What ends a job ---------------------------------------------------------------------------------------------
tree=(--log "$train" --router tree -q -t 1)
fails 'tuning' 2 "wideout-mpi build: unknown option '--tune-log': several processes do not tune: tune on one machine, with a sample \
of the classes, and give its options (see 'wideout-mpi build --help')" run 2 "$mpi" build --layer $layer --tune-log $test -o x
fails 'log Z' 1 'wideout-mpi: --partition: partition is 1, but log Z is not learned by several processes' \
    run 2 "$mpi" build --layer $layer "${tree[@]}" --partition -o x
case $(uname -m) in x86_64 | aarch64)
    fails 'two instruction sets' 1 "wideout-mpi: the instruction set, which \$WIDEOUT_CPU can lower, differs between ranks 0 and 1" \
        run 2 bash -c "[ \$OMPI_COMM_WORLD_RANK -eq 0 ] || export WIDEOUT_CPU=ref; exec $mpi build --layer $layer ${tree[*]} -o x"
    ;;
esac
fails 'an unknown command' 2 "wideout-mpi: unknown command 'bild' (see 'wideout-mpi --help')" run 2 "$mpi" bild
cp s/index-00001-of-00004.safetensors keep
rm s/index-00003-of-00004.safetensors
fails 'a missing shard' 1 'wideout-mpi: s/index-00003-of-00004.safetensors: the file cannot be opened: No such file or directory' \
    run 4 "$mpi" predict --index s/index $test
# An empty one: no bytes, or no rows.
: >s/index-00003-of-00004.safetensors
fails 'an index of no bytes' 1 'wideout-mpi: s/index-00003-of-00004.safetensors: the file is empty' run 4 "$mpi" predict --index s/index $test
cp s/net-00001-of-00002.safetensors empty-00001-of-00002.safetensors
: >empty-00002-of-00002.safetensors
fails 'a shard of no bytes' 1 'wideout-mpi: empty-00002-of-00002.safetensors: the file is empty' \
    run 2 "$mpi" build --layer empty "${tree[@]}" -o x
python3 -c 'import struct
text = b"{\"weight\":{\"dtype\":\"F32\",\"shape\":[0,24],\"data_offsets\":[0,0]}}"
text += b" " * (-len(text) % 8)
open("empty-00002-of-00002.safetensors", "wb").write(struct.pack("<Q", len(text)) + text)'
fails 'a shard of no rows' 1 'wideout-mpi: empty-00002-of-00002.safetensors: a layer of 0 classes and 24 dimensions cannot be: expected at least 1, '\
'and at most 2147483647 and 536870911' run 2 "$mpi" build --layer empty "${tree[@]}" -o x
cp s/index-00002-of-00004.safetensors s/index-00003-of-00004.safetensors
fails 'a shard twice' 1 'wideout-mpi: s/index-00003-of-00004.safetensors: it is shard 2 of 4, but rank 2 of 4 wants shard 3 of 4' \
    run 4 "$mpi" predict --index s/index $test
fails 'join: a shard twice' 1 'wideout: s/index-00003-of-00004.safetensors: shard 2 of 4 is there already' \
    "$WIDEOUT" join s/index-*.safetensors -o x
fails 'join: one is missing' 1 'wideout: s/index-00001-of-00004.safetensors: the index is shard 1 of 4, but 2 files were given: all shards, each once' \
    "$WIDEOUT" join s/index-0000[12]-of-00004.safetensors -o x
fails 'join: no shard' 1 'wideout: one: the index is no shard, but 1 file was given: all shards, each once' "$WIDEOUT" join one -o x
run 4 "$mpi" build --layer s/net "${tree[@]}" --lambda 0.2 -o s/other >/dev/null
cp s/other-00003-of-00004.safetensors s/index-00003-of-00004.safetensors
fails 'a shard of another build' 1 'wideout-mpi: the build of the index, by its options, differs between ranks 0 and 2' \
    run 4 "$mpi" predict --index s/index $test
fails 'join: a shard of another build' 1 \
    'wideout: s/index-00003-of-00004.safetensors: the shard is of another build than the first one: lambda differs' \
    "$WIDEOUT" join s/index-*.safetensors -o x
"$WIDEOUT" data synthetic -q -m 1501 -d 24 -n 3000 -t 1 --seed 2 -o data2 >/dev/null
"$WIDEOUT" shard --layer data2/layer.safetensors -n 4 -o s/net2 >/dev/null
cp s/net2-00002-of-00004.safetensors s/net-00002-of-00004.safetensors
fails 'a shard of another layer' 1 'wideout-mpi: the layer differs between ranks 0 and 1' \
    run 4 "$mpi" build --layer s/net "${tree[@]}" -o x
# Shards of one layer, but of two dealings: some classes twice, others nowhere.
mkdir mixed
cp s/net-*-of-00004.safetensors mixed
"$WIDEOUT" shard --layer $layer -n 4 -o m >/dev/null
cp m-00002-of-00004.safetensors mixed/net-00002-of-00004.safetensors
run 4 "$mpi" build --layer m "${tree[@]}" -o mixed/other >/dev/null
dealing='wideout-mpi: the dealing of classes to shards, or what they are called, differs between ranks 0 and'
fails 'shards of two dealings' 1 "$dealing 1" run 4 "$mpi" build --layer mixed/net "${tree[@]}" -o x
for i in 1 2 3 4; do cp "s/other-0000$i-of-00004.safetensors" "mixed/index-0000$i-of-00004.safetensors"; done
cp mixed/other-00003-of-00004.safetensors mixed/index-00003-of-00004.safetensors
fails 'indexes of two dealings' 1 "$dealing 2" run 4 "$mpi" predict --index mixed/index $test
fails 'judged' 1 "$dealing 2" run 4 "$mpi" eval --index mixed/index --log $test
fails 'join: indexes of two dealings' 1 "wideout: mixed/index-00003-of-00004.safetensors: the shard is of another dealing of the layer's \
classes than the first one, or of other names" "$WIDEOUT" join mixed/index-*.safetensors -o x
# Shards of strangers, whose digest is right and whose classes are not: the second has those of the first.
sign=$built/tests/tools/sign
as_second=('"shard.number":"0"' '"shard.number":"1"')
once='each class of a layer is in one of its shards'
mkdir twice
"$WIDEOUT" shard --layer $layer -n 2 -o twice/net >/dev/null
run 2 "$mpi" build --layer twice/net "${tree[@]}" --weights bf16 -o twice/index >/dev/null
for kind in net index; do "$sign" twice/$kind-00001-of-00002.safetensors twice/$kind-00002-of-00002.safetensors "${as_second[@]}"; done
fails 'layers that share classes' 1 "wideout-mpi: class 0 is in shard 1 and in shard 2: $once" \
    run 2 "$mpi" build --layer twice/net "${tree[@]}" --rows 8 --cap 200 -o x
fails 'indexes that share classes' 1 "wideout-mpi: class 0 is in shard 1 and in shard 2: $once" run 2 "$mpi" predict --index twice/index $test
fails 'judged too' 1 "wideout-mpi: class 0 is in shard 1 and in shard 2: $once" run 2 "$mpi" eval --index twice/index --log $test
echo good >twice/joined
fails 'join: indexes that share classes' 1 "wideout: class 0 is in shard 1 and in shard 2: $once" \
    "$WIDEOUT" join twice/index-*.safetensors -o twice/joined
same 'what was there stays' good "$(cat twice/joined)"
"$sign" twice/index-00001-of-00002.safetensors alone-00001-of-00001.safetensors '"shard.count":"2"' '"shard.count":"1"'
fails 'a shard that is alone' 1 "wideout-mpi: class 1 is in no shard: $once" run 1 "$mpi" predict --index alone $test
# What only some ranks have otherwise. Each opens a file of its own under the one name.
each() { # FILE OF-RANK-0 OF-OTHERS COMMAND...
    printf '%s\n' "mkdir -p rank\$OMPI_COMM_WORLD_RANK && cd rank\$OMPI_COMM_WORLD_RANK || exit" \
        "if [ \$OMPI_COMM_WORLD_RANK -eq 0 ]; then cp '$scratch/$2' '$1'; else cp '$scratch/$3' '$1'; fi" "exec ${*:4}" >each.sh
    run 2 bash "$scratch/each.sh"
}
python3 - $train <<'PY'
import hashlib, json, shutil, struct, sys
data = open(sys.argv[1], 'rb').read()
n = struct.unpack('<Q', data[:8])[0]
header = json.loads(data[8:8 + n])
def write(name, of):
    # As another's file, without checksums: one number of the tensor changed, in the middle of it.
    tensors = {k: v for k, v in header.items() if k != '__metadata__'}
    text = json.dumps(tensors).encode()
    text += b' ' * (-len(text) % 8)
    body = bytearray(data[8 + n:])
    if of:
        a, b = tensors[of]['data_offsets']
        at = a + (b - a) // 8 * 4 + 36
        body[at] ^= 1
    open(name, 'wb').write(struct.pack('<Q', len(text)) + text + body)
write('plain', None)
write('queries', 'queries')
write('labels', 'labels.indices')
PY
log='wideout-mpi: the log, by its queries and labels, differs between ranks 0 and 1'
for other in queries labels; do
    fails "logs with other $other" 1 "$log" each log plain $other "$mpi" build --layer "$scratch/$layer" --log log --router tree -q -o x
done
sed 's/ 700$/ seven hundred/' names >other_names
fails 'other names' 1 "$dealing 1" each names names other_names "$mpi" build --layer "$scratch/$layer" --log "$scratch/$train" --names names \
    --router tree -q -o x
# Another layer on rank 1, of which it reads its own rows alone: another's, one number changed in its rows or biases.
other_layer='wideout-mpi: the layer differs between ranks 0 and 1'
"$WIDEOUT" data synthetic -q -m 1501 -d 24 -n 100 -t 1 --seed 2 -o data3 >/dev/null
python3 - $layer <<'PY'
import array, json, random, struct, sys
data = open(sys.argv[1], 'rb').read()
n = struct.unpack('<Q', data[:8])[0]
tensors = {k: v for k, v in json.loads(data[8:8 + n]).items() if k != '__metadata__'}
m, d = tensors['weight']['shape']
a, b = tensors['weight']['data_offsets']
rows = bytearray(data[8 + n + a:8 + n + b])
random.seed(1)
biases = bytearray(array.array('f', [random.random() for _ in range(m)]).tobytes())
def change(body): # the last number, which is rank 1's
    other = bytearray(body)
    other[-4] ^= 1
    return other
def npy(name, shape, body):
    head = repr({'descr': '<f4', 'fortran_order': False, 'shape': shape})
    head += ' ' * (-(len(head) + 11) % 64) + '\n'
    open(name, 'wb').write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head.encode() + body)
npy('w.npy', (m, d), rows)
npy('b.npy', (m,), biases)
npy('b_other.npy', (m,), change(biases))
def st(name, rows, biases): # as another's file, without checksums
    head = {'weight': {'dtype': 'F32', 'shape': [m, d], 'data_offsets': [0, len(rows)]},
            'bias': {'dtype': 'F32', 'shape': [m], 'data_offsets': [len(rows), len(rows) + len(biases)]}}
    text = json.dumps(head).encode()
    text += b' ' * (-len(text) % 8)
    open(name, 'wb').write(struct.pack('<Q', len(text)) + text + rows + biases)
st('l', rows, biases)
st('l_row', change(rows), biases)
st('l_bias', rows, change(biases))
flipped = bytearray(data)
flipped[8 + n + b - 4] ^= 1
open('flipped', 'wb').write(flipped)
PY
others=("$layer data3/layer.safetensors" "$layer flipped" 'l l_row' 'l l_bias')
for other in "${others[@]}"; do
    fails "layers: $other" 1 "$other_layer" each layer "${other% *}" "${other#* }" "$mpi" build --layer layer --log "$scratch/$train" \
        --router tree -q -o x
done
same 'one layer in two folders' 2 "$(each layer l l "$mpi" build --layer layer --log "$scratch/$train" --router tree -q -t 1 \
    -o "$scratch/two" >/dev/null && find . -maxdepth 1 -name 'two-*' | wc -l)"
fails 'other biases' 1 "$other_layer" each bias b.npy b_other.npy "$mpi" build --layer "$scratch/w.npy" --bias bias --log "$scratch/$train" \
    --router tree -q -o x
run 2 "$mpi" build --layer $layer --log "$train" --router tree --weights none -q -t 1 -o none >/dev/null
for other in "${others[@]:0:2}"; do
    fails "an index without rows, and ${other#* }" 1 "$other_layer" each layer $layer "${other#* }" "$mpi" predict --layer layer \
        --index "$scratch/none" "$scratch/$test"
done
fails 'shards for another number of processes' 1 \
    'wideout-mpi: s/net2-00001-of-00002.safetensors: the file cannot be opened: No such file or directory' \
    run 2 "$mpi" build --layer s/net2 "${tree[@]}" -o x
fails 'a whole index in a job of two' 1 \
    'wideout-mpi: one: it is a whole index, but this is a job of 2 processes: each has a shard' run 2 "$mpi" predict --index one $test
"$WIDEOUT" data synthetic -q -m 3 -d 24 -n 100 -t 1 -o three >/dev/null
few="layer.safetensors: a layer of 3 classes cannot be in 4 shards: each has at least one class, and there are at most 99999"
fails 'more processes than classes' 1 "wideout-mpi: three/$few" run 4 "$mpi" build --layer three/layer.safetensors --log three/train.log.safetensors --router tree -o x
fails 'shard: more files than classes' 1 "wideout: three/$few" "$WIDEOUT" shard --layer three/layer.safetensors -n 4 -o x
fails 'an output folder that is not there' 1 \
    'wideout-mpi: nowhere/x-00001-of-00002.safetensors: the file cannot be created: No such file or directory' \
    run 2 "$mpi" build --layer $layer "${tree[@]}" -o nowhere/x
# A silent pipe, and a rank that is stopped: mpirun ends the first, and wakes the second, which have nothing to say then.
silent() { # COMMAND...
    mkfifo pipe
    sleep 60 >pipe &
    "$@" <pipe
    local code=$?
    kill $!
    rm pipe
    return $code
}
run 4 "$mpi" build --layer $layer "${tree[@]}" -o s/four >/dev/null
WIDEOUT_MPI_TIMEOUT=1 anyone 'a pipe that is silent' 'wideout-mpi: rank N waited 1 s for the other ranks, which is the limit' \
    silent run 4 "$mpi" predict -t 1 --index s/four -
stopped() { # RANK COMMAND...
    rm -f pid.*
    run 4 bash with_pid.sh "${@:2}" &
    local job=$! i
    for ((i = 0; i < 300; i++)); do [ ! -s "pid.$1" ] || break; sleep 0.1; done
    sleep 1
    kill -STOP "$(<"pid.$1")"
    wait $job
}
WIDEOUT_MPI_TIMEOUT=2 anyone 'rank 0 is stopped' 'wideout-mpi: rank N waited 2 s for the other ranks, which is the limit' \
    stopped 0 "$mpi" eval -t 1 --index s/four --log $train --no-full --rounds 1000 -b 64
# One rank's disk is full: neither has an index. A sanitizer wants to be loaded first.
mkdir full
if [ -z "${SAN:-}" ]; then
    fails 'a full disk' 1 'wideout-mpi: full/index-00002-of-00002.safetensors: the file cannot be written: No space left on device' \
        run 2 bash -c "[ \$OMPI_COMM_WORLD_RANK -eq 0 ] || export LD_PRELOAD=$built/tests/failing_io.so; export IO_UNDER=$scratch/full \
IO_CALL=write IO_AT=1 IO_HOW=28; exec $mpi build --layer $layer ${tree[*]} -o full/index"
    same 'what took long is left of it' index.checkpoint "$(ls -A full)"
    run 2 "$mpi" build --layer $layer "${tree[@]}" --resume --json -o full/index >full.json
    check 'a job that goes on asks nothing twice' jq -e '[.phases[] | select(.phase == "asking the exact layer" and .bytes == 0)] | length == 1' \
        full.json
    "$WIDEOUT" join full/index-*.safetensors -o joined >/dev/null
    "$WIDEOUT" build -q -t 1 --layer $layer --log $train --router tree -o one >/dev/null
    check 'and writes the same files' cmp one joined
    same 'and what was left is gone' '' "$(find full -name '*.checkpoint')"
    # One rank cannot give its file the name, or dies when it does: what took long is there until all have theirs.
    for how in 5 kill; do
        code=1 sentence='wideout-mpi: full/named-00002-of-00002.safetensors: the file cannot be renamed into place: Input/output error'
        [ $how = 5 ] || code=137 sentence='wideout-mpi: the job was ended from outside: perhaps a rank died'
        fails "no name for a file: $how" $code "$sentence" run 2 bash -c "[ \$OMPI_COMM_WORLD_RANK -eq 0 ] || export \
LD_PRELOAD=$built/tests/failing_io.so IO_UNDER=$scratch/full/named-00002 IO_CALL=rename IO_AT=1 IO_HOW=$how; exec $mpi build --layer $layer ${tree[*]} -o full/named"
        check "the checkpoint stays: $how" test -e full/named.checkpoint
        run 2 "$mpi" build --layer $layer "${tree[@]}" --resume -o full/named >/dev/null
        "$WIDEOUT" join full/named-*.safetensors -o joined >/dev/null
        check "and is enough: $how" cmp one joined
        same "no more is left: $how" 'named-00001-of-00002.safetensors named-00002-of-00002.safetensors' \
            "$(find full -name 'named*' -printf '%f\n' | sort | paste -sd' ')"
        rm -f full/named*
    done
    fails 'no space for answers' 1 'wideout-mpi: full/answers: the file cannot be written: No space left on device' \
        run 4 bash -c "[ \$OMPI_COMM_WORLD_RANK -ne 0 ] || export LD_PRELOAD=$built/tests/failing_io.so; export IO_UNDER=$scratch/full/ \
IO_CALL=write IO_AT=1 IO_HOW=28; exec $mpi predict -t 1 --index s/four -o full/answers $test"
    same 'nothing is left of them' '' "$(find full -name 'answers*')"
    # A rank that dies when it opens its index, or as it writes answers.
    for dies in "1 s/four-00002 mmap" "0 full/ write"; do
        read -r rank under call <<<"$dies"
        fails "rank $rank dies in $call" 137 'wideout-mpi: the job was ended from outside: perhaps a rank died' run 4 bash -c "[ \
\$OMPI_COMM_WORLD_RANK -ne $rank ] || export LD_PRELOAD=$built/tests/failing_io.so IO_UNDER=$scratch/$under IO_CALL=$call IO_AT=1 IO_HOW=kill
exec $mpi predict -t 1 --index s/four -o full/answers $test"
        same 'no answers' '' "$(find full -name 'answers*')"
    done
    # All is written, and rank 0 does not come to say so.
    WIDEOUT_MPI_TIMEOUT=10 fails 'a rank that is late for the report' 1 'wideout-mpi: rank 1 waited 10 s for the other ranks, which is the limit' \
        run 2 bash -c "[ \$OMPI_COMM_WORLD_RANK -ne 0 ] || export LD_PRELOAD=$built/tests/failing_io.so; export \
IO_UNDER=$scratch/late.checkpoint IO_CALL=unlink IO_AT=1 IO_HOW=sleep; exec $mpi build --layer $layer ${tree[*]} -o late"
fi

echo 'a letter' >x.checkpoint
fails 'a checkpoint that is none' 1 'wideout-mpi: x.checkpoint: the file exists and is no checkpoint of a build of wideout'"'"'s: move it away' \
    run 2 "$mpi" build --layer $layer "${tree[@]}" -o x

# ---- Hosts that do not answer ------------------------------------------------------------------------------------
printf '%s\n' '#!/bin/bash' 'case "$*" in *good*) exit 0 ;; *slow*) exec sleep 60 ;; esac' 'echo "ssh: No route to host" >&2' 'exit 255' >ssh
chmod +x ssh
printf '%s\n' '# ours' '' 'good1 slots=1' 'bad1 slots=1' 'localhost' >hosts
start=$PWD/ssh
fails 'a host that is not there' 1 'wideout-mpirun: host bad1 does not answer by ssh within 10 s: nothing was started' \
    env WIDEOUT_SSH="$start" "$wrapper" --hostfile hosts -n 2 "$mpi" predict --index x
WIDEOUT_SSH_TIMEOUT=1 fails 'one that is silent, and another' 1 \
    'wideout-mpirun: 2 hosts do not answer by ssh within 1 s, the first is bad2: nothing was started' \
    env WIDEOUT_SSH="$start" timeout 30 "$wrapper" --host good1,slow1:2,bad2 -n 2 "$mpi" predict --index x
printf '%s\n' '# two programs' '-n 1 --host good1 wideout-mpi predict --index x' '-n 1 --host bad2 wideout-mpi predict --index x' >app
gone='does not answer by ssh within 10 s: nothing was started'
fails 'a host of --app' 1 "wideout-mpirun: host bad2 $gone" env WIDEOUT_SSH="$start" "$wrapper" --app app
fails 'a host of the default hostfile' 1 "wideout-mpirun: host bad1 $gone" env WIDEOUT_SSH="$start" "$wrapper" --default-hostfile hosts -n 2 \
    "$mpi" predict --index x
fails 'a host of the environment'"'"'s' 1 "wideout-mpirun: host bad1 $gone" env WIDEOUT_SSH="$start" OMPI_MCA_orte_default_hostfile=hosts \
    "$wrapper" -n 2 "$mpi" predict --index x
same 'which is not read beside others' fine "$(OMPI_MCA_orte_default_hostfile=hosts WIDEOUT_SSH=$start timeout 60 "$wrapper" --quiet \
    --host localhost:2 -n 2 "$built/tests/mpi/collective" 2>&1)"
fails 'no file of --app' 1 'wideout-mpirun: nowhere: the file of --app cannot be read' "$wrapper" --app nowhere
fails 'no hostfile' 1 'wideout-mpirun: nowhere: the hostfile cannot be read' "$wrapper" --hostfile nowhere -n 2 "$mpi" predict
same 'all are there: it is mpirun' fine "$(WIDEOUT_SSH=$start timeout 60 "$wrapper" --quiet --host localhost:2 -n 2 \
    "$built/tests/mpi/collective" 2>&1)"
fails 'mpirun alone says what ssh says' 255 'ssh: No route to host' \
    env OMPI_MCA_plm=rsh timeout 60 mpirun --quiet --mca plm_rsh_agent "$start" --host bad1 -n 1 "$mpi" predict --index x

# ---- A rank that dies --------------------------------------------------------------------------------------------
RANDOM=${SEED:-1}
problems='' died=0 n_said=0
"$WIDEOUT" data synthetic -q -m 6000 -d 32 -n 20000 -t 1 -o larger >/dev/null
build_larger() { # P [OPTION]
    run "$1" "$mpi" build --layer larger/layer.safetensors --log larger/train.log.safetensors --router tree -q -t 1 -o k/index \
        "${@:2}" >stdout 2>stderr
}
mkdir k
start=${EPOCHREALTIME/./}
build_larger 4
takes=$((${EPOCHREALTIME/./} - start))
"$WIDEOUT" join k/index-* -o one >/dev/null
# Until so many died in time; what comes too late is not counted, and the next one comes earlier.
for ((i = 0; died < ${KILLS:-3} && i < 4 * ${KILLS:-3}; i++)); do
    rm -rf k && mkdir k
    build_larger 4 &
    job=$!
    after=$((takes / 4 + (RANDOM * 32768 + RANDOM) % takes))
    sleep "$((after / 1000000)).$(printf %06d $((after % 1000000)))"
    # One of the ranks of this very job: job, timeout, mpirun, ranks.
    ranks=$job
    for _ in 1 2 3; do ranks=$(for parent in $ranks; do pgrep -P "$parent"; done); done
    rank=$(sed -n "$((1 + RANDOM % 4))p" <<<"$ranks")
    [ -z "$rank" ] || kill -9 "$rank" 2>/dev/null
    wait $job
    code=$?
    if [ "$code" -eq 0 ]; then takes=$((takes * 9 / 10)); else died=$((died + 1)); fi
    # One sentence; or nothing where the rank died while MPI started. A checkpoint is there when all ranks had begun.
    said=$(<stderr)
    if [ -n "$said" ]; then n_said=$((n_said + 1)); fi
    case $said in
    'wideout-mpi: the job was ended from outside: perhaps a rank died') ;;
    '') if [ "$code" -ne 0 ] && [ -e k/index.checkpoint ]; then problems+=" nobody says that rank $rank died"; fi ;;
    *) problems+=" said: $said" ;;
    esac
    n=$(find k -name '*.safetensors' | wc -l)
    [ "$code" -ne 124 ] || problems+=" a job hangs"
    if [ "$code" -eq 0 ] && [ "$n" -ne 4 ]; then problems+=" done, but $n files"; fi
    for f in k/*.safetensors; do
        [ ! -f "$f" ] || "$WIDEOUT" info "$f" >/dev/null || problems+=" $f is half-made"
    done
    if [ "$n" -eq 4 ]; then "$WIDEOUT" join k/index-*.safetensors -o joined >/dev/null || problems+=" four that are not one"; fi
    # The next job goes on, in another number of processes.
    p=$((1 + i % 4))
    rm -f k/*.safetensors joined
    build_larger $p --resume
    cp k/index-*-of-0000$p.safetensors .
    if [ $p = 1 ]; then mv index-* joined; else "$WIDEOUT" join index-*-of-0000$p.safetensors -o joined >/dev/null; fi
    rm -f index-*
    cmp -s one joined || problems+=" one that goes on is another"
    [ ! -e k/index.checkpoint ] || problems+=" a checkpoint stays"
    rm -f k/index-*-of-0000$p.safetensors
    same_folder=$(ls -A k)
    [ -z "$same_folder" ] || problems+=" left behind: $same_folder"
done
same "a rank is killed $i times, $died in time, $n_said told of" '' "$problems"
finish
