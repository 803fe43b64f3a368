#!/bin/bash
# The server: what the tool says before it serves, and curl's requests. The programs of tests/serve ask it more; all speak to
# it over 127.0.0.1 alone and stop every server that they start.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
golden=tests/golden
index=$golden/index-prior.safetensors

usage() { # NAME SENTENCE ARGUMENT...
    local name=$1 sentence=$2
    shift 2
    fails "$name" 2 "wideout serve: $sentence (see 'wideout serve --help')" "$WIDEOUT" serve "$@"
}
usage 'no index' 'expected one index, found 0'
usage 'a name that is no part of a path' "--name takes what fits between two slashes of a path, not 'a/b'" --name a/b $index
usage 'names are for building' "unknown option '--names': names go into the index when it is built: wideout build --names FILE" --names x $index
usage 'the index is no option' "unknown option '--index': the index is given without an option: wideout serve INDEX" --index $index
usage 'a tensor of no file' '--weight-name, --bias-name and --bias go with --layer' --weight-name x $index
usage 'shards and an index' "--shards stands in place of an index, and '$index' is one" --shards 127.0.0.1:1 $index
usage 'shards in two options' '--shards is given twice' --shards 127.0.0.1:1 --shards 127.0.0.1:2
usage 'neither all nor most' "--need takes all or most, not 'some'" --shards 127.0.0.1:1 --need some
usage 'a need of nothing' '--need, --shard-timeout and --shard-token-file go with --shards' --need most $index
usage 'what shards have' '--layer, --shadow, --batch-window, --watch and --learn are the shards'"'"' own: give them there' --shards 127.0.0.1:1 --shadow 0.1
usage 'a half-life of nothing' '--half-life goes with --learn' --half-life 10 $index
usage 'a journal of nothing' '--learned goes with --learn' --learned x $index
usage 'no time' "--timeout takes a number from 0.1 to 86400, not '0'" --timeout 0 $index

if "$WIDEOUT" serve $index --listen nowhere 2>&1 | grep -q 'built without a server'; then
    fails 'there is no server here' 1 \
        'wideout: this wideout was built without a server: install libmicrohttpd-dev and build it again' "$WIDEOUT" serve $index
    finish
    exit
fi
for option in --ready-file --access-log; do
    fails "$option: not the index" 2 \
        "wideout serve: $option '$golden/index-full.safetensors' is a file that has another use here (see 'wideout serve --help')" \
        "$WIDEOUT" serve $golden/index-full.safetensors --listen 127.0.0.1:0 $option $golden/index-full.safetensors
done
# The shards of a layer are inputs too, as they are for build.
printf '{"weight_map": {"weight": "a.safetensors", "bias": "b.safetensors"}}' >"$scratch/m.safetensors.index.json"
shard() { # NAME TENSOR: one number
    local header="{\"$2\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"
    printf '%b%s\0\0\0\0' "\\x$(printf %02x ${#header})\\0\\0\\0\\0\\0\\0\\0" "$header" >"$scratch/$1.safetensors"
    cp "$scratch/$1.safetensors" "$scratch/$1.kept"
}
shard a weight
shard b bias
for option in --ready-file --access-log --learned; do
    for shard in a b; do
        fails "$option: not shard $shard of the layer" 2 \
            "wideout serve: $option '$scratch/$shard.safetensors' is a file that has another use here (see 'wideout serve --help')" \
            timeout 20 "$WIDEOUT" serve $index --learn --listen 127.0.0.1:0 --layer "$scratch/m.safetensors.index.json" $option "$scratch/$shard.safetensors"
        check 'and it is as it was' cmp "$scratch/$shard.kept" "$scratch/$shard.safetensors"
    done
done
usage 'a text of any length' '--max-text takes at most 1073741824' --max-text 1073741825 $index
# Its first line was lost long ago, when it ends: no reason is made up.
timeout -s TERM 1 "$WIDEOUT" serve $index --listen 127.0.0.1:0 >/dev/full 2>"$scratch/err"
same 'a standard output that is full' 'wideout: cannot write to standard output' "$(cat "$scratch/err")"
mkfifo "$scratch/pipe"
for option in --access-log --learned; do
    sentence='cannot be written: it is a pipe that nobody reads'
    [ $option = --access-log ] || sentence='the path is not a plain file'
    fails "$option: a pipe that nobody reads" 1 "wideout: $scratch/pipe: $sentence" \
        timeout 20 "$WIDEOUT" serve $index --learn --listen 127.0.0.1:0 $option "$scratch/pipe"
