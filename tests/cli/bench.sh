#!/bin/bash
# wideout-bench: a run on a tiny made-up layer, a run that is stopped and goes on, the paper's exhibits, compare, and what
# it refuses.
# shellcheck disable=SC2016 # $p and the like are jq's
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
bench=$(dirname "$WIDEOUT")/wideout-bench
if [ ! -x "$bench" ]; then
    ok 'skipped: wideout-bench is not built here'
    finish
    exit
fi
root=$PWD
cd "$scratch" || exit 1
# Threads that wait must not spin: other tests may be running.
export WIDEOUT_CACHE=$scratch/cache WIDEOUT_POWERCAP=$scratch/nothing OMP_WAIT_POLICY=passive

cat >tiny.workload <<'TEXT'
# a comment, and an empty line

title     = Tiny
synthetic = 600 16 4000
sweep = popular N=50,100,600
sweep = screen
sweep = slide K=4 L=2
sweep = lss loss=paper,margin K=3 L=2 iterations=20
sweep = evidence K=5 L=2 iterations=20 lambda=0.1,0.02
sweep = evidence router=tree lambda=0.1 probes=1,4
sweep = ivf nprobe=4,1000
sweep = pq part=4 rerank=0,20
sweep = sq8 rerank=0
sweep = ip-nsw M=8 efc=50 ef=10,50
sweep = graph-decoder M=8 efc=50 ef=50
sweep-full = popular N=200
TEXT
ours=full,popular,slide,lss,evidence
run() { # ARGUMENT...: quality only
    "$bench" run -q --no-timing "$@"
}

# ---- run ---------------------------------------------------------------------------------------------------------
same 'run says where the result is' "one/tiny.json" "$(run ./tiny.workload -o one --methods $ours)"
same 'one row for each configuration, in order' 'full
popular N=50
popular N=100
slide K=4 L=2
lss paper K=3 L=2 iterations=20
lss margin K=3 L=2 iterations=20
evidence K=5 L=2 iterations=20 lambda=0.1
evidence K=5 L=2 iterations=20 lambda=0.02
evidence router=tree lambda=0.1 probes=1
evidence router=tree lambda=0.1 probes=4' "$(jq -r '.rows[].label' one/tiny.json)"
same 'the head' '[1,"tiny","Tiny",600,16,400,5]' "$(jq -c '[.wideout_bench, .workload, .title, .m, .d, .n, .k]' one/tiny.json)"
check 'how it was made' jq -e '(.commit | type == "string") and (.compiler | type == "string") and
    .command == "wideout-bench run ./tiny.workload --no-timing --methods full,popular,slide,lss,evidence" and
    (.version | test("^[0-9.]+$")) and (.date | test("^20..-..-..T..:..:..Z$")) and (.machine | .cpu != null and .cores > 0 and .memory_gib > 0 and .kernel != null) and
    (.packages | .hnswlib != null and .faiss != null)' one/tiny.json
check 'quality of every row' jq -e '.full.p_at_1 as $p | .rows | all([.p_at_1, .p_at_3, .p_at_5, .label_recall, .sample_size,
    .build_s, .index_bytes] | all(type == "number")) and (.[0].p_at_1 == $p)' one/tiny.json
same 'the dial' '{"name":"lambda","value":0.02}' "$(jq -c '.rows[7].dial' one/tiny.json)"
same 'the traces of lss' '["lss paper K=3 L=2 iterations=20","lss margin K=3 L=2 iterations=20"]' \
    "$(jq -c '[.traces[].label]' one/tiny.json)"
check 'have a number for each column' jq -e '.traces | all((.columns | length) as $n | .values | length > 0 and all(length == $n))' one/tiny.json
check 'probes open more cells of the same index' jq -e '.rows[8:] | .[0].build_s == .[1].build_s and
    .[0].sample_size < .[1].sample_size' one/tiny.json
