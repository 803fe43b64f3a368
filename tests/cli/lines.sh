#!/bin/bash
# Long lines of text: each is scanned once, in whatever pieces it comes, and there is a limit.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cd "$scratch" || exit 1
export OMP_WAIT_POLICY=passive
"$WIDEOUT" data synthetic -q --as text -m 40 -n 300 -o x >/dev/null
"$WIDEOUT" train xc --train x/train.txt -q -d 4 -t 1 -e 1 -o xc.net >/dev/null
"$WIDEOUT" embed -q xc.net --data x/train.txt -o xc.log >/dev/null
"$WIDEOUT" build -q --layer xc.net --log xc.log -K 2 -L 1 --iterations 2 -o xc.idx >/dev/null
word=$(head -1 x/features.txt)
limit=$((64 << 20))

blanks() { # BYTES
    head -c "$1" /dev/zero | tr '\0' ' '
}
# A pipe brings 64 KiB at a time. Scanning from the start each time, 60 MB take 20 s and more; once, a tenth of a second.
predict() { # ARGUMENT...
    timeout "${SECONDS_ALLOWED:-10}" "$WIDEOUT" predict --index xc.idx --net xc.net -t 1 -k 1 "$@"
}
[ -z "${SAN:-}" ] || SECONDS_ALLOWED=60

expected=$(echo "$word" | predict --format text)
for format in text auto; do
    same "$format: a word behind 60 MB of blanks" "$expected" "$({ blanks 60000000; echo "$word"; } | predict --format "$format")"
    same "$format: 60 MB of blanks alone" '' "$(blanks 60000000 | predict --format "$format")"
done
same '60 MB of blank lines' "$expected" "$({ blanks 60000000 | tr ' ' '\n'; echo "$word"; } | predict --format text)"
same 'a line of just the limit' "$expected" "$({ blanks $((limit - ${#word})); echo "$word"; } | predict --format text)"
too_long() { # NAME ARGUMENT...: what comes in has a first line that is too long
    fails "$1" 1 "wideout: standard input: line 1: longer than $limit bytes" predict "${@:2}"
}
too_long 'one byte more' --format text < <(blanks $((limit - ${#word} + 1)); echo "$word")
too_long 'blanks without an end' --format text < <(blanks $((limit + 70000)))
too_long 'as numbers' --format xc < <(blanks $((limit + 70000)))
too_long 'one long number' --format xc < <(head -c $((limit + 70000)) /dev/zero | tr '\0' 1)
{ blanks $((limit + 70000)); echo; } | gzip -1 >bomb.gz
fails 'packed' 1 "wideout: bomb.gz: line 1: longer than $limit bytes" predict --format text bomb.gz
fails 'a data set' 1 "wideout: bomb.gz: line 1: longer than $limit bytes" "$WIDEOUT" data xc --lenient bomb.gz
fails 'stanzas' 1 "wideout: bomb.gz: line 1: longer than $limit bytes" "$WIDEOUT" data deb822 bomb.gz -o d
fails 'names' 1 "wideout: bomb.gz: line 1: longer than $limit bytes" \
    "$WIDEOUT" train xc --train x/train.txt --label-names bomb.gz -q -d 4 -t 1 -e 1 -o no.net
finish