done
fails '--token-file: a pipe that nobody writes to' 1 \
    "wideout: $scratch/pipe: cannot be read: nothing came out of it within 2 seconds" \
    timeout 20 "$WIDEOUT" serve $index --listen 127.0.0.1:0 --token-file "$scratch/pipe"
(sleep 0.5; echo 'a-token-of-some-length') >"$scratch/pipe" &
fails '--token-file: a pipe that somebody writes to' 1 "wideout: $scratch/none/ready: cannot be written: No such file or directory" \
    timeout 20 "$WIDEOUT" serve -q $index --listen 127.0.0.1:0 --token-file "$scratch/pipe" --ready-file "$scratch/none/ready"
(cd "$scratch" && mkdir -p folder && ln -sfn folder link) || exit
in_scratch() { (cd "$scratch" && "$@"); }
for pair in 'xx ./xx' 'folder/xx link/xx' "xx $scratch/folder/../xx"; do
    fails "two outputs that will be one file: $pair" 2 \
        "wideout serve: --access-log '${pair% *}' is a file that has another use here (see 'wideout serve --help')" \
        in_scratch "$WIDEOUT" serve "$PWD/$index" --listen 127.0.0.1:0 --learn --access-log "${pair% *}" --learned "${pair#* }"
done
same 'and none was made' '' "$(find "$scratch" -name xx)"
fails 'no file' 1 'wideout: none: the file cannot be opened: No such file or directory' "$WIDEOUT" serve none
fails 'another file' 1 "wideout: $golden/log.safetensors: the file is of kind log, not an index" "$WIDEOUT" serve $golden/log.safetensors
fails 'an index without rows' 1 "wideout: $golden/index-none.safetensors: the index has no rows (it was built with weights none): the layer has them; --layer FILE gives it, or --net where the network has it" \
    "$WIDEOUT" serve $golden/index-none.safetensors
fails 'a layer of another index' 1 \
    "wideout: $golden/layer-v1.safetensors: the layer is not the one that the index was built for: its checksum is 07baae1b7f76539f, expected 0c8f2a37243f5bf8" \
    "$WIDEOUT" serve $golden/index-bf16.safetensors --layer $golden/layer-v1.safetensors
fails 'a network of another size' 1 \
    "wideout: $golden/network-xc.safetensors: the network makes queries of 8 numbers, the index takes 16" \
    "$WIDEOUT" serve $index --net $golden/network-xc.safetensors
fails 'no port' 1 'wideout: 127.0.0.1: expected an address and a port, as 127.0.0.1:8080 or [::1]:8080' \
    "$WIDEOUT" serve $index --listen 127.0.0.1
for port in 65536 99999 4294967376 18446744073709551617; do
    fails "port $port" 1 "wideout: 127.0.0.1:$port: a port is at most 65535" timeout 20 "$WIDEOUT" serve $index --listen "127.0.0.1:$port"
done
fails 'no such address' 1 'wideout: 203.0.113.1:80: cannot listen there: Cannot assign requested address' \
    "$WIDEOUT" serve $index --listen 203.0.113.1:80
fails 'a ready file that cannot be' 1 "wideout: $scratch/none/ready: cannot be written: No such file or directory" \
    timeout 20 "$WIDEOUT" serve $index --listen 127.0.0.1:0 --ready-file "$scratch/none/ready"
fails 'nor a pipe that nobody reads' 1 "wideout: $scratch/pipe: cannot be written: it is a pipe that nobody reads" \
    timeout 20 "$WIDEOUT" serve $index --listen 127.0.0.1:0 --ready-file "$scratch/pipe"