check 'no partial file stays' test ! -e one/tiny.json.partial
run ./tiny.workload -o two --methods $ours --threads 1 >/dev/null
strip='del(.command, .threads, .commit, .date) | del(.rows[].build_s)'
same 'the same with one thread' "$(jq -c "$strip" one/tiny.json)" "$(jq -c "$strip" two/tiny.json)"
same 'screen answers as FULL does' '["screen",true]' "$(run ./tiny.workload -o screened --methods full,screen >/dev/null &&
    jq -c '.full as $f | .rows[1] | [.label, .p_at_1 == $f.p_at_1 and .p_at_5 == $f.p_at_5]' screened/tiny.json)"
same 'the full sweep has more' 'popular N=200' "$(run ./tiny.workload -o full --methods popular --full >/dev/null && jq -r '.rows[2].label' full/tiny.json)"

# ---- Peers -------------------------------------------------------------------------------------------------------
run ./tiny.workload -o peers --methods ivf,pq,sq8,ip-nsw,graph-decoder >/dev/null 2>peers.err
if [ -s peers.err ]; then
    same 'absent peers are left out with a sentence' '' "$(grep -v 'is left out: .* was not found when this was compiled' peers.err)"
else
    same 'rows of the peers' '[2,2,1,2,1]' \
        "$(jq -c '[.rows | group_by(.method) | map({(.[0].method): length}) | add | .pq, .ivf, .sq8, ."ip-nsw", ."graph-decoder"]' peers/tiny.json)"
    check 'all lists of IVF are all classes' jq -e '.full.p_at_1 as $p | .rows[] | select(.label == "ivf nprobe=1000") |
        .p_at_1 == $p and .sample_size == 600 and .label_recall == 1' peers/tiny.json
    check 'graphs find FULL'"'"'s answers' jq -e '.full.p_at_1 as $p | [.rows[] | select(.dial.name == "ef" and .dial.value == 50) |
        .p_at_1 >= 0.95 * $p and .sample_size > 50 and .sample_size < 600] | all' peers/tiny.json
    sed '/^synthetic/s/.*/synthetic = 600 16 15000/' tiny.workload >slow.workload
    run ./slow.workload -o peers --methods sq8 >/dev/null
    check 'SQ8 is judged on some queries, beside FULL on the same' jq -e '.n == 1500 and .rows[0].judged == 1000 and
        (.rows[0].p_at_1 / .full.p_at_1 | . > 0.97 and . < 1.03)' peers/slow.json
    check 'a dial needs no new index' jq -e '[.rows[] | select(.method == "ip-nsw").build_s] | .[0] == .[1]' peers/tiny.json
fi

# ---- Tuned -------------------------------------------------------------------------------------------------------
sed '/^sweep = evidence K/i sweep = tuned batch=1,1024 seconds=1 target=0.9' tiny.workload >tuned.workload
check 'tuned on the validation log' run ./tuned.workload -o tuned --methods tuned
check 'is as good as was asked for, and says what was chosen' jq -e '.full.p_at_1 as $p | .rows | length == 2 and
    all(.family == "ours" and .p_at_1 >= 0.8 * $p and (.chosen | type == "string"))' tuned/tuned.json

# ---- Time --------------------------------------------------------------------------------------------------------
"$bench" run -q ./tiny.workload -o timed --methods full,slide --json >timed.json
same 'run --json' '{"results":["timed/tiny.json"]}' "$(jq -c . timed.json)"
check 'each batch, at one thread and at all' jq -e '.threads as $t | .rows | length == 2 and all([.timings[] | [.batch, .threads]] ==
    ([1, 32, 1024] | map([., 1]) + if $t > 1 then map([., $t]) else [] end))' timed/tiny.json
check 'times beside those of FULL' jq -e '[.rows[].timings[] | .us > 0 and .us_p99 >= .us and .full_us > 0 and .speedup > 0] | all' timed/tiny.json
check 'CPU time is measured, energy is not' jq -e '.rows | all(.cpu_s_per_1000 > 0 and .energy_j_per_1000 == null)' timed/tiny.json

