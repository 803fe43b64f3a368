#!/bin/sh
# The rooms of src/ may include only the rooms below them. Prints every #include that goes against the arrows; exit 1 then.
#
#   base <- kernels, store <- layer, route, fill <- index <- search <- build <- update;   build <- judge <- tune
#   base, store <- text;   base, kernels, store, layer, text <- net
#   python, examples: wideout.h only
#   serve: net/net.h too; mpi: that, base/clock.h, store.h, log.h, cli's headers, and what it sends and draws: base/hits.h,
#       base/answers.h, base/rng.h, search/routed.h, index/together.h, judge/evaluate.h
#   cli, bench: net/net.h, text/, store/store.h, store/log.h and base/clock.h too, cli base/utf8.h and serve/serve.h
#   bench: what it measures on a machine: kernels, layer/, base/cpu.h, judge/energy.h, and how: base/team.h, base/hits.h
#   tests: anything
#   bench/peers: their own headers and one library each, hnswlib, Faiss or oneDNN; nothing of ours but for the test beside them.
set -eu
cd "$(dirname "$0")/.."
bad=0

# allow ROOM "PREFIX..." FILES: quoted includes of the files must begin with one of the prefixes, or name a file beside them
allow() {
    room=$1 prefixes=$2
    shift 2
    for file in "$@"; do
        [ -f "$file" ] || continue
        # shellcheck disable=SC2013 # includes have no spaces
        for include in $(sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$file"); do
            fine=
            for prefix in $prefixes; do
                case $include in "$prefix"*) fine=1 ;; esac
            done
            case $include in */*) ;; *) [ -f "$(dirname "$file")/$include" ] && fine=1 ;; esac
            if [ -z "$fine" ]; then
                echo "$file: $room must not include \"$include\""
                bad=1
            fi
        done
    done
}

# only PATTERN FILE...: system includes with a folder, as those of C++ libraries are, must begin with the pattern
only() {
    pattern=$1
    shift
    for file in "$@"; do
        [ -f "$file" ] || continue
        # shellcheck disable=SC2013 # includes have no spaces
        for include in $(sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*<\([^>]*\/[^>]*\)>.*/\1/p' "$file"); do
            case $include in
            $pattern/*) ;;
            *)
                echo "$file: must not include <$include>"
                bad=1
                ;;
            esac
        done
    done
}

allow base "wideout.h base/" src/base/*.[ch]
allow kernels "wideout.h base/ kernels/" src/kernels/*.[ch] src/kernels/*.def
allow store "wideout.h base/ store/" src/store/*.[ch]
for room in layer route fill; do
    allow $room "wideout.h base/ kernels/ store/ $room/" src/$room/*.[ch]
done
below="wideout.h base/ kernels/ store/ layer/ route/ fill/"
for room in index search build; do
    below="$below $room/"
    allow $room "$below" src/$room/*.[ch]
done
allow update "$below update/" src/update/*.[ch]
allow judge "$below judge/" src/judge/*.[ch]
allow tune "$below judge/ tune/" src/tune/*.[ch]
allow text "wideout.h base/ store/ text/" text/*.[ch]
allow net "wideout.h base/ kernels/ store/ layer/ text/ net/" net/*.[ch]
allow cli "wideout.h serve/serve.h store/store.h store/log.h net/net.h text/ base/clock.h base/utf8.h" cli/*.[ch]
# wideout-bench reads options and speaks as the tool does, hands the layer's rows to the peers, and meters them itself.
allow bench "wideout.h store/store.h store/log.h net/net.h text/ kernels/ base/clock.h base/cpu.h base/team.h base/hits.h judge/energy.h layer/exact.h layer/screen.h layer/layer.h ../cli/cli.h ../cli/inputs.h peers/peers.h peers/onednn.h" bench/*.[ch]
# A shim knows its own library and what peers.h promises; the test beside them reads layers and logs.
allow bench/peers "" bench/peers/*.cpp bench/peers/*.h bench/peers/peers.c bench/peers/onednn.c
allow bench/peers "store/store.h store/log.h base/clock.h" bench/peers/test_peers.c
only hnswlib bench/peers/hnswlib.cpp
only faiss bench/peers/faiss.cpp
only no-library bench/peers/*.h bench/peers/*.c
allow examples "wideout.h" examples/*.[ch]
# The extension's own header includes the library's in <>, as a user would.
allow python "" python/core/*.[ch]
allow serve "wideout.h net/net.h" serve/*.[ch]
# wideout-mpi reads options and speaks as the tool does.
allow mpi "wideout.h net/net.h store/store.h store/log.h base/clock.h base/answers.h base/hits.h base/rng.h search/routed.h index/together.h judge/evaluate.h ../cli/" mpi/*.[ch]
only no-library mpi/*.[ch]
exit $bad
