#!/bin/bash
# 'make demo' from end to end on small catalogues, and how it shows an index's answers beside FULL's.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

# ---- scripts/beside.sh -----------------------------------------------------------------------------------------------
printf '%s\n' 'all found' 'another order' 'one is missing' >"$scratch/q"
printf 'a\t3\tb\t2\tc\t1\nb\t2\ta\t3\tc\t1\na\t3\td\t1\n' >"$scratch/i"
printf 'a\t3\tb\t2\tc\t1\na\t3\tb\t2\tc\t1\na\t3\tb\t2\tc\t1\n' >"$scratch/f"
same 'answers side by side' "all found
  index  a b ...
  FULL   the same
another order
  index  b a ...
  FULL   a b ...
one is missing
  index  a d
  FULL   a b ...
         the index has 1 of FULL's 3 and lacks: b c
In all, the index has 7 of the 9 answers of FULL." "$(scripts/beside.sh "$scratch/q" "$scratch/i" "$scratch/f" 2)"

# ---- README's table --------------------------------------------------------------------------------------------------
# The questions of the demo, what FULL says beside them, and where an index is wrong: none is left out.
questions=$(sed -n "/^    printf '%s.n' 'German/,/>\"\$out\/questions\"/p" scripts/demo.sh | grep -o "'[A-Z][^']*'" | tr -d "'")
table=$(sed -n '/^| typed | FULL/,/^$/p' README.md | tail -n +3)
same 'README asks what the demo asks' "$questions" "$(sed -n 's/^| \([^|]*\) | .*/\1/p' <<<"$table")"
same 'with three answers each' '' "$(awk -F ' [|] ' 'NF != 4 || $2 == "" || $3 == "" || $4 == ""' <<<"$table")"
same 'libc6, which everything needs, comes first nowhere' '' "$(grep -E '[|:] libc6' <<<"$table")"
check 'libpq5 is among what PostgreSQL is about' grep -q '^| Perl module to talk to PostgreSQL databases | [^|]*libpq5 ' <<<"$table"
check 'the wider index is wrong somewhere, and README says so' grep -qE '[|] lacks [^|]*[|]' <<<"$table"

# ---- The whole demo --------------------------------------------------------------------------------------------------
mkdir "$scratch/bin" "$scratch/build"
ln -s "$WIDEOUT" "$(dirname "$WIDEOUT")/wideout-bench" "$scratch/build"
catalogue() { # COMMANDS: what apt-cache is in this demo
    printf '#!/bin/sh\n%s\n' "$1" >"$scratch/bin/apt-cache"
    chmod +x "$scratch/bin/apt-cache"
}
demo() {
    (PATH=$scratch/bin:$PATH BUILD=$scratch/build scripts/demo.sh >"$scratch/out" 2>&1)
}
# Twenty libraries, of which a package needs one that its description names, and almost all need libc6. Four of them are
# what the demo's questions are about.
awk 'BEGIN {
    split("German dictionary spell checking,ALSA sound,module to talk to PostgreSQL databases,Wayland compositor", topics, ",")
    split("hunspell,libasound2,libpq5,libwayland-server0", libraries, ",")
    srand(7)
    for (i = 0; i < 4000; i++) {
        k = int(20 * rand())
        printf "Package: p%d\nSection: s\nMaintainer: A <a@b>\nDescription: a %s for %s people\nDepends: %s%s\n\n",
            i, i % 3 ? "tool" : "player", k < 4 ? topics[k + 1] : "kind" k, k < 4 ? libraries[k + 1] : "libthing" k,
            rand() < 0.9 ? ", libc6" : ""
    }}' >"$scratch/catalogue"
catalogue "cat '$scratch/catalogue'"
if [ ! -x "$(dirname "$WIDEOUT")/wideout-bench" ]; then
    ok 'the demo is not run: wideout-bench is not built # skip'
elif demo; then
    ok 'the demo runs'
    same 'its table has the five methods' 'full popular slide lss evidence' \
        "$(awk '$1 == "method" {on = 1; next} on && NF != 7 {exit} on {print $1}' "$scratch/out" | paste -sd ' ')"
    check 'the questions were asked' grep -qx 'Perl module to talk to PostgreSQL databases' "$scratch/out"
    same 'of each, index and FULL' '4 4' "$(grep -c '^  index  ' "$scratch/out") $(grep -c '^  FULL   ' "$scratch/out")"
    check 'and how many the index has' grep -qE '^In all, the index has [0-9]+ of the [0-9]+ answers of FULL\.$' "$scratch/out"
    # Striking answers: what the question is about comes first, and what everything needs does not.
    answers() { # index|FULL: the first answer to each question
        awk -v who="$1" '$1 == "index" {first = $2} $1 == who {print $2 == "the" ? first : $2}' "$scratch/out" | paste -sd ' '
    }
    same 'what stands out is said first' 'hunspell libasound2 libpq5 libwayland-server0' "$(answers FULL)"
    same 'by the index too' 'hunspell libasound2 libpq5 libwayland-server0' "$(answers index)"
    check 'commands that were shown can be copied' grep -q 'wideout-bench report .*--title wideout:.. the.. demo$' \
        <(sed 's/\\/../g' "$scratch/out")
    check 'the command that serves the index comes last' grep -qE '^      # then open http://127.0.0.1:8080/$|needs libmicrohttpd-dev' \
        <(tail -n 1 "$scratch/out")
    command=$(tail -n 2 "$scratch/out" | sed -n 's/^ *\(.* serve .*\)/\1/p')
    if [ -n "$command" ]; then
        # shellcheck disable=SC2086 # it is one as it is shown
        timeout 60 $command --listen 127.0.0.1:0 --ready-file "$scratch/ready" >/dev/null &
        for _ in $(seq 600); do [ -e "$scratch/ready" ] || sleep 0.05; done
        check 'and does so as it stands' grep -q '^127.0.0.1:' "$scratch/ready"
        kill %% && wait
    fi
    check 'the report is there' grep -q '<h1>wideout: the demo</h1>' "$scratch/build/demo/report.html"
    # What --specific is for: libc6 leads where the order is that of scores, and the library that was named with it.
    echo 'a tool for kind7 people' >"$scratch/kind"
    first() {
        "$WIDEOUT" predict --index "$scratch/build/demo/full.index.safetensors" --net "$scratch/build/demo/net.safetensors" \
            -k 5 --format text "$@" "$scratch/kind" | cut -f 1
    }
    same 'by scores' libc6 "$(first)"
    same 'what stands out' libthing7 "$(first --specific "$scratch/build/demo/train.log.safetensors")"
else
    not_ok 'the demo runs' "$(tail -5 "$scratch/out")"
fi
finish
