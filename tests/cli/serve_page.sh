#!/bin/bash
# The server's page: its files, and, where Chromium, node and the modules of tests/browser are here ('make test-browser' sets
# them up), the page in a browser, which leaves pictures in $BUILD/screenshots.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
case $BUILD in /*) build=$BUILD ;; *) build=$PWD/$BUILD ;; esac
"$WIDEOUT" serve tests/golden/index-names.safetensors --listen nowhere 2>&1 | grep -q 'built without a server' && {
    ok 'there is no server here # skip'
    finish
    exit
}
command -v curl >/dev/null || { ok 'no curl here # skip'; finish; exit; }

# ---- A network of words, and an index of it ----------------------------------------------------------------------------
cd "$scratch" || exit 1
"$WIDEOUT" data synthetic -q --as text -m 200 -n 1000 -o x >/dev/null
"$WIDEOUT" train xc -q -t 1 -d 16 --lr 0.02 -e 5 --train x/train.txt -o net >/dev/null
"$WIDEOUT" embed -q net --data x/train.txt -o log >/dev/null
"$WIDEOUT" build -q --layer net --log log -K 4 -L 2 --iterations 10 -o index >/dev/null
WORDS=$(head -3 x/features.txt | tr '\n' ' ' | sed 's/ $//')
export WORDS
cd - >/dev/null || exit 1
servers=()
trap '[ ${#servers[@]} -eq 0 ] || kill "${servers[@]}" 2>/dev/null; rm -rf "$scratch"' EXIT
start() { # NAME ARGUMENT...: serves, and sets `at`
    local name=$1
    shift
    "$WIDEOUT" serve -q "$scratch/index" --net "$scratch/net" --listen 127.0.0.1:0 --ready-file "$scratch/$name" --threads 2 "$@" &
    servers+=($!)
    for _ in $(seq 600); do [ -e "$scratch/$name" ] || sleep 0.05; done
    at=http://$(cat "$scratch/$name")/
}
start open --shadow 1

for file in index.html page.css page.js; do
    curl -s "$at${file/index.html/}" >"$scratch/got"
    check "$file comes as it is" cmp "serve/page/$file" "$scratch/got"
done
headers=$(curl -sI "$at")
check 'the page may load from here alone' grep -q "^Content-Security-Policy: default-src 'none'" <<<"$headers"
same 'no address of others in it' '' "$(grep -ohE '(https?:)?//[a-z0-9.-]+\.[a-z]+[^"]*' serve/page/* | grep -v www.w3.org/2000/svg)"

# ---- In a browser --------------------------------------------------------------------------------------------------------
browser=
for name in chromium chromium-browser google-chrome; do
    [ -n "$browser" ] || browser=$(command -v "$name" || true)
done
modules=$build/browser
if [ -z "$browser" ] || ! command -v node >/dev/null || [ ! -d "$modules/node_modules/playwright-core" ]; then
    ok "the page is not looked at in a browser: no Chromium, node or playwright-core here ('make test-browser') # skip"
    finish
    exit
fi
mkdir -p "$build/screenshots"
look() { # NAME ARGUMENT...: the checks of page.mjs
    local name=$1 code i
    shift
    HOME=$scratch timeout 150 node tests/browser/page.mjs "$modules" "$browser" "$at" "$build/screenshots" "$@" >"$scratch/tap" 2>&1
    code=$?
    mapfile -t lines <"$scratch/tap"
    for i in "${!lines[@]}"; do
        case ${lines[i]} in
        'ok '*) ok "$name: ${lines[i]#* - }" ;;
        'not ok '*) not_ok "$name: ${lines[i]#* - }" "${lines[i + 1]}" ;;
        esac
    done
    [ $code -eq 0 ] || grep -q '^not ok' "$scratch/tap" || not_ok "$name" "$(tail -5 "$scratch/tap")"
}
look page
echo 'a-token-for-the-page' >"$scratch/token"
start guarded --shadow 1 --token-file "$scratch/token"
look 'with a token' a-token-for-the-page
for picture in 390-dark 390-light 1200-dark 1200-light; do
    check "a picture is left: $picture" test -s "$build/screenshots/page-$picture.png"
done
finish