# ---- curl ---------------------------------------------------------------------------------------------------------------
if command -v curl >/dev/null; then
    "$WIDEOUT" serve $index --listen 127.0.0.1:0 --ready-file "$scratch/ready" >"$scratch/said" &
    server=$!
    trap 'kill $server 2>/dev/null; rm -rf "$scratch"' EXIT
    for _ in $(seq 600); do [ -e "$scratch/ready" ] || sleep 0.05; done
    at=http://$(cat "$scratch/ready")
    check 'the first line says where' grep -qE "^serving 64 classes at $at/ \(index [0-9a-f]{16}, [0-9]+ threads\)$" "$scratch/said"
    "$WIDEOUT" predict --json --index $index -k 3 $golden/log.safetensors | head -1 >"$scratch/expected"
    tail -c +$((9 + $(od -An -tu8 -N8 $golden/log.safetensors))) $golden/log.safetensors | head -c 64 >"$scratch/q"
    curl -s "$at/v1/search?k=3" -H 'Content-Type: application/octet-stream' --data-binary @"$scratch/q" >"$scratch/got"
    same 'raw floats by curl' "$(jq -c '[.answers[].id]' "$scratch/expected")" "$(jq -c '[.results[0].answers[].id]' "$scratch/got")"
    query=$(od -An -v -tf4 -w64 "$scratch/q" | sed 's/^ *//; s/  */,/g')
    # The example of KServe's specification, with this model's names.
    curl -s "$at/v2/models/wideout/infer" -H 'Content-Type: application/json' -d '{
      "id" : "42",
      "inputs" : [ { "name" : "queries", "shape" : [ 1, 16 ], "datatype" : "FP32", "data" : ['"$query"'] } ],
      "outputs" : [ { "name" : "ids" } ],
      "parameters" : { "k" : 3 }
    }' >"$scratch/got"
    same 'KServe by curl' "\"42\" $(jq -c '[.answers[].id]' "$scratch/expected")" \
        "$(jq -c .id "$scratch/got") $(jq -c '.outputs[0].data' "$scratch/got")"
    head='{"inputs":[{"name":"queries","shape":[1,16],"datatype":"FP32","parameters":{"binary_data_size":64}}],"outputs":[{"name":"ids","parameters":{"binary_data":true}}],"parameters":{"k":3}}'
    { printf %s "$head" && cat "$scratch/q"; } >"$scratch/body"
    curl -s "$at/v2/models/wideout/infer" -H 'Content-Type: application/octet-stream' -H "Inference-Header-Content-Length: ${#head}" \
        --data-binary @"$scratch/body" -D "$scratch/headers" -o "$scratch/got"
    skip=$(tr -d '\r' <"$scratch/headers" | sed -n 's/^Inference-Header-Content-Length: //p')
    same 'binary tensors by curl' "$(jq -c '[.answers[].id]' "$scratch/expected")" \
        "[$(tail -c +$((skip + 1)) "$scratch/got" | od -An -v -td4 | sed 's/^ *//; s/  */,/g')]"
    # The same examples as they stand: another model's, refused in the form that the specification gives.
    example='"outputs": [{"name": "output0"}]'
    same 'the example as it stands' '400 {"error":"there is no output '"'output0'"'"}' "$(curl -s -w '%{stderr}%{http_code} ' "$at/v2/models/wideout/infer" \
        -d '{"id": "42", "inputs": [{"name": "input0", "shape": [2, 2], "datatype": "UINT32", "data": [1, 2, 3, 4]},
             {"name": "input1", "shape": [3], "datatype": "BOOL", "data": [true]}], '"$example}" 2>"$scratch/code" | jq -c . >"$scratch/got"
        cat "$scratch/code" "$scratch/got")"
    head='{"model_name": "mymodel", "inputs": [{"name": "input0", "shape": [2, 2], "datatype": "UINT32", "parameters": {"binary_data_size": 16}}, {"name": "input1", "shape": [3], "datatype": "BOOL", "parameters": {"binary_data_size": 3}}], '"$example}"
    { printf %s "$head" && printf '\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\1\0\1'; } >"$scratch/body"
    same 'and with 19 bytes behind it' "{\"error\":\"there is no output 'output0'\"}" "$(curl -s "$at/v2/models/wideout/infer" \
        -H 'Content-Type: application/octet-stream' -H "Inference-Header-Content-Length: ${#head}" --data-binary @"$scratch/body" | jq -c .)"
    same 'health and metadata' '{"live":true} {"ready":true,"live":true} {"name":"wideout","ready":true} wideout ["binary_tensor_data"] ["queries"]' \
        "$(curl -s "$at/v2/health/live" | jq -c .) $(curl -s "$at/v2/health/ready" | jq -c .) $(curl -s "$at/v2/models/wideout/ready" |
            jq -c .) $(curl -s "$at/v2" | jq -r .name) $(curl -s "$at/v2/" | jq -c .extensions) $(curl -s "$at/v2/models/wideout" | jq -c '[.inputs[].name]')"
    same 'another on the same port' 1 "$("$WIDEOUT" serve $index --listen "${at#http://}" 2>&1 |
        grep -c "cannot listen there: Address already in use")"
    kill $server
    wait $server
    same 'SIGTERM is a good end' 0 $?
else
    ok 'no curl here # skip'
fi

finish
