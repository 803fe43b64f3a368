#!/bin/bash
# Outputs are tried before the work: with inputs that are not there either, every command names the output.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cd "$scratch" || exit 1
mkdir closed full
touch plain
mkdir full/train.txt full/train.tokens.safetensors full/layer.safetensors

file() { # NAME ARGUMENT...: a command that writes a file
    local name=$1
    shift
    fails "$name: a missing folder" 1 'wideout: nope/x: the file cannot be created: No such file or directory' "$WIDEOUT" "$@" -o nope/x
    fails "$name: a folder" 1 'wideout: full: the output exists and is not a plain file' "$WIDEOUT" "$@" -o full
}
folder() { # NAME FILE ARGUMENT...: one that writes a folder
    local name=$1 inside=$2
    shift 2
    fails "$name: a missing folder" 1 'wideout: nope/x: the folder cannot be made: No such file or directory' "$WIDEOUT" "$@" -o nope/x
    fails "$name: a file" 1 'wideout: plain: exists and is not a folder' "$WIDEOUT" "$@" -o plain
    fails "$name: below a file" 1 'wideout: plain/x: the folder cannot be made: Not a directory' "$WIDEOUT" "$@" -o plain/x
    fails "$name: a folder in place of a file in it" 1 "wideout: full/$inside: the output exists and is not a plain file" \
        "$WIDEOUT" "$@" -o full
}
file build build --layer none --log none
file 'build, one method' build --layer none --method full
file embed embed none --data none
file 'train xc' train xc --train none
file 'train w2v' train w2v --train none
file 'train lm' train lm --train none
fails 'data xc: a missing folder' 1 'wideout: nope/x: the file cannot be created: No such file or directory' "$WIDEOUT" data xc none -o nope/x
fails 'data xc, split: a missing folder' 1 'wideout: nope/x_X_Xf.txt: the file cannot be created: No such file or directory' \
    "$WIDEOUT" data xc none --split-files -o nope/x
folder 'data deb822' train.txt data deb822 none
folder 'data text' train.tokens.safetensors data text none
folder 'data split' train.txt data split none
folder 'data synthetic' layer.safetensors data synthetic
fails 'shards beside a device' 2 "wideout shard: -o '/dev/null' is no plain file, and files are written whose names begin so (see 'wideout shard --help')" \
    "$WIDEOUT" shard --layer none -n 2 -o /dev/null
if [ "$(id -u)" -ne 0 ]; then
    chmod a-w closed
    fails 'a folder that is closed' 1 'wideout: closed/x: the file cannot be created: Permission denied' "$WIDEOUT" build --layer none --log none -o closed/x
    fails 'and one for folders' 1 'wideout: closed/x: the folder cannot be made: Permission denied' "$WIDEOUT" data synthetic -o closed/x
fi
same 'nothing is left behind' 'closed full plain' "$(echo *)"
same 'nor inside' 'full/layer.safetensors full/train.tokens.safetensors full/train.txt' "$(echo full/*)"
mkdir a
"$WIDEOUT" data synthetic -q -m 20 -d 4 -n 50 -o a/new/ >/dev/null
check 'a folder with a stroke behind it' test -e a/new/layer.safetensors
finish
