#!/usr/bin/python3
"""What Python adds to a search: the C call beside the same search from Python, in one process, in turn.

    make python && PYTHONPATH=build/python /usr/bin/python3 bench/python.py [INDEX LOG]

Prints, for one query and for a batch of 1,024, the time of wo_search alone, in a loop in C, and of Index.search with
numpy arrays and with torch tensors, where torch is installed; then how searches from Python threads scale, each with
batches of 1,024 on one thread of its own. Medians over rounds; on one thread of the processor's time, because others may
use the machine. Without an index: one of a made-up layer.
"""

import random
import statistics
import sys
import threading
import time

import numpy as np

import wideout

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


def in_turn(works, rounds):
    """us, the median over rounds of each, in every round in another order: what comes second finds warmer caches."""
    times, order = {name: [] for name in works}, list(works)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            times[name].append(works[name]())
    return {name: 1e6 * statistics.median(found) for name, found in times.items()}


def timed(work, calls, threads):
    clock = time.thread_time if threads == 1 else time.perf_counter
    begin = clock()
    work()
    return (clock() - begin) / calls


def singles(ix, kinds):
    """A call for every query."""
    n = len(kinds["numpy"])

    def work(rows):
        search = ix.search
        for row in rows:
            search(row, K)

    works = {"C": lambda: ix._time(kinds["numpy"], K, 1, 0) / n}
    for name, queries in kinds.items():
        works[name] = lambda rows=list(queries): timed(lambda: work(rows), n, 1)
    return in_turn(works, 101)


def batches(ix, kinds, threads):
    """All queries in one call."""

    works = {"C": lambda: ix._time(kinds["numpy"], K, threads, 1)}
    for name, queries in kinds.items():
        works[name] = lambda queries=queries: timed(lambda: ix.search(queries, K, threads=threads), 1, threads)
    return in_turn(works, 501)


def scaling(ix, q, n_threads, seconds=1.0):
    """Batches a second of so many Python threads."""
    done = [0] * n_threads
    go, stop = threading.Barrier(n_threads + 1), threading.Event()

    def work(i):
        ix.search(q, K, threads=1)
        go.wait()
        while not stop.is_set():
            ix.search(q, K, threads=1)
            done[i] += 1

    workers = [threading.Thread(target=work, args=(i,)) for i in range(n_threads)]
    for w in workers:
        w.start()
    go.wait()
    begin = time.perf_counter()
    time.sleep(seconds)
    stop.set()
    for w in workers:
        w.join()
    return sum(done) / (time.perf_counter() - begin)


def main(args):
    if args:
        ix, queries = wideout.open(args[0]), wideout.open_log(args[1]).queries
    else:
        W, b, queries, labels = wideout.example(m=50000, d=128, n=20000)
        ix = wideout.build(W, b, queries, labels, method="evidence", router="tree")
    queries = np.array(queries[:BATCH])
    print(f"{ix!r}, {wideout.cpu()['model']}, {wideout.cpu()['level']}")
    kinds = kinds_of(queries)
    n = f"{len(queries):,} queries"
    for what, found in [
        ("one query", singles(ix, kinds)),
        (f"{n}, 1 thread", batches(ix, kinds, 1)),
        (f"{n}, all cores", batches(ix, kinds, 0)),
    ]:
        line = f"{what:<26} C {found['C']:9.2f} us"
        for kind in kinds:
            more = found[kind] - found["C"]
            line += f"   {kind} {found[kind]:9.2f} us ({more:+.2f} us, {100 * more / found['C']:+.1f}%)"
        print(line)
    rates = {n: [] for n in (1, 2)}
    for _ in range(5):
        for n, found in rates.items():
            found.append(scaling(ix, queries, n))
    one, two = (statistics.median(found) for found in rates.values())
    print(f"Python threads             1: {one:,.0f} batches/s   2: {two:,.0f} batches/s ({two / one:.2f} x)")


if __name__ == "__main__":
    main(sys.argv[1:])
