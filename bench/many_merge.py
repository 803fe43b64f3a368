"""The answers of many shards as those of one layer: many_merge.py FOLDER P, for bench/many.sh.

Class c of shard s is class c * P + s of the whole. Prints quality, and what making, building and asking took."""
import json
import os
import struct
import sys

folder, shards = sys.argv[1], int(sys.argv[2])


def labels_of(path):
    """The label of each query of a log, None where it has none here."""
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(size))

        def numbers(name, code):
            first, end = header[name]["data_offsets"]
            f.seek(8 + size + first)
            return struct.unpack("<%d%s" % ((end - first) // struct.calcsize(code), code), f.read(end - first))

        starts, ids = numbers("labels.indptr", "q"), numbers("labels.indices", "i")
    return [ids[a] if a < b else None for a, b in zip(starts, starts[1:])]


def best(kind):
    """The best of all shards for each query."""
    found = {}
    for s in range(shards):
        with open("%s/%s-%d.out" % (folder, kind, s)) as f:
            for line in f:
                query = json.loads(line)
                for a in query["answers"]:
                    offer = (a["score"], -(a["id"] * shards + s))
                    found[query["query"]] = max(found.get(query["query"], offer), offer)
    return {q: -offer[1] for q, offer in found.items()}


def cost(kind):
    """Sums over shards; of memory the most."""
    all_of = [json.load(open("%s/%s-%d.cost" % (folder, kind, s))) for s in range(shards)]
    total = {k: round(sum(c[k] for c in all_of), 2) for k in all_of[0]}
    total["peak_mib"] = round(max(c["peak_mib"] for c in all_of), 1)
    return total


def us(kind):
    """Microseconds a query by batch, of all shards one after the other: by the clock, and of CPU."""
    rows = [t for s in range(shards) for t in json.load(open("%s/%s-%d.out" % (folder, kind, s)))["timings"]]
    return {"batch_%d" % batch: {"wall_us": round(sum(t["us_per_query"] for t in rows if t["batch"] == batch), 3),
                                 "cpu_us": round(sum(1000 * t["cpu_s_per_1000"] for t in rows if t["batch"] == batch), 3)}
            for batch in sorted({t["batch"] for t in rows})}


def scored(kind):
    return sum(json.loads(line)["candidates"] for s in range(shards) for line in open("%s/%s-%d.out" % (folder, kind, s)))


truth = {}
for s in range(shards):
    for i, label in enumerate(labels_of("%s/test-%d" % (folder, s))):
        if label is not None:
            truth[i] = label * shards + s
n = len(truth)


def hits(answers):
    return sum(answers.get(i) == label for i, label in truth.items()) / n


exact = best("exact")
full = hits(exact)
cells = []
for probes in (1, 4):
    kind = "cells-%d" % probes
    answers = best(kind)
    cells.append({"probes": probes, "p_at_1": hits(answers), "share": hits(answers) / full,
                  "agreement": sum(answers.get(i) == c for i, c in exact.items()) / len(exact),
                  "classes_scored": scored(kind) / n, "asked_from_disk": cost(kind), "us": us("times-%d" % probes)})
print(json.dumps({"queries": n, "full_p_at_1": full, "cells": cells, "made": cost("make"), "built": cost("build"),
                  "full": cost("exact"),
                  "file_bytes": sum(os.path.getsize("%s/index-%d" % (folder, s)) for s in range(shards))}))
