#!/bin/bash
# wideout eval: what it prints, what it refuses, quality that does not depend on threads, energy from a made-up machine.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
case $BUILD in /*) sign=$BUILD/tests/tools/sign ;; *) sign=$PWD/$BUILD/tests/tools/sign ;; esac
golden=$PWD/tests/golden
cd "$scratch" || exit 1
export WIDEOUT_POWERCAP=$scratch/nothing

layer=s/layer.safetensors
train=s/train.log.safetensors
log=s/test.log.safetensors
"$WIDEOUT" data synthetic -q -m 600 -d 16 -n 4000 -o s >/dev/null
for method in full popular slide evidence; do
    extra=()
    [ "$method" = evidence ] && extra=(-K 6 --iterations 20)
    [ "$method" = slide ] && extra=(-K 5 -L 2)
    [ "$method" = popular ] && extra=(--popular 50)
    "$WIDEOUT" build -q --layer $layer --log $train --method "$method" "${extra[@]}" -o "$method.idx" >/dev/null ||
        not_ok "build $method"
done
"$WIDEOUT" build -q --layer $layer --log $train --method popular --popular 50 --weights none -o bare.idx >/dev/null

evaluate() { # METHOD ARGUMENT...
    "$WIDEOUT" eval -q --index "$1.idx" --log $log "${@:2}"
}

int64() { # NUMBER...: as bytes
    local number i
    for number; do
        for ((i = 0; i < 64; i += 8)); do printf '%b' "\\x$(printf %02x $((number >> i & 255)))"; done
    done
}

log_file() { # FILE N D INDPTR INDICES: queries of ones; lists of numbers, or nothing for a log without labels
    local ones=$(($2 * $3)) labels=() header end i
    read -ra indptr <<<"$4"
    read -ra labels <<<"$5"
    header='{"queries":{"dtype":"F32","shape":['$2,$3'],"data_offsets":[0,'$((ones * 4))']}'
    if [ -n "$4" ]; then
        end=$((ones * 4 + ${#indptr[@]} * 8))
        header+=',"labels.indptr":{"dtype":"I64","shape":['${#indptr[@]}'],"data_offsets":['$((ones * 4)),$end']}'
        header+=',"labels.indices":{"dtype":"I64","shape":['${#labels[@]}'],"data_offsets":['$end,$((end + ${#labels[@]} * 8))']}'
    fi
    header+='}'
    {
        int64 ${#header}
        printf '%s' "$header"
        for ((i = 0; i < ones; i++)); do printf '\0\0\x80\x3f'; done
        int64 "${indptr[@]}" "${labels[@]}"
    } >"$1"
}

# ---- Figures -----------------------------------------------------------------------------------------------------
evaluate evidence --no-timing --json >quality.json
check 'quality fields are numbers' jq -e '[.m, .d, .n, .p_at_1, .p_at_3, .p_at_5, .full_p_at_1, .full_p_at_3, .full_p_at_5,
    .agreement_at_1, .agreement_at_5, .label_recall, .sample_size, .cells, .empty_share, .label_rank,
    .label_rank_retrieved] | all(type == "number")' quality.json
same 'what was judged' '["evidence",600,16,400,0,0]' \
    "$(jq -c '[.method, .m, .d, .n, .without_label, .not_finite]' quality.json)"
same 'without timing times are null' '[null,null,null,null,null,null,[]]' \
    "$(jq -c '[.us_per_query, .full_us_per_query, .speedup, .batch, .cpu_s_per_1000, .energy_j_per_1000, .timings]' quality.json)"
check 'FULL is the better one' jq -e '.p_at_1 <= .full_p_at_1 + 0.02 and .sample_size < 300 and .label_rank >= 1' quality.json
for threads in 1 2; do evaluate slide --no-timing --json -k 1,3,20 --threads $threads >"t$threads.json"; done
check 'quality does not depend on the threads' cmp <(jq "del(.date, .options)" t1.json) <(jq "del(.date, .options)" t2.json)
same 'agreement for every k asked' '["agreement_at_1","agreement_at_20","agreement_at_3"]' \
    "$(jq -c '[keys[] | select(startswith("agreement"))]' t1.json)"
same 'full agrees with itself' '[1,1,600,1,0]' \
    "$(evaluate full --no-timing --json | jq -c '[.agreement_at_1, .agreement_at_5, .sample_size, .label_recall, .empty_share] | map(floor)')"
same 'full has its ranks' true "$(evaluate full --no-timing --json | jq '.label_rank == .label_rank_retrieved and .p_at_5 == .full_p_at_5')"
same 'popular scores its classes' '[50,1,0]' \
    "$(evaluate popular --no-timing --json | jq -c '[.sample_size, .cells, .empty_share] | map(floor)')"
check 'more probes, more classes' test "$(evaluate slide --no-timing --json --probes 4 | jq '.sample_size > 1.5 * '"$(jq .sample_size t1.json)")" = true
same 'a sample' '[100,100]' \
    "$(for seed in 1 2; do evaluate slide --no-timing --json --max-queries 100 --seed $seed; done | jq -s -c 'map(.n)')"
check 'the sample follows the seed' test "$(for seed in 1 1 2; do
    evaluate slide --no-timing --json --max-queries 100 --seed $seed
done | jq -s 'map(del(.date)) | .[0] == .[1] and .[0].sample_size != .[2].sample_size')" = true

# ---- Rows from elsewhere -----------------------------------------------------------------------------------------
"$WIDEOUT" eval -q --index bare.idx --layer $layer --log $log --no-timing --json | jq 'del(.index, .date, .options)' >bare.json
evaluate popular --no-timing --json | jq 'del(.index, .date, .options)' >with.json
check 'rows of the layer, rows of the index' cmp bare.json with.json
evaluate popular --no-timing --json --layer $layer | jq 'del(.index, .date, .options)' >both.json
check '... and both' cmp both.json with.json

# ---- Logs without labels -----------------------------------------------------------------------------------------
log_file plain.log 50 16 '' ''
same 'no labels: agreement alone' '[50,50,null,null,null,null,null,true]' "$("$WIDEOUT" eval --index popular.idx --log plain.log \
    --no-timing --json | jq -c '[.n, .without_label, .p_at_1, .full_p_at_5, .label_recall, .label_rank,
    .label_rank_retrieved, .agreement_at_5 <= 1]')"
check 'and said so' grep -q 'plain.log: 50 queries, no labels' <<<"$("$WIDEOUT" eval --index popular.idx --log plain.log --no-timing)"
log_file some.log 3 16 '0 1 1 3' '5 7 8'
same 'queries without a label are counted' '[3,1]' \
    "$("$WIDEOUT" eval --index popular.idx --log some.log --no-timing --json | jq -c '[.n, .without_label]')"

# ---- What is not finite ------------------------------------------------------------------------------------------
log_file four.log 4 16 '0 1 2 3 4' '5 7 8 9'
begin=$(($(stat -c %s four.log) - 4 * 16 * 4 - 9 * 8))
for ((i = 0; i < 16; i++)); do printf '\xff\xff\x7f\x7f'; done | dd of=four.log bs=1 seek=$((begin + 64)) conv=notrunc status=none
printf '\0\0\xc0\x7f' | dd of=four.log bs=1 seek=$((begin + 128)) conv=notrunc status=none
log_file two.log 2 16 '0 1 2' '5 9'
for method in evidence full; do
    "$WIDEOUT" eval --index $method.idx --log four.log --no-timing --json >four.json
    same "$method: scores that are not finite are left out and counted, as numbers are" '[2,0,2]' \
        "$(jq -c '[.n, .without_label, .not_finite]' four.json)"
    check "$method: figures are those of the others" cmp <(jq 'del(.log, .date, .not_finite)' four.json) \
        <("$WIDEOUT" eval --index $method.idx --log two.log --no-timing --json | jq 'del(.log, .date, .not_finite)')
done
same 'said' 'four.log: 2 queries; 2 with numbers or scores that are not finite left out' \
    "$("$WIDEOUT" eval --index evidence.idx --log four.log --no-timing | sed -n 2p)"
log_file large.log 3 16 '0 1 2 3' '5 7 9'
for ((i = 0; i < 16; i++)); do printf '\xff\xff\x7f\x7f'; done | dd of=large.log bs=1 seek=$(($(stat -c %s large.log) - 3 * 64 - 7 * 8)) conv=notrunc status=none
same 'build says it too' 'wideout: warning: large.log: 1 of 3 queries with numbers or scores that are not finite: no index answers it' \
    "$("$WIDEOUT" build --layer $layer --log large.log --method popular --popular 9 -o four.idx 2>&1 >/dev/null | grep large.log:)"
same 'and of a tune log' 'wideout: warning: four.log: 2 of 4 queries with numbers or scores that are not finite: no index answers them' \
    "$("$WIDEOUT" build --layer $layer --log $train --tune-log four.log --target 0.1 --max-time 1s -o four.idx 2>&1 >/dev/null | grep four.log:)"

# A layer with rows so large that most scores are not finite: as many as eval leaves out.
{
    printf '\x93NUMPY\1\0\x76\0%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (600, 16), }"
    for ((i = 0; i < 9600; i++)); do printf '\xff\xff\x7f\x7f'; done
} >big.npy
"$WIDEOUT" build --layer big.npy --log $log --method full -o big.idx >/dev/null 2>err
refused=$("$WIDEOUT" eval --index big.idx --log $log --no-timing --json 2>/dev/null | jq .not_finite)
n=$("$WIDEOUT" info --json $log | jq '.tensors[] | select(.name == "queries").shape[0]')
same 'large rows' "wideout: warning: $log: $refused of $n queries with numbers or scores that are not finite: no index answers them" \
    "$(grep finite err)"
check 'most queries' test "$refused" -gt $((n / 2))

# ---- Time --------------------------------------------------------------------------------------------------------
evaluate evidence --json --rounds 1 --threads 2 >timed.json
same 'batches and threads' '[[1,1],[1024,2]]' "$(jq -c '[.timings[] | [.batch, .threads]]' timed.json)"
check 'every timing is complete' jq -e '[.timings[] | .us_per_query, .us_per_query_p99, .full_us_per_query,
    .full_us_per_query_p99, .speedup, .cpu_s_per_1000, .full_cpu_s_per_1000, .calls, .full_calls] | all(. > 0)' timed.json
check 'the headline is batch 1024' jq -e '.batch == 1024 and .threads == 2 and .k == 5 and
    .us_per_query == .timings[1].us_per_query and .full_us_per_query == .timings[1].full_us_per_query and
    .speedup == .timings[1].speedup and .cold_us > 0 and .full_cold_us > 0' timed.json
same 'energy is not measured' "[null,null,\"not measured: $WIDEOUT_POWERCAP cannot be opened: No such file or directory\"]" \
    "$(jq -c '[.energy_j_per_1000, .full_energy_j_per_1000, .energy_note]' timed.json)"

same 'a small layer is not held against the machine' '[null,null,false]' \
    "$(jq -c '[.full_of_peak, .full_of_read, .full_is_weak]' timed.json)"

# A FULL that uses little of the machine: the reference kernels, where there are better ones.
"$WIDEOUT" data synthetic -q -m 20000 -d 64 -n 3000 -o wide >/dev/null
"$WIDEOUT" build --method popular -q --layer wide/layer.safetensors --log wide/train.log.safetensors -o wide.idx >/dev/null
WIDEOUT_CPU=ref "$WIDEOUT" eval --index wide.idx --log wide/test.log.safetensors --layer wide/layer.safetensors --rounds 1 \
    --max-queries 100 --json >weak.json 2>weak.txt
check 'shares of the machine' jq -e '.full_of_peak > 0 and .full_of_peak < 3 and .full_of_read > 0' weak.json
if [ "$("$WIDEOUT" cpu --json | jq -r .best)" != ref ]; then
    check 'a weak FULL is told' jq -e '.full_is_weak and .full_of_peak < 0.4' weak.json
    check 'with a warning' grep -q '^wideout: warning: FULL runs at [0-9]*% of the multiply-adds that this machine can do' weak.txt
fi
same 'one query at a time: a warning where FULL reads slowly, and only there' "$(jq '.full_of_read < 0.4' weak.json)" \
    "$(grep -q '^wideout: warning: FULL reads at [0-9]*% of the rate' weak.txt && echo true || echo false)"

# A machine that takes 4 W, and 20 more for each core that the tool keeps busy; its counter starts over at 200 J, soon.
power=$scratch/power/intel-rapl:0
mkdir -p "$power"
echo package-0 >"$power/name"
echo 200000000 >"$power/max_energy_range_uj"
with_power() { # OUTPUT ARGUMENT...: eval on that machine
    local tool start=${EPOCHREALTIME/./} stat
    echo 190000000 >"$power/energy_uj"
    WIDEOUT_POWERCAP=$scratch/power "$WIDEOUT" eval -q --index popular.idx --log $log --rounds 1 "${@:2}" >"$1" &
    tool=$!
    while read -ra stat 2>/dev/null <"/proc/$tool/stat" && [ "${stat[2]}" != Z ]; do # 13 and 14: its time, in 1/100 s
        echo $(((190000000 + 4 * (${EPOCHREALTIME/./} - start) + 200000 * (stat[13] + stat[14])) % 200000000)) >"$power/next"
        mv "$power/next" "$power/energy_uj"
        sleep 0.005
    done
    wait $tool
}
if [ -r /proc/self/stat ]; then
    with_power energy.json --json
    check 'energy is measured' jq -e '.energy_j_per_1000 > 0 and .full_energy_j_per_1000 > 0 and .energy_note == null' energy.json
fi
with_power table --batch 16
check 'the table has a line for all of it' test "$(grep -cE \
    '^  (P@1|P@3|P@5|share of FULL|classes a query|us/query, batch (1|16|1024),|us, cold caches|CPU s per 1,000, batch 16|J per 1,000, batch 16)' table)" -eq 12
check 'the table fits 80 columns' test "$(awk '{ if (length > n) n = length } END { print n }' table)" -le 80
for columns in 80 70 60 50; do
    COLUMNS=$columns evaluate popular --rounds 1 --batch 16 -k 5,1000 >narrow
    same "and $columns, energy that was not measured included" '' "$(awk -v most=$columns 'length > most' narrow)"
    check 'all of it is there' test "$(grep -cE '^  (P@1|P@3|P@5|share of FULL|classes a query|us/query, batch (1|16|1024),|us, cold caches|CPU s per 1,000, batch 16|J per 1,000, batch 16)' narrow)" -eq 12
done

# ---- Bad input ---------------------------------------------------------------------------------------------------
log_file wide.log 2 8 '' ''
log_file beyond.log 2 16 '0 1 2' '5 600'
log_file empty.log 0 16 '' ''
head -c 3000 popular.idx >cut.idx
fails 'another d' 1 "wideout: wide.log: the log's queries have 8 numbers, the layer's rows 16" \
    "$WIDEOUT" eval --index popular.idx --log wide.log
fails 'labels beyond m' 1 'wideout: beyond.log: query 1 has label 600, the layer 600 classes: do labels count from 1? Here they count from 0' \
    "$WIDEOUT" eval --index popular.idx --log beyond.log
fails 'no query' 1 'wideout: empty.log: the log has no queries' "$WIDEOUT" eval --index popular.idx --log empty.log
fails 'a missing index' 1 'wideout: no.idx: the file cannot be opened: No such file or directory' "$WIDEOUT" eval --index no.idx --log $log
seq -f 'line %.0f' 9 >rows.txt
printf '\001%.0s' {1..80} >junk
raw="rows.txt: the file is not a safetensors file; it looks like text: 'wideout embed' makes a log of raw data"
fails 'text is no log' 1 "wideout: $raw" "$WIDEOUT" eval --index popular.idx --log rows.txt
fails 'nor is it for build' 1 "wideout: $raw" "$WIDEOUT" build --layer $layer --log rows.txt -o x.idx
fails 'what is no text is not called so' 1 'wideout: junk: the file is not a safetensors file' "$WIDEOUT" eval --index popular.idx --log junk
fails 'a missing log' 1 'wideout: no.log: the file cannot be opened: No such file or directory' "$WIDEOUT" eval --index popular.idx --log no.log
fails 'a missing layer' 1 'wideout: no.layer: the file cannot be opened: No such file or directory' \
    "$WIDEOUT" eval --index popular.idx --log $log --layer no.layer
fails 'no rows anywhere' 1 \
    'wideout: bare.idx: the index has no rows (it was built with weights none): the layer has them; give the layer too: --layer FILE' \
    "$WIDEOUT" eval --index bare.idx --log $log
"$WIDEOUT" data synthetic -q -m 600 -d 16 -n 10 --seed 2 -o other >/dev/null
check 'another layer' grep -q '^wideout: other/layer.safetensors: the layer is not the one that the index was built for: ' <<<"$("$WIDEOUT" eval --index bare.idx --log $log \
    --layer other/layer.safetensors 2>&1)"
check 'a cut index' grep -q '^wideout: cut.idx: ' <<<"$("$WIDEOUT" eval --index cut.idx --log $log 2>&1)"
check 'a log is no index' grep -q "^wideout: $log: " <<<"$("$WIDEOUT" eval --index $log --log $log 2>&1)"
check 'too many probes' grep -q '^wideout: --probes: 99 probes are too many' <<<"$(evaluate slide --probes 99 2>&1)"

usage="(see 'wideout eval --help')"
for method in full popular screen; do
    "$WIDEOUT" build -q --layer "$layer" --log $log --method $method -o cells.$method >/dev/null
    why="--probes belongs to indexes of method slide, lss and evidence: 'cells.$method' is of method $method"
    fails "--probes of $method" 2 "wideout eval: $why $usage" "$WIDEOUT" eval --index cells.$method --log $log --probes 4
    fails "predict: --probes of $method" 2 "wideout predict: $why (see 'wideout predict --help')" \
        "$WIDEOUT" predict --index cells.$method --probes 4 $log
done
fails 'no index' 2 "wideout eval: needs --index FILE $usage" "$WIDEOUT" eval --log $log
fails 'no log' 2 "wideout eval: needs --log FILE $usage" "$WIDEOUT" eval --index popular.idx
fails 'two logs' 2 "wideout eval: --log is given twice $usage" "$WIDEOUT" eval --index popular.idx --log $log --log $log
fails 'two lists' 2 "wideout eval: --top is given twice $usage" "$WIDEOUT" eval --index popular.idx --log $log -k 1 --top 5
fails 'a stray file' 2 "wideout eval: unexpected 'x': files are named by --index and --log $usage" "$WIDEOUT" eval x
fails 'a name without its layer' 2 "wideout eval: --weight-name, --bias-name and --bias go with --layer $usage" \
    evaluate popular --weight-name x
for list in '' 0 '1,' ',1' 1,,5 a 1001 -1 '1 5' 99999999999999999999 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17; do
    fails "-k '$list'" 2 "wideout eval: -k takes up to 16 numbers from 1 to 1000 with commas between, not '$list' $usage" \
        evaluate popular -k "$list"
done
fails 'a huge batch' 2 "wideout eval: --batch takes at most 65536, not 65537 $usage" evaluate popular --batch 65537
fails 'batch 0' 2 "wideout eval: --batch takes a whole number of 1 or more, not '0' $usage" evaluate popular --batch 0
fails 'too many rounds' 2 "wideout eval: --rounds takes at most 10000, not 10001 $usage" evaluate popular --rounds 10001

# ---- Rows in bf16, and what is recorded --------------------------------------------------------------------------
"$WIDEOUT" data synthetic -q -m 80 -d 8 -n 400 -o h >/dev/null
"$WIDEOUT" build -q --layer h/layer.safetensors --log h/train.log.safetensors --router tree --weights bf16 -o half >/dev/null
COLUMNS=100 "$WIDEOUT" eval -q --index half --log h/test.log.safetensors --no-timing >half.text
check 'bf16: why FULL has no figures, and what gives them' grep -qF \
    "  FULL's column is empty: the index has rows in bf16 alone; --layer FILE gives the exact ones" half.text
"$WIDEOUT" eval -q --index half --layer h/layer.safetensors --log h/test.log.safetensors --no-timing >half.text
same 'with the layer it has' 0 "$(grep -c 'column is empty' half.text)"
"$WIDEOUT" eval -q --index half --log h/test.log.safetensors --no-timing --json -k 1,7 --seed 3 2>/dev/null >half.json
check 'JSON: the same' jq -e '.full_p_at_1 == null and (.full_note | test("bf16"))' half.json
check 'JSON: where, when and how' jq -e '(.version | test("^[0-9.]+$")) and (.date | test("^20[0-9-]+T[0-9:]+Z$")) and
    (.machine | .cores > 0 and (.cpu | length > 0) and (.instructions | length > 0)) and
    (.options | .top == [1, 7] and .seed == 3 and .no_timing and .batch == 1024 and .layer == null)' half.json
"$WIDEOUT" eval -q --index half --layer h/layer.safetensors --log h/test.log.safetensors --no-timing -k 1,50 >/dev/null 2>half.err
same 'more answers than it was made for: said, as predict does' "wideout: warning: half was made for 5 answers, and may miss many of 50: 'wideout build --source-k 50' makes one for so many" "$(cat half.err)"
"$WIDEOUT" eval -q --index half --layer h/layer.safetensors --log h/test.log.safetensors --no-timing >/dev/null 2>half.err
same 'not for as many' '' "$(cat half.err)"
fails 'no exact rows: the index is named, and nothing is read' 1 \
    'wideout: half: the index has no f32 rows to answer exactly with: the layer has them; give the layer too: --layer FILE' \
    "$WIDEOUT" predict --index half --exact </dev/null

# ---- Batches that FULL answers -----------------------------------------------------------------------------------
for from in 0 9 1; do "$sign" "$golden/index-tuned.safetensors" planned.$from '"tune.full_from":"0"' "\"tune.full_from\":\"$from\""; done
planned() { "$WIDEOUT" eval -q --index "planned.$1" --layer "$golden/layer.safetensors" --log "$golden/log.safetensors" --no-timing "${@:2}" | grep '^  quality'; }
same 'quality of FULL is not taken for that of the cells' '  quality is that of batches of 1,024, which FULL answers: -b 1 judges the cells' "$(planned 9)"
same 'where no batch is theirs' '  quality is that of batches of 5, which FULL answers' "$(planned 1 -b 5)"
same 'and is their own' '' "$(planned 9 -b 1)$(planned 9 -b 8)$(planned 0)"

finish
