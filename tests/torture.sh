# Shared by the scripts that fail and kill commands: the commands, what they write with two seeds, and what must hold after
# each disturbed run. Source it after lib.sh.
#
#   old/NAME   what stands there before: the outputs of another seed      new/NAME   what an undisturbed run makes of it
#   out        where the disturbed runs write: afterwards each file is one of the two, whole, and nothing else is there
# shellcheck shell=bash
# shellcheck disable=SC2154 # scratch is lib.sh's
cd "$scratch" || exit 1
export OMP_WAIT_POLICY=passive

mkdir in old new
SCALE=${SCALE:-1} # how much data there are: 1 takes some milliseconds a command
"$WIDEOUT" data synthetic -q --as text -m 60 -n $((400 * SCALE)) -o in/x >/dev/null
tail -n +2 in/x/train.txt >in/rows # without a header: read twice
awk -v n=$((3000 * SCALE)) 'BEGIN {x = 1; for (i = 0; i < n; i++) {x = x * 16807 % 2147483647; printf "w%d%s", x % 50, i % 12 == 11 ? "\n" : " "}}' >in/corpus
awk -v n=$((300 * SCALE)) 'BEGIN {for (i = 0; i < n; i++) printf "Package: p%d\nDepends: lib%d, lib%d\nDescription: word%d and word%d\n\n", i, i % 7, i % 11, i % 13, i % 17}' >in/stanzas
"$WIDEOUT" data text -q in/corpus -o in/t >/dev/null
"$WIDEOUT" train xc -q --train in/x/train.txt -d 8 -t 1 -e 2 -o in/xc.net >/dev/null
"$WIDEOUT" train lm -q --train in/t/train.tokens.safetensors -d 8 -t 1 -e 1 -b 8 -o in/lm.net >/dev/null
"$WIDEOUT" embed -q in/xc.net --data in/x/train.txt -o in/xc.log >/dev/null

# NAME: command, with out for the folder, seed for the number that makes the difference, and MANY
many=$((300 * SCALE))
declare -A commands=(
    [data-xc]='data xc in/x/test.txt -o out/rows.txt'
    [data-split]='data split in/rows --lenient --seed seed -o out'
    [data-text]='data text in/corpus --min-count seed -o out'
    [data-deb822]='data deb822 in/stanzas --seed seed -o out'
    [data-synthetic]='data synthetic -m 50 -d 8 -n MANY --seed seed -o out'
    [train-xc]='train xc --train in/x/train.txt --valid in/x/valid.txt -d 8 -e 4 --seed seed -o out/net'
    [train-lm]='train lm --train in/t/train.tokens.safetensors --valid in/t/valid.tokens.safetensors -d 8 -e 2 -b 8 --seed seed -o out/net'
    [embed-xc]='embed in/xc.net --data in/rows --lenient --max-queries MANY --seed seed -o out/log'
    [embed-lm]='embed in/lm.net --data in/t/test.tokens.safetensors --max-queries MANY --seed seed -o out/log'
    [build-slide]='build --layer in/xc.net --method slide --seed seed -o out/index'
    [build-evidence]='build --layer in/xc.net --log in/xc.log -K 3 -L 2 --iterations 10 --seed seed -o out/index'
)
names=(data-xc data-split data-text data-deb822 data-synthetic train-xc train-lm embed-xc embed-lm build-slide build-evidence)

arguments() { # NAME SEED: into the array `line`
    local text=${commands[$1]}
    text=${text//seed seed/seed $2}
    text=${text//min-count seed/min-count $2}
    text=${text/MANY/$many}
    read -ra line <<<"$text -t 1 -q"
}

for name in "${names[@]}"; do
    for state in old new; do
        if [ $state = old ]; then seed=2; else seed=1; fi
        arguments "$name" $seed
        rm -rf out
        mkdir out
        "$WIDEOUT" "${line[@]}" >/dev/null || echo "# $name does not run"
        mv out $state/"$name"
    done
    [ "$name" != data-xc ] || sed -i '2s/:1/:3/' old/data-xc/rows.txt # it has no seed
    for file in new/"$name"/*; do
        ! cmp -s "$file" "${file/#new/old}" || case $file in
        */labels.txt | */features.txt | */layer.safetensors) ;; # some are the same with any seed
        *) echo "# $file does not depend on the seed" ;;
        esac
    done
done

begin() { # NAME: out as it was before, and the command in `line`
    rm -rf out
    cp -r old/"$1" out
    arguments "$1" 1
}

# Prints what is wrong with out: nothing, where each file is old or new. A checkpoint may be there, one that is whole.
wrong() { # NAME [new]: with the word, only new ones are right
    local file base
    for file in out/* out/.[!.]*; do
        [ -e "$file" ] || continue
        base=${file#out/}
        case $base in
        net.checkpoint) "$WIDEOUT" info "$file" >/dev/null 2>&1 || echo "the checkpoint is damaged" ;;
        *) cmp -s "$file" new/"$1/$base" || { [ -z "${2:-}" ] && cmp -s "$file" old/"$1/$base"; } || echo "$file is neither" ;;
        esac
    done
    for file in new/"$1"/*; do
        [ -e "out/${file##*/}" ] || echo "out/${file##*/} is gone"
    done
}