# A made-up machine that takes 2 W, and 5 more for every core at work; its counter starts over every 16 J. A file is put
# in its place as a whole: a reader must not find it empty.
meter() { # PID FOLDER: until the process ends
    local stat ticks=0 next=$2/next at=$2/intel-rapl:0/energy_uj
    while kill -0 "$1" 2>/dev/null; do
        # behind the name, which may have spaces: state, then eleven others, then the ticks of user and system
        stat=$(cat "/proc/$1/stat" 2>/dev/null) && read -ra stat <<<"${stat##*) }" && ticks=$((stat[11] + stat[12]))
        echo $(((2 * ${EPOCHREALTIME/[.,]/} + 50000 * ticks) % 16000000)) >"$next"
        mv "$next" "$at"
        sleep 0.01
    done
}
if [ -r /proc/self/stat ] && [ "$(getconf CLK_TCK)" = 100 ]; then
    mkdir -p power/intel-rapl:0 power/intel-rapl:0:0 # the cores are a part of the package, and must not count twice
    echo package-0 >power/intel-rapl:0/name
    echo core >power/intel-rapl:0:0/name
    for domain in power/intel-rapl:0 power/intel-rapl:0:0; do
        echo 16000000 | tee $domain/max_energy_range_uj >$domain/energy_uj
    done
    WIDEOUT_POWERCAP=$scratch/power "$bench" run -q ./tiny.workload -o energy --methods full,slide,popular --threads 2 >/dev/null &
    process=$!
    meter $process power
    wait $process
    # 5 J for a second of one core, where the idle machine's 2 W are subtracted and no turn of the counter is lost. Beside
    # the sanitizers, which CI runs next to others, this script's own meter is too late for that.
    [ -n "${SAN:-}" ] || check 'joules: those of the work, not of the idle machine' jq -e '.rows | length == 4 and
        all(.energy_j_per_1000 / .cpu_s_per_1000 | . > 2 and . < 12)' energy/tiny.json
    "$bench" report energy/tiny.json -o energy.html >/dev/null
    same 'joules in the report' 0 "$(grep -c 'not measured' energy.html)"
    rm power/intel-rapl:0/energy_uj
    WIDEOUT_POWERCAP=$scratch/power "$bench" run -q ./tiny.workload -o broken --methods full --threads 1 >/dev/null
    check 'a counter that cannot be read is not measured' jq -e '.rows[0].energy_j_per_1000 == null' broken/tiny.json
else
    ok 'energy is not tested: no /proc/PID/stat in hundredths here # skip'
fi

# ---- Stopped and continued ---------------------------------------------------------------------------------------
sed 's/iterations=20/iterations=5000/' tiny.workload >slow.workload
"$bench" run -q --no-timing ./slow.workload -o stop --methods $ours >/dev/null 2>stop.err &
process=$!
for _ in $(seq 100); do
    [ -e stop/slow.json.partial ] && [ "$(wc -l <stop/slow.json.partial)" -ge 4 ] && break
    sleep 0.05
done
kill -TERM $process
wait $process
same 'a run that is stopped' '143 wideout-bench: slow: stopped; the same command goes on with what is left' "$? $(cat stop.err)"
check 'leaves no result' test ! -e stop/slow.json
check 'but the rows that it had' test "$(wc -l <stop/slow.json.partial)" -ge 4
sed -i '2s/"build_s":[0-9.e-]*/"build_s":4321.0/' stop/slow.json.partial
printf '{"row":{"label":"cut o' >>stop/slow.json.partial
sed -i 's/iterations=5000/iterations=20/' slow.workload
check 'going on' run ./slow.workload -o stop --methods $ours
same 'has every row, and those from before' '[10,4321]' "$(jq -c '[(.rows | length), .rows[0].build_s]' stop/slow.json)"
check 'and ends the partial file' test ! -e stop/slow.json.partial
cp one/tiny.json stop/tiny.json.partial
check 'a partial file of something else is not used' run ./tiny.workload -o stop --methods full

