#!/usr/bin/python3
"""What Python adds to a search: the C call beside the same search from Python, in one process, in turn.

    make python && PYTHONPATH=build/python /usr/bin/python3 bench/python.py [--json FILE] [INDEX LOG]

Prints, for one query and for a batch of 1,024, the time of wo_search alone, in a loop in C, and of Index.search with
numpy arrays and with torch tensors, where torch is installed; then how searches from Python threads scale, each with
batches of 1,024 on one thread of its own. Medians over rounds; on one thread of the processor's time, because others may
use the machine. Without an index: one of a made-up layer.
"""

import argparse
import os
import sys
import time

import numpy as np

import wideout
from python_timing import in_turn, machine, print_scaling, timed, write_json

K = 5
BATCH = 1024


def kinds_of(queries):
    kinds = {"numpy": queries}
    try:
        import torch

        kinds["torch"] = torch.from_numpy(queries)
    except ImportError:
        print("torch is not installed: its tensors are left out")
    return kinds


def singles(ix, kinds):
    """A call for every query."""
    n, search = len(kinds["numpy"]), ix.search
    works = {"C": lambda: ix._time(kinds["numpy"], K, 1, 0) / n}
    for name, queries in kinds.items():
        works[name] = lambda rows=list(queries): timed(lambda row: search(row, K), rows, time.thread_time)
    return in_turn(works, 101)


def batches(ix, kinds, threads):
    """All queries in one call."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    works = {"C": lambda: ix._time(kinds["numpy"], K, threads, 1)}
    for name, queries in kinds.items():
        works[name] = lambda queries=queries: timed(lambda q: ix.search(q, K, threads=threads), [queries], clock)
    return in_turn(works, 501)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="INDEX LOG")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    if args.files:
        index, log = args.files
        ix, queries = wideout.open(index), wideout.open_log(log).queries
    else:
        W, b, queries, labels = wideout.example(m=50000, d=128, n=20000)
        ix = wideout.build(W, b, queries, labels, method="evidence", router="tree")
    queries = np.array(queries[:BATCH])
    print(f"{ix!r}, {wideout.cpu()['model']}, {wideout.cpu()['level']}, load {load:.1f}")
    kinds = kinds_of(queries)
    found = {**machine(load), "torch": getattr(sys.modules.get("torch"), "__version__", None), "m": ix.m, "d": ix.d, "results": []}
    for what, batch, threads, seconds in [
        ("one query", 1, 1, singles(ix, kinds)),
        (f"{len(queries):,} queries, 1 thread", len(queries), 1, batches(ix, kinds, 1)),
        (f"{len(queries):,} queries, all cores", len(queries), 0, batches(ix, kinds, 0)),
    ]:
        us = {name: 1e6 * s for name, s in seconds.items()}
        line = f"{what:<26} C {us['C']:9.2f} us"
        for kind in kinds:
            more = us[kind] - us["C"]
            line += f"   {kind} {us[kind]:9.2f} us ({more:+.2f} us, {100 * more / us['C']:+.1f}%)"
        print(line)
        found["results"].append({"batch": batch, "threads": threads, "us": us})
    found["scaling"] = print_scaling(lambda: ix.search(queries, K, threads=1))
    write_json(found, args.json)


if __name__ == "__main__":
    main()
