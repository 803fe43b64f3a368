#!/bin/bash
# What a fixed list scores: popular.sh TRAIN.log TEST.log prints P@1 and P@5, on the queries of TEST.log, of the five labels
# that most queries of TRAIN.log have. Queries without a label are left out, as `wideout embed --score` does.
set -eu
[ $# -eq 2 ] || { echo "usage: popular.sh TRAIN.log TEST.log" >&2; exit 2; }

tensor() { # LOG NAME BYTES: its whole numbers of that many bytes, one a line
    local header from to
    header=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    read -r from to < <(tail -c +9 "$1" 2>/dev/null | head -c "$header" | jq -r --arg name "$2" '.[$name].data_offsets | @tsv')
    od -An -v -w"$3" -t d"$3" -j $((8 + header + from)) -N $((to - from)) "$1"
}

list=$(tensor "$1" labels.indices 4 | sort -n | uniq -c | sort -k 1,1nr -k 2,2n | awk 'NR <= 5 {print $2}')
n=$(tensor "$2" labels.indptr 8 | awk 'NR > 1 && $1 > last {n++} {last = $1} END {print n + 0}')
tensor "$2" labels.indices 4 | awk -v list="$list" -v n="$n" '
    BEGIN {split(list, id); for (i in id) rank[id[i]] = i}
    $1 in rank {hits++; first += rank[$1] == 1}
    END {printf "P@1 %.4f, P@5 %.4f over %d queries\n", first / n, hits / n / 5, n}'
