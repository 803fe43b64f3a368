#!/bin/bash
# wideout-bench report: a whole page out of results and out of eval's files, hostile text, what it refuses, and how the
# page lies in a real browser.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
measure=$PWD/tests/browser/measure.js
bench=${WIDEOUT%/*}/wideout-bench
if [ ! -x "$bench" ]; then
    ok "the report is not tested: $bench was not built # skip"
    finish
    exit
fi
cd "$scratch" || exit 1

# result NAME TITLE M: eight methods of invented numbers, realistic enough for plots
result() {
    jq -n --arg workload "$1" --arg title "$2" --argjson m "$3" '
    def timing($batch; $threads; $full; $times):
        {batch: $batch, threads: $threads, us: ($full / $times), us_p99: ($full / $times * 2), full_us: $full, speedup: $times};
    def row($method; $family; $name; $dial; $value; $p; $neurons; $times):
        {method: $method, family: $family, label: $name, options: (if $method == "lss" then {loss: "paper"} else {} end),
         dial: {name: $dial, value: $value}, p_at_1: (0.65 * $p), p_at_3: 0.5, p_at_5: 0.4, label_recall: 0.9,
         sample_size: $neurons, label_rank_retrieved: 4.5, build_s: 12.3, index_bytes: 45678901,
         timings: [timing(1; 1; $m / 60; $times * 0.7), timing(32; 1; $m / 200; $times * 0.9), timing(1024; 2; $m / 600; $times)],
         cpu_s_per_1000: 0.0123, energy_j_per_1000: null};
    {wideout_bench: 1, workload: $workload, title: $title, m: $m, d: 128, n: 5000, k: 5, commit: "0123456789",
     version: "0.1.0", date: "2026-11-16T17:00:00Z",
     machine: {cpu: "A processor", instructions: "avx2", cores: 2, memory_gib: 31.2, kernel: "6.1.0"}, compiler: "gcc 12.2.0",
     packages: {openblas: "0.3.21", faiss: "1.7.3", faiss_note: "generic build"}, command: "wideout-bench run \($workload)",
     threads: 2, full: {p_at_1: 0.65, p_at_3: 0.5, p_at_5: 0.4, label_rank: 5},
     rows: [
        row("full"; "exact"; "full"; null; null; 1; $m; 1),
        row("popular"; "baseline"; "popular N=500"; "N"; 500; 0.8; 500; 60),
        row("popular"; "baseline"; "popular N=5000"; "N"; 5000; 0.95; 5000; 7),
        row("slide"; "baseline"; "slide K=4 L=10"; "L"; 10; 0.5; 9000; 2),
        row("lss"; "baseline"; "lss paper K=4 L=10"; "L"; 10; 0.991; 7000; 3),
        row("evidence"; "ours"; "evidence lambda=0.1"; "lambda"; 0.1; 0.98; 200; 90),
        row("evidence"; "ours"; "evidence lambda=0.02"; "lambda"; 0.02; 0.997; 600; 41.26),
        row("pq"; "peer"; "pq rerank=50"; "rerank"; 50; 0.996; $m; 3.1),
        row("ip-nsw"; "peer"; "ip-nsw ef=50"; "ef"; 50; 0.97; 900; 30),
        row("ip-nsw"; "peer"; "ip-nsw ef=200"; "ef"; 200; 0.998; 2500; 10.3),
        row("graph-decoder"; "peer"; "graph-decoder ef=200"; "ef"; 200; 0.9; 2600; 9)],
     traces: [{label: "lss paper K=4 L=10", columns: ["step", "loss", "cp_positive", "cp_negative"],
               values: [range(0; 200; 20) | [., 1, 0.2 + . / 400, 0.1]]}]}' >"$1.json"
}

result debian 'Debian catalogue: package descriptions to dependencies' 50000
result synthetic-100k 'Synthetic, 100,000 classes' 100000
result synthetic-1m 'Synthetic, 1,000,000 classes' 1000000
have_gnuplot=
command -v gnuplot >/dev/null && have_gnuplot=1

# well_formed NAME FILE: the page is XML besides, which a strict reader can check
well_formed() {
    if command -v xmllint >/dev/null; then check "$1" xmllint --noout "$2"; else ok "$1: not checked, no xmllint # skip"; fi
}

# ---- The page ------------------------------------------------------------------------------------------------------
check 'a page of three data sets' "$bench" report debian.json synthetic-100k.json synthetic-1m.json -o page.html
well_formed 'it is well-formed' page.html
same 'nothing is fetched: no address but names of namespaces' '' \
    "$(grep -oE "(https?:)?//[^\"' <]*" page.html | grep -vE '^http://www\.w3\.org/(1999/(xhtml|xlink)|2000/svg)$')"
same 'no script, no frame, no picture from elsewhere' 0 "$(grep -ciE '<(script|iframe|img|link|object|embed)|@import|url\(' page.html)"
cp page.html again.html
check 'a second time' "$bench" report debian.json synthetic-100k.json synthetic-1m.json -o page.html
check 'gives the same bytes' cmp page.html again.html
text() { # FILE: the page as lines of text, a cell each, without the tags
    sed 's/<t[dh][^>]*>/\n/g; s/<[^>]*>//g; s/\xc2\xa0/ /g' "$1"
}
text page.html >page.txt
has() { # NAME TEXT [FILE]
    if grep -qF -- "$2" "${3:-page.html}"; then ok "$1"; else not_ok "$1" "not on the page: $2"; fi
}
has 'headline: against FULL' '<td class="best">41.3×</td><td class="best">28.9×</td>'
has 'headline: against the best peer' '4.0× ip-nsw ef=200, P@1 0.6487, 8.09 µs' page.txt
has 'headline: popular' 'not reached 95.0% at best' page.txt
has 'lead' 'answers <b>41.3×</b> as fast as the exact layer with at least 99.5% of its P@1, on all 3 data sets'
has 'footer: machine' 'A processor, 2 cores, 31.2 GiB of memory, Linux 6.1.0, kernels avx2' page.txt
has 'footer: version' '<dt>wideout</dt><dd>0.1.0, commit 0123456789</dd>'
has 'footer: day' '<dt>Measured on</dt><dd>2026-11-16</dd>'
has 'footer: packages' 'openblas 0.3.21, faiss 1.7.3 (generic build)' page.txt
has 'footer: command' '<code>wideout-bench run debian</code>'
has 'words: a column' '<dt>labels found</dt><dd>'
has 'words: a method' '<dt>ip-nsw</dt><dd>'
has 'words: settings' '<i>lambda</i>: how much'
same 'words: nothing that is not here' 0 "$(grep -cE '<dt>(sq8|tuned|torch-full)</dt>|<i>nprobe</i>' page.html)"
has 'words are near: linked from the top' '<a href="#words">'
has 'joules that were not measured have no column' '<dt>joules</dt><dd>Energy was not measured here.'
jq '.rows[0].energy_j_per_1000 = 12.5' debian.json >joules.json
"$bench" report joules.json -o joules.html >/dev/null
text joules.html >joules.txt
has 'but one where somebody has them' '12.5' joules.txt
has 'and others are said to lack them' 'not measured' joules.txt
jq '.workload = "again"' debian.json >again.json
"$bench" report debian.json again.json -o again.html >/dev/null
same 'footer: a command of two workloads once' 1 "$(grep -o '<code>wideout-bench run' again.html | wc -l)"
if [ -n "$have_gnuplot" ]; then
    same 'pictures' '13' "$(grep -c '<svg viewBox[^>]*role="img"' page.html)"
    has 'bars: reached' '>41.3×</text>'
    has 'bars: not reached' 'not reached: 95.0% at best</text>'
    has 'cost against classes' 'Cost against the number of classes'
    same 'every colour is a variable' 0 "$(grep -cE "(stroke|fill|color)=[\"'](rgb|#)" page.html)"
else
    ok 'pictures are not checked: gnuplot is not installed # skip'
fi

# Pictures of their own: an SVG each, in fixed colours upon a ground of its own.
jq '.rows += [.rows[5] | .method = "tuned" | .label = "tuned batch=1024" | .chosen = "evidence tree lambda=0.05" | .options = {} | .dial = null]' \
    debian.json >tuned.json
jq '.workload = "../we ird"' debian.json >weird.json
"$bench" report tuned.json synthetic-100k.json synthetic-1m.json weird.json -o plots.html --plots plots >plots.txt
if [ -n "$have_gnuplot" ]; then
    same 'a file for each plot' '_._we_ird-learning _._we_ird-p1-batch-1 _._we_ird-p1-batch-1024 _._we_ird-speedup cost-against-classes debian-learning debian-p1-batch-1 debian-p1-batch-1024 debian-speedup' \
        "$(cd plots && printf '%s\n' *.svg | grep -v synthetic | sed 's/\.svg$//' | paste -sd' ')"
    for file in debian-p1-batch-1024 debian-speedup cost-against-classes; do
        well_formed "$file is well-formed" plots/$file.svg
        same "$file needs no page: no variables" 0 "$(grep -cE 'var\(|currentColor;' plots/$file.svg)"
        has "$file has a ground of its own" 'rx="6" fill="#ffffff"/>' plots/$file.svg
    done
    has 'a legend in it' '>graph-decoder</text>' plots/debian-p1-batch-1024.svg
    has 'tuned is among the methods' '>tuned</text>' plots/debian-p1-batch-1024.svg
    same 'cost: FULL, ours and the best peer' 'the best peer at each size,FULL, the exact layer,evidence' \
        "$(grep -oE '<text x="[0-9]+" y="[0-9]+" font-size="12"[^>]*>[^<]*' plots/cost-against-classes.svg | sed 's/.*>//' | paste -sd,)"
    has 'and says how many there are' 'plots: ' plots.txt
else
    same 'no pictures without gnuplot' 'plots: 0 pictures' "$(tail -1 plots.txt)"
fi
text plots.html >plots.page
has 'what the tuner chose' 'tuned batch=1024evidence tree lambda=0.05' plots.page

# Without gnuplot: tables, and a sentence on the page and on the terminal.
same 'without gnuplot' "wideout-bench: no plots: gnuplot is not installed (Debian: gnuplot-nox)" \
    "$(PATH=$scratch/nowhere "$bench" report debian.json -o bare.html 2>&1 >/dev/null)"
has 'the page says so' 'The plots are missing: gnuplot is not installed' bare.html
has 'and has its tables' 'evidence lambda=0.02' bare.html
well_formed 'and is well-formed' bare.html

# ---- Hostile text --------------------------------------------------------------------------------------------------
evil=$'"><script>alert(1)</script><img src=x onerror=\'alert(2)\'>&amp;`id`\u202e\a$(id) @0'
jq --arg evil "$evil" '.title = $evil | .command = $evil | .machine.cpu = $evil | .compiler = $evil | .packages[$evil] = $evil | .version = $evil | .date = $evil | .machine.instructions = $evil |
    .rows[].label = $evil | .rows[4].options.loss = $evil | .rows[7].method = $evil | .rows[].dial.name = $evil |
    .traces[0].label = $evil | .rows[].timings[].speedup /= 60' debian.json >evil.json
check 'hostile text' "$bench" report evil.json -o evil.html --title "$evil"
well_formed 'stays text' evil.html
same 'makes no tag' 0 "$(grep -ciE '<(script|img)' evil.html)"
same 'leaves no control character' 0 "$(grep -cP '[\x00-\x08\x0b-\x1f\x7f]|\x{202e}' evil.html)"
same 'reaches no shell' 0 "$(grep -c 'uid=' evil.html)"

# ---- eval's files --------------------------------------------------------------------------------------------------
evaluated() { # METHOD P_AT_1 TIMES
    jq -n --arg method "$1" --argjson p "$2" --argjson times "$3" '
    def timing($batch; $threads; $full): {batch: $batch, threads: $threads, calls: 9, us_per_query: ($full / $times),
        full_us_per_query: $full, speedup: $times, cpu_s_per_1000: 0.01};
    {index: "demo/\($method).index.safetensors", log: "demo/test.log.safetensors", method: $method, m: 20000, d: 64, n: 900,
     p_at_1: $p, p_at_3: 0.4, p_at_5: 0.3, full_p_at_1: 0.6, full_p_at_3: 0.4, full_p_at_5: 0.3, label_recall: 0.9,
     sample_size: 321, energy_j_per_1000: null, timings: [timing(1; 1; 300), timing(1024; 2; 40)]}' >"$1.eval.json"
}
evaluated full 0.6 1
evaluated popular 0.5 50
evaluated evidence 0.599 100
check 'files of eval' "$bench" report full.eval.json popular.eval.json evidence.eval.json -o demo.html --title 'The demo'
well_formed 'make a page' demo.html
has 'with its title' '<h1>The demo</h1>' demo.html
same 'of one data set' 1 "$(grep -c '<h2 id="set-' demo.html)"
has 'named after the log' 'test.log.safetensors</h2>' demo.html
has 'with the headline' '<td class="best">100×</td><td class="best">100×</td>' demo.html
[ -z "$have_gnuplot" ] || has 'and the bars' 'Times as fast as FULL' demo.html
has 'no column of peers: there are none' 'its P@1</th><th scope="col">popular against FULL</th>' demo.html
has 'what no file has is named' '<dt>Machine</dt><dd class="no">not in the files</dd>' demo.html
has 'the commands are those that the files name' '<code>wideout eval --index demo/evidence.index.safetensors --log demo/test.log.safetensors</code>' demo.html
jq '.index = "a b.index" | .version = "0.1.0" | .date = "2026-11-16T09:00:00Z" | .machine = {cpu: "A processor", cores: 2} |
    .options = {top: [1, 5], batch: 64, probes: 0, max_queries: 9, exact_fallback: true, no_timing: false, layer: "l", labels: null}' \
    evidence.eval.json >told.eval.json
jq '.version = "0.1.0" | .date = "2026-11-16T11:00:00Z" | .command = "wideout eval --index f --log l -b 64"' full.eval.json >told2.eval.json
check 'files that say how they were made' "$bench" report told.eval.json told2.eval.json -o told.html
has 'the machine' '<dt>Machine</dt><dd>A processor, 2 cores</dd>' told.html
has 'the version, once for all' '<dt>wideout</dt><dd>0.1.0</dd>' told.html
has 'the day, once for all' '<dt>Measured on</dt><dd>2026-11-16</dd>' told.html
has 'a command with its options' '<code>wideout eval --index f --log l -b 64</code>' told.html
has 'a command made of what the file names' \
    '<code>wideout eval --index &#39;a b.index&#39; --log demo/test.log.safetensors --top 1,5 --batch 64 --max-queries 9 --exact-fallback --layer l</code>' told.html
jq '.p_at_1 = null | .full_p_at_1 = null | .timings = []' full.eval.json >bare.eval.json
check 'eval without labels and times' "$bench" report bare.eval.json -o bare.html
has 'says that there is no P@1' 'the queries have no labels' bare.html
if "$WIDEOUT" data synthetic -q -m 300 -d 8 -n 600 -o s >/dev/null &&
    "$WIDEOUT" build -q --layer s/layer.safetensors --log s/train.log.safetensors --method popular --popular 50 -o p.idx >/dev/null &&
    "$WIDEOUT" eval -q --index p.idx --log s/test.log.safetensors --rounds 1 --json >real.json; then
    check "eval's own file" "$bench" report real.json -o real.html
else
    not_ok "eval's own file" 'could not be made'
fi

# ---- Refusals ------------------------------------------------------------------------------------------------------
refuses() { # NAME SENTENCE JQ-FILTER: the sentence for debian.json, changed
    jq "$3" debian.json >bad.json
    rm -f no.html
    fails "$1" 1 "wideout-bench: bad.json: $2" "$bench" report bad.json -o no.html
    [ ! -e no.html ] || not_ok "$1: no page is left"
}
refuses 'another version' 'wideout_bench: expected a whole number from 1 to 1, not 2' '.wideout_bench = 2'
refuses 'no name' 'workload: expected a text, not nothing' 'del(.workload)'
refuses 'a title that is none' 'title: expected a text, not an object' '.title = {}'
refuses 'no classes' 'm: expected a whole number from 1 to 2147483647, not 0' '.m = 0'
refuses 'half a class' 'm: expected a whole number from 1 to 2147483647, not 1.5' '.m = 1.5'
refuses 'P@1 above 1' 'rows[1].p_at_1: expected a number from 0 to 1, not 1.5' '.rows[1].p_at_1 = 1.5'
refuses 'P@1 that is text' 'rows[2].p_at_1: expected a number from 0 to 1, not a text' '.rows[2].p_at_1 = "high"'
refuses "FULL's P@1" 'full.p_at_1: expected a number from 0 to 1, not -1' '.full.p_at_1 = -1'
refuses 'an unknown family' "rows[0].family: expected ours, baseline, peer or exact, not 'friend'" '.rows[0].family = "friend"'
refuses 'a row without a method' 'rows[3].method: expected a text, not nothing' 'del(.rows[3].method)'
refuses 'a row that is none' 'rows[0].method: expected a text, not nothing' '.rows[0] = 7'
refuses 'no rows' 'rows: expected at least one row' '.rows = []'
refuses 'rows that are none' 'rows: expected an array, not a text' '.rows = "all"'
refuses 'negative time' 'rows[1].timings[2].us: expected a number from 0 to 1e+12, not -3' '.rows[1].timings[2].us = -3'
refuses 'no batch' 'rows[1].timings[0].batch: expected a whole number from 1 to 4294967295, not nothing' 'del(.rows[1].timings[0].batch)'
refuses 'too many timings' 'rows[0].timings: at most 16 entries, not 17' '.rows[0].timings = [range(17) | {batch: 1}]'
refuses 'a trace of other width' 'traces[0].values[1]: expected an array of 4 numbers, one for each column' '.traces[0].values[1] = [1]'
refuses 'a trace of text' 'traces[0].values[2][3]: expected null or a number up to 1e+15' '.traces[0].values[2][3] = "x"'
refuses 'a column without a name' 'traces[0].columns[1]: expected a text' '.traces[0].columns[1] = 5'
refuses 'a machine that is none' 'machine: expected an object, not a text' '.machine = "fast"'
refuses 'options that are none' 'options: expected an object, not a text' '.options = "fast"'
refuses 'a date that is none' 'date: expected a text, not an array' '.date = []'
refuses 'a core that is none' 'machine.cores: expected a whole number from 1 to 1048576, not 0' '.machine.cores = 0'
# shellcheck disable=SC2016 # jq has variables of its own
refuses 'too many methods' 'a page has room for 64 methods; leave some files out' \
    '.rows = [.rows[1] as $row | range(65) | . as $i | $row | .method = "m\($i)"]'
jq 'del(.log)' popular.eval.json >bad.json
fails 'eval without a log' 1 'wideout-bench: bad.json: log: expected a text, not nothing' "$bench" report bad.json -o no.html
printf '{"wideout_bench": 1,\n oops' >bad.json
fails 'no JSON' 1 "wideout-bench: bad.json: is not JSON: line 2: string or '}' expected near 'oops'" "$bench" report bad.json -o no.html
fails 'no file' 1 'wideout-bench: gone.json: cannot open: No such file or directory' "$bench" report gone.json -o no.html
mkdir -p folder
fails 'a folder' 1 'wideout-bench: folder: is a folder, not a file of results' "$bench" report folder -o no.html
fails 'no arguments' 2 "wideout-bench report: needs at least one file of results (see 'wideout-bench report --help')" "$bench" report
fails 'an unknown option' 2 "wideout-bench report: unknown option '--pdf' (see 'wideout-bench report --help')" "$bench" report --pdf debian.json
fails 'pictures where a file is' 1 'wideout-bench: debian.json/x: cannot make the folder: Not a directory' \
    bash -c "'$bench' report debian.json -o no.html --plots debian.json/x >/dev/null"
fails 'a missing value' 2 "wideout-bench report: -o needs a value (see 'wideout-bench report --help')" "$bench" report debian.json -o
fails 'over its own input' 2 'wideout-bench report: -o debian.json is one of the files of results' "$bench" report debian.json -o debian.json
echo '{"bench": "kernels"}' >other.json
same 'other JSON is left out' "wideout-bench: other.json: left out: neither results of wideout-bench nor of 'wideout eval --json'" \
    "$(PATH=$PATH "$bench" report other.json debian.json -o mixed.html 2>&1 >/dev/null)"
same 'other JSON alone is no page' 1 "$("$bench" report other.json -o no.html >/dev/null 2>&1; echo $?)"

# ---- In a browser --------------------------------------------------------------------------------------------------
# The copy has a script that measures, and so not the policy that forbids scripts. It lies in a frame, because Chromium's
# own window has at least 500 pixels of width.
browser=
for name in chromium chromium-browser google-chrome; do
    [ -n "$browser" ] || browser=$(command -v "$name" || true)
done
dump() { # FLAG... ADDRESS: the page as the browser has it
    HOME=$scratch timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --disable-background-networking --no-first-run --disable-sync --disable-quic \
        --user-data-dir="$scratch/browser" --virtual-time-budget=20000 --dump-dom "$@" 2>/dev/null
}
lies_well() { # NAME FILE WIDTH SCHEME
    local flags=("--window-size=1400,2000")
    [ "$4" = light ] || flags+=(--blink-settings=preferredColorScheme=0)
    {
        grep -v 'Content-Security-Policy' "$2" | sed '/<\/body>/,$d'
        printf '<script>\n%s\n</script>\n</body>\n</html>\n' "$(cat "$measure")"
    } >measured.html
    cat >frame.html <<HTML
<!DOCTYPE html><title>nothing</title>
<script>addEventListener('message', m => { document.title = m.data })</script>
<iframe src="measured.html" style="border:0;width:$3px;height:1900px"></iframe>
HTML
    local got
    for _ in 1 2 3; do # hints follow the first frames, which a busy machine may draw too late
        got=$(dump "${flags[@]}" "file://$scratch/frame.html" | sed -n 's/.*<title>\([^<]*\)<.*/\1/p')
        [[ $got == *'hint of'* ]] || break
    done
    same "$1" "measured: $3 $4, fine" "$got"
}
if [ -z "$browser" ]; then
    ok 'the page is not looked at: no chromium here # skip'
elif ! dump about:blank | grep -q '<html'; then
    ok "the page is not looked at: $browser does not run here # skip"
else
    lies_well 'on a phone, light' page.html 390 light
    lies_well 'on a desk, dark' page.html 1280 dark
    lies_well 'hostile text on a phone, dark' evil.html 390 dark
    lies_well "eval's page on a desk, light" demo.html 1280 light
    for i in 1 2 3 4 5 6; do
        jq --arg n "$i" '.workload += $n | .title = "Another data set with a long name, number \($n)" |
            .rows[].timings[] |= (.us /= 31 | .speedup *= 31)' debian.json >"many$i.json"
    done
    check 'nine data sets' "$bench" report tuned.json synthetic-100k.json synthetic-1m.json many?.json -o many.html
    lies_well 'nine data sets on a phone, light' many.html 390 light
    lies_well 'nine data sets on a desk, dark' many.html 1280 dark
fi

finish