mkdir -p late/slow.json
fails 'every output is tried before the first run' 1 'wideout-bench: late/slow.json: the output exists and is not a plain file' \
    "$bench" run -q ./tiny.workload ./slow.workload -o late --methods full
same 'and nothing was run' slow.json "$(ls late)"

# ---- A layer of one's own ----------------------------------------------------------------------------------------
s=cache/synthetic-600-16-4000-1
check 'a layer and logs' run --layer $s/net.safetensors --log $s/train.log --test $s/test.log --methods full,popular --name mine -o own
same 'their result' '["mine",["full","popular N=500"]]' "$(jq -c '[.workload, [.rows[].label]]' own/mine.json)"
run --layer $s/net.safetensors --test $s/test.log --methods full,popular -o own >/dev/null 2>own.err
same 'without a training log' 'wideout-bench: own: popular N=500 is left out: there is no training log to learn from' "$(head -1 own.err)"
run --layer $s/net.safetensors --log $s/train.log --test $s/test.log --methods tuned -o own >/dev/null 2>own.err
same 'without a validation log' 'wideout-bench: own: tuned batch=1024 seconds=15 is left out: there is no validation log to tune on' "$(cat own.err)"
cp $s/net.safetensors own/net.json
fails 'a result is never the layer' 2 "wideout-bench run: -o 'own/net.json' would replace what is read (see 'wideout-bench run --help')" \
    "$bench" run --layer own/net.json --test $s/test.log --name net -o own
fails 'a test log that is not here' 1 'wideout-bench: own is left out: the test log none is not here' \
    "$bench" run --layer $s/net.safetensors --test none
fails 'a log that does not fit' 1 "wideout-bench: own: other/test.log: queries of 8 numbers and labels up to 596 do not fit a layer of 600 classes and 16 dimensions" \
    bash -c "'$WIDEOUT' data synthetic -q -m 600 -d 8 -n 9000 -o other >/dev/null; mv other/test.log.safetensors other/test.log
             '$bench' run -q --layer $s/net.safetensors --test other/test.log"

# ---- The paper's exhibits ----------------------------------------------------------------------------------------
same 'table1: a row for each method' 'full
popular
slide
lss
lss
evidence' "$("$bench" table1 tiny --results one | awk 'NR > 2 && !/^Time/ {print $1}')"
same 'table1 --all --json' 10 "$("$bench" table1 one/tiny.json --all --json | jq '.rows | length')"
check 'table3: nothing below FULL' bash -c "'$bench' table3 tiny --results full --json | jq -e '.full.p_at_1 as \$p | .rows | all(.p_at_1 >= \$p)'"
same 'figure2: CSV' "$(jq '[.traces[].values[]] | length + 1' one/tiny.json)" "$("$bench" figure2 tiny --results one | wc -l)"
same 'of equal columns' 1 "$("$bench" figure2 tiny --results one | awk -F, '{print NF}' | sort -u | wc -l)"
same 'rank' '9' "$("$bench" rank tiny --results one --json | jq '.rows | length')"
check 'rank in words' bash -c "'$bench' rank tiny --results one | grep -q 'Mean rank of the labels among all classes'"
sed '/^synthetic/s/.*/synthetic = 100 4 400/' tiny.workload >grid.workload
same 'table2: nine rows' 9 "$("$bench" table2 ./grid.workload -q -o grid --iterations 5 | grep -cE '^ +[468] +(1|10|50) ')"
same 'table2: seeds, tables, the last step' '[12,"wideout-bench table2 grid --loss paper --iterations 5 --tables 1,10 --seeds 2 --last-step",2,1]' \
    "$("$bench" table2 ./grid.workload -q -o grid --iterations 5 --seeds 2 --tables 1,10 --last-step --json |
        jq -c '[(.rows | length), .command, (.rows | last | .options.seed, .options.last_step)]')"
