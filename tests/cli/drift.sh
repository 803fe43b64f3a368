#!/bin/bash
# bench/drift.sh on little data: an index of few queries learns from many.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
root=$PWD
BUILD=$(realpath "$BUILD")
export BUILD
if [ ! -x "$BUILD/bench/replay" ]; then
    ok 'there is no server here # skip'
    finish
    exit
fi
cd "$scratch" || exit 1
"$WIDEOUT" data synthetic -q -m 200 -d 8 -n 4000 -o s >/dev/null
"$WIDEOUT" data draw -q s/train.log.safetensors -n 400 -o first >/dev/null
RESULTS=results OUT=out "$root/bench/drift.sh" s/layer.safetensors first s/train.log.safetensors 2000 \
    --router tree --nodes 2 --leaves 8 --source labels --lambda 0.02 --prior 0.5 --thin 8 >lines 2>said
same 'it ends well' 0 $?
same 'what is compared' '["static","told","learning","known","all",null]' "$(jq -sc 'map(.name)' lines)"
same 'no request failed' 0 "$(jq -s 'map(.failed // 0) | add' lines)"
same 'feedback is refused by one, and taken by the other' '[true,0]' \
    "$(jq -sc '[.[1].feedback_refused > 0, .[2].feedback_refused]' lines)"
check 'answers are judged' jq -se '.[0:5] | all(.judged > 1000 and .p_at_5 > 0 and .p_at_1 <= 1)' lines
check 'shares of gaps' jq -se '.[5] | has("gap_closed_p_at_5") and has("cost_of_learning")' lines
check 'all of it is in the result file, with what it is of, where and when it was made' jq -e '.from == 2000 and (.runs | length) == 5 and
    (.summary | has("cost_of_learning")) and .build_options and .machine and .version and .commit and (.date | fromdate > 0)' results
finish
