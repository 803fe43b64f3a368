#!/bin/sh
# What a result file says of how its figures were made, as one JSON object: about.sh BUILD. "+" behind the commit: files differ
# from it. The load is that of the minute before, so ask before the measurement.
set -eu
wideout=$1/wideout
jq -cn --arg machine "$("$wideout" cpu --json | jq -r .model), $(nproc) cores" --arg version "$("$wideout" version --json | jq -r .version)" \
    --arg commit "$(git -C "$(dirname "$0")" describe --always --abbrev=10 --dirty=+ 2>/dev/null || echo unknown)" \
    --arg date "$(date -u +%Y-%m-%dT%H:%M:%SZ)" --arg load "$(cut -d' ' -f1 /proc/loadavg)" \
    '{machine: $machine, version: $version, commit: $commit, date: $date, load_before: ($load | tonumber)}'