check 'table2: in a file of its own' test -s grid/grid-table2-paper-seeds2-last.json
fails 'table2: too many seeds' 2 "wideout-bench table2: --seeds takes 1 to 9, not 10 (see 'wideout-bench table2 --help')" "$bench" table2 ./grid.workload --seeds 10
fails 'table2: tables that are none' 2 "wideout-bench table2: --tables takes numbers with commas between, not '1;2' (see 'wideout-bench table2 --help')" \
    "$bench" table2 ./grid.workload --tables '1;2'
same 'slide against lss' '[8,true]' "$("$bench" slide ./grid.workload -q -o grid --iterations 5 --json |
    jq -c '[(.rows | length), (.rows | all(.p_at_1_low <= .p_at_1 and .p_at_1 <= .p_at_1_high + 1e-9))]')"
fails 'an exhibit without a result' 1 'wideout-bench: one/none.json: cannot open: No such file or directory' "$bench" table1 none --results one
fails 'what is no result' 1 'wideout-bench: no.json: is no result of wideout-bench: expected "wideout_bench": 1 and rows' \
    bash -c "echo '{}' >no.json; '$bench' rank no.json"
fails 'what is no JSON' 1 "wideout-bench: no.json: line 1: '[' or '{' expected near 'x'" bash -c "echo x >no.json; '$bench' rank no.json"

# ---- Outputs, before the work: not even the data are made ----------------------------------------------------------
touch plain
mkdir -p taken/tiny.json taken/tiny-table2-paper.json
untouched() { # NAME SENTENCE ARGUMENT...
    WIDEOUT_CACHE=$scratch/untouched fails "$1" 1 "wideout-bench: $2" "$bench" "${@:3}"
}
untouched 'run: below a file' 'plain/x: cannot make the folder: Not a directory' run ./tiny.workload -o plain/x
untouched 'run: a folder in place of the result' 'taken/tiny.json: the output exists and is not a plain file' run ./tiny.workload -o taken
untouched 'table2: below a file' 'plain/x: cannot make the folder: Not a directory' table2 ./tiny.workload -o plain/x
untouched 'table2: a folder in place of the result' 'taken/tiny-table2-paper.json: the output exists and is not a plain file' table2 ./tiny.workload -o taken
check 'nothing was worked on' test ! -e untouched

# ---- compare -----------------------------------------------------------------------------------------------------
check 'the same compares well' "$bench" compare timed/tiny.json timed/tiny.json
jq '(.rows[1].timings[0] | .us, .us_q1, .us_q3) *= 3' timed/tiny.json >slower.json
same 'slower' '1 slower  slide K=4 L=2, batch 1, 1 threads (+200%)' \
    "$(out=$("$bench" compare timed/tiny.json slower.json); echo "$? $(head -1 <<<"$out" | sed 's/: [^(]*/ /')")"
jq '(.rows[1].timings[0] | .us, .us_q1, .us_q3, .full_us) *= 3' timed/tiny.json >both.json
check 'a machine that is slower throughout' "$bench" compare timed/tiny.json both.json
jq '.rows[0].p_at_1 *= 0.99' timed/tiny.json >worse.json
same 'worse' '[1,"p_at_1"]' "$("$bench" compare timed/tiny.json worse.json --json | jq -c '[(.flags | length), .flags[0].what]')"
check 'better is fine' "$bench" compare worse.json timed/tiny.json
fails 'results of two workloads' 1 "wideout-bench: timed/tiny.json: is of workload 'tiny', the other of 'mine'" \
    "$bench" compare own/mine.json timed/tiny.json

