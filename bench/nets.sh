#!/bin/bash
# Trains the networks that benchmarks use, once: nets.sh [NAME...], all of them by default.
#
# They are kept in $WIDEOUT_CACHE (default: ~/.cache/wideout), a folder NAME-KEY each, where KEY comes from the checksums of
# the data and the options; NAME links to the newest. A run that was stopped goes on where it was. Raw data are looked for
# in $WIDEOUT_DATA, then ../shared/data; what is missing is left out with a sentence. In a folder: data/ (prepared),
# net.safetensors, train.json (what training printed) and the logs train.log, valid.log, test.log; for enwiki100m also
# words.log, a query for each word of the training text.
#
# Every network is trained for as many epochs as its validation part gains by (--epochs auto). Only by name: debian-7,
# debian-15 and debian-30, of that many epochs; eurlex57k-seed2 and eurlex57k-seed3, of other seeds;
# diginetica-half, of the first half of the sessions.
set -eu
cd "$(dirname "$0")/.."
wideout=$(realpath "${BUILD:-build}")/wideout
cache=${WIDEOUT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/wideout}
mkdir -p "$cache"
[ $# -gt 0 ] || set -- debian eurlex57k diginetica tmall wikitext-2 wikitext-2-torch wikitext-2-next35 enwiki100m enwiki100m-drop200

raw() { # NAME: the folder of a raw data set, or nothing
    local folder
    for folder in "${WIDEOUT_DATA:-/nonexistent}" ../shared/data; do
        if [ -d "$folder/$1" ]; then
            (cd "$folder/$1" && pwd)
            return
        fi
    done
}

begin() { # NAME OPTIONS FILE...: sets $at to the folder for this data and these options
    local name=$1 options=$2 key
    shift 2
    key=$({ echo "$options"; cat "$@"; } | sha256sum | cut -c1-12)
    at=$cache/$name-$key
    mkdir -p "$at"
    ln -sfn "$name-$key" "$cache/$name"
}

train() { # KIND OPTIONS...: in $at, unless it is done; goes on from a checkpoint
    local kind=$1 resume=
    shift
    if [ -s "$at/train.json" ]; then
        echo "$at: there"
        return
    fi
    [ ! -e "$at/net.safetensors.checkpoint" ] || resume=--resume
    echo "$at: training ${resume:+(resumed)}"
    # shellcheck disable=SC2086 # nothing, or one word
    "$wideout" train "$kind" "$@" -o "$at/net.safetensors" --json $resume >"$at/train.json.tmp"
    mv "$at/train.json.tmp" "$at/train.json"
}

logs() { # ENDING OPTIONS...: what the network makes of the three parts
    local part ending=$1
    shift
    for part in train valid test; do
        [ -s "$at/$part.log" ] || "$wideout" embed "$at/net.safetensors" --data "$at/data/$part.$ending" -o "$at/$part.log" "$@"
    done
}

xc() { # OPTIONS...: trains on $at/data
    train xc --train "$at/data/train.txt" --valid "$at/data/valid.txt" --test "$at/data/test.txt" "$@"
    logs txt
}

tokens() { # KIND OPTIONS...
    local kind=$1
    shift
    train "$kind" --train "$at/data/train.tokens.safetensors" --valid "$at/data/valid.tokens.safetensors" \
        --test "$at/data/test.tokens.safetensors" "$@"
}

for name in "$@"; do
    case $name in
    debian | debian-7 | debian-15 | debian-30)
        if ! apt-cache dumpavail >"$cache/catalogue.tmp" 2>/dev/null || [ ! -s "$cache/catalogue.tmp" ]; then
            echo "$name: left out, apt-cache dumpavail prints nothing here"
            continue
        fi
        options='--epochs auto'
        [ "$name" = debian ] || options="--epochs ${name#debian-}"
        begin "$name" "--min-label-count 1 $options" "$cache/catalogue.tmp"
        [ -s "$at/data/test.txt" ] || "$wideout" data deb822 --min-label-count 1 "$cache/catalogue.tmp" -o "$at/data"
        rm "$cache/catalogue.tmp"
        # shellcheck disable=SC2086 # options are words
        xc $options
        ;;
    eurlex57k | eurlex57k-seed2 | eurlex57k-seed3)
        from=$(raw eurlex57k)
        [ -n "$from" ] || { echo "$name: left out, its data are not here (set WIDEOUT_DATA)"; continue; }
        options='--counts raw --batch 128 --epochs auto'
        [ "$name" = eurlex57k ] || options="$options --seed ${name#eurlex57k-seed}"
        begin "$name" "$options" "$from"/*.txt.gz
        mkdir -p "$at/data"
        for part in train:train valid:dev test:test; do
            gzip -dc "$from/${part#*:}.txt.gz" >"$at/data/${part%:*}.txt"
        done
        cp "$from/labels.txt" "$at/data/labels.txt"
        cp "$from/vocab.txt" "$at/data/features.txt"
        # shellcheck disable=SC2086
        xc $options
        ;;
    diginetica)
        from=$(raw diginetica)
        [ -n "$from" ] || { echo "$name: left out, its data are not here (set WIDEOUT_DATA)"; continue; }
        options='--counts raw --batch 512 --epochs auto'
        # Sessions in order of time, and the test file is the week after them: the last rows are nearest to it.
        begin diginetica "--last $options" "$from"/*.txt.gz
        [ -s "$at/data/valid.txt" ] || "$wideout" data split "$from/train.txt.gz" --last --valid 0.05 -o "$at/data"
        gzip -dc "$from/test.txt.gz" >"$at/data/test.txt"
        # shellcheck disable=SC2086
        xc $options
        ;;
    diginetica-half)
        from=$(raw diginetica)
        [ -n "$from" ] || { echo "$name: left out, its data are not here (set WIDEOUT_DATA)"; continue; }
        options='--counts raw --batch 512 --epochs auto'
        # The first half of the time is learned from; the second is what comes later (bench/drift.sh).
        begin diginetica-half "--last $options" "$from"/train.txt.gz
        if [ ! -s "$at/data/test.txt" ]; then
            "$wideout" data split "$from/train.txt.gz" --last --valid 0.5 -o "$at/halves"
            "$wideout" data split "$at/halves/train.txt" --last --valid 0.05 -o "$at/data"
            mv "$at/halves/valid.txt" "$at/data/test.txt"
            rm -r "$at/halves"
        fi
        # shellcheck disable=SC2086
        xc $options
        ;;
    tmall)
        from=$(raw tmall)
        [ -n "$from" ] || { echo "$name: left out, its data are not here (set WIDEOUT_DATA)"; continue; }
        options='--counts raw --batch 512 --epochs auto'
        begin tmall "$options" "$from"/*.txt.gz
        mkdir -p "$at/data"
        for part in train valid test; do
            gzip -dc "$from/$part.txt.gz" >"$at/data/$part.txt"
        done
        # shellcheck disable=SC2086
        xc $options
        ;;
    wikitext-2)
        from=$(raw wikitext-2)
        [ -n "$from" ] || { echo "$name: left out, its data are not here (set WIDEOUT_DATA)"; continue; }
        options='--epochs auto'
        begin wikitext-2 "$options" "$from"/*.tokens.gz
        [ -s "$at/data/test.tokens.safetensors" ] || "$wideout" data text "$from"/wiki.{train,valid,test}.tokens.gz -o "$at/data"
        # shellcheck disable=SC2086
        tokens lm $options
        logs tokens.safetensors --max-queries 200000
        ;;
    wikitext-2-torch | wikitext-2-next35)
        # Another's network: nothing is trained, its logs alone are made; the layer is read where it is.
        from=$(raw wikitext-2)
        [ -e "$from/torch/lstm.safetensors.index.json" ] || { echo "$name: left out, its data are not here (set WIDEOUT_DATA)"; continue; }
        options='--next 1 --max-queries 700000' # as many as the tuner builds from
        [ "$name" = wikitext-2-torch ] || options='--next 35 --max-queries 700000'
        begin "$name" "$options" "$from"/*.tokens.gz "$from"/torch/*
        [ -s "$at/data/test.tokens.safetensors" ] || "$wideout" data text "$from"/wiki.{train,valid,test}.tokens.gz -o "$at/data"
        for part in train valid test; do
            # shellcheck disable=SC2086 # several words
            [ -s "$at/$part.log" ] || "$wideout" embed "$from/torch/lstm.safetensors.index.json" --arch lm --vocab "$from/torch/vocab.txt" \
                --data "$at/data/$part.tokens.safetensors" $options -o "$at/$part.log"
        done
        ;;
    enwiki100m | enwiki100m-drop200)
        from=$(raw enwiki100m)
        [ -n "$from" ] || { echo "$name: left out, its data are not here (set WIDEOUT_DATA)"; continue; }
        options='--sampled 4096 --epochs auto --lr 0.01'
        [ "$name" = enwiki100m ] || options="$options --drop-top 200"
        begin "$name" "--min-count 2 $options" "$from"/*.gz
        [ -s "$at/data/test.tokens.safetensors" ] || "$wideout" data text --min-count 2 "$from/enwiki100m.txt.gz" -o "$at/data"
        # shellcheck disable=SC2086
        tokens w2v $options
        logs tokens.safetensors
        # One without counts is of an earlier version. (jq -e takes no input at all for a yes.)
        { [ -s "$at/words.log" ] && "$wideout" info --json "$at/words.log" | jq -e '.tensors | any(.name == "labels.counts")' >/dev/null; } ||
            "$wideout" embed "$at/net.safetensors" --data "$at/data/train.tokens.safetensors" --distinct -o "$at/words.log"
        ;;
    *)
        echo "nets: '$name' is not one of debian, debian-7, debian-15, debian-30, eurlex57k, eurlex57k-seed2, eurlex57k-seed3, diginetica, diginetica-half, tmall, wikitext-2, wikitext-2-torch, wikitext-2-next35, enwiki100m, enwiki100m-drop200" >&2
        exit 2
        ;;
    esac
done
