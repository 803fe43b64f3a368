#!/bin/bash
# Times the text parser on EURLEX57K's training file, unpacked, where the data are at hand ($WIDEOUT_DATA, then
# ../shared/data), else on a made file of the same shape.
set -eu
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
file=$scratch/train.txt
source=
for folder in "${WIDEOUT_DATA:-}" ../shared/data; do
    [ -n "$source" ] || [ ! -r "$folder/eurlex57k/train.txt.gz" ] || source=$folder/eurlex57k/train.txt.gz
done
if [ -n "$source" ]; then
    gzip -dc "$source" >"$file"
else
    echo 'EURLEX57K is not here (set WIDEOUT_DATA): a made file of its shape instead'
    awk 'BEGIN { srand(1); print 45000, 17242, 4271
        for (i = 0; i < 45000; i++) {
            line = int(rand() * 2000) "," 2000 + int(rand() * 2000) " "; id = 0
            for (j = 0; j < 114; j++) { id += 1 + int(rand() * 149); line = line id ":" sprintf("%.4f", rand() / 5) " " }
            print substr(line, 1, length(line) - 1) } }' >"$file"
fi
"$BUILD/bench/parse" "$file"