# ---- Refused -----------------------------------------------------------------------------------------------------
refused() { # NAME SENTENCE LINE...
    printf '%s\n' "${@:3}" >bad.workload
    fails "$1" 1 "wideout-bench: ./bad.workload: $2" "$bench" run ./bad.workload
}
refused 'no data' 'names no data: expected cache, synthetic, or layer and test' 'title = x'
refused 'no key' "line 1: expected 'key = value', found 'hello'" hello
refused 'an unknown key' "line 2: 'colour' is no key of a workload" 'title = x' 'colour = red'
refused 'a key twice' "line 2: 'title' is given twice" 'title = x' 'title = y'
refused 'a key without value' "line 1: 'layer' has no value" 'layer ='
refused 'sizes that are none' "line 1: 'synthetic' takes classes, dimensions and training queries, as '100000 64 200000', not '600'" 'synthetic = 600'
refused 'a power law that is none' "line 1: 'exponent' takes a number from 0 to 4, not 'steep'" 'exponent = steep'
refused 'queries that are none' "line 1: 'queries' takes a whole number of 1 or more, not '-3'" 'queries = -3'
refused 'made data and files' 'synthetic data come without cache, layer, train, valid and test' 'synthetic = 600 16 4000' 'layer = x'
refused 'an unknown method' "line 1: 'magic' is no method: there are full, torch-full, popular, slide, lss, evidence, tuned, pq, ivf, sq8, ip-nsw and graph-decoder" 'sweep = magic'
refused 'another method'"'"'s setting' "line 1: 'ef' is no setting of slide" 'sweep = slide ef=10'
refused 'a setting twice' "line 1: 'K' is given twice" 'sweep = slide K=1 K=2'
refused 'a setting that is none' "line 1: 'fast' is no setting: expected name=value,value,..." 'sweep = slide fast'
refused 'a value beyond the range' "line 1: K takes a whole number from 1 to 24, not '25'" 'sweep = slide K=4,25'
refused 'a value that is not whole' "line 1: K takes a whole number from 1 to 24, not '1.5'" 'sweep = slide K=1.5'
refused 'an empty value' "line 1: K takes a whole number from 1 to 24, not ''" 'sweep = slide K=4,'
refused 'a word that is none' "line 1: loss takes paper|margin, not 'new'" 'sweep = lss loss=new'
printf 'title = a\0b\n' >bad.workload
fails 'a zero byte' 1 'wideout-bench: ./bad.workload: line 1: has a zero byte: not a text file' "$bench" run ./bad.workload
fails 'a workload that is not here' 1 'wideout-bench: ./none.workload: cannot open: No such file or directory' "$bench" run ./none.workload
same 'data that are not here are left out' "wideout-bench: debian is left out: the layer $WIDEOUT_CACHE/debian/net.safetensors is not here: see 'make nets' 0" \
    "$("$bench" run debian -o none 2>&1) $?"
fails 'no workload' 2 "wideout-bench run: expected workloads, or --layer, --log and --test (see 'wideout-bench run --help')" "$bench" run
fails 'an unknown method in a list' 2 "wideout-bench run: --methods: 'magic' is none: there are full, torch-full, popular, slide, lss, evidence, tuned, pq, ivf, sq8, ip-nsw and graph-decoder (see 'wideout-bench run --help')" \
    "$bench" run debian --methods full,magic
fails 'an unknown command' 2 "wideout-bench: unknown command 'fly' (see 'wideout-bench --help')" "$bench" fly
fails 'compare with one file' 2 "wideout-bench compare: expected two result files, found 1 (see 'wideout-bench compare --help')" "$bench" compare a
for command in run compare table1 table2 table3 figure2 rank slide; do
    "$bench" $command --help >help
    same "$command --help" "0 Usage: wideout-bench $command" "$? $(head -1 help | cut -c1-$((21 + ${#command})))"
    same "$command --help fits 100 columns" '' "$(awk 'length > 100' help)"
    missing=
    # shellcheck disable=SC2013 # options have no spaces
    for option in $(grep -oE '^ +(-[a-zA-Z], )? *--[a-z0-9-]+' help | grep -oE '[-]-[a-z0-9-]+'); do
        sed 's/\\-/-/g' "$root/docs/man/wideout-bench.1" | grep -qe "$option" || missing="$missing $option"
    done
    same "the man page has every option of $command" '' "$missing"
done
finish
