"""Shared by bench/python.py and bench/python_torch.py: medians of things that take turns, threads that scale, results."""

import json
import os
import platform
import random
import statistics
import subprocess
import threading
import time

import numpy as np

import wideout


def in_turn(works, rounds, rest=0.0):
    """The median of what each returns, in every round in another order: what comes second finds warmer caches. Before each so
    many seconds of rest."""
    times, order = {name: [] for name in works}, list(works)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            time.sleep(rest)
            times[name].append(works[name]())
    return {name: statistics.median(found) for name, found in times.items()}


def timed(call, inputs, clock=time.perf_counter):
    """Seconds a call."""
    begin = clock()
    for x in inputs:
        call(x)
    return (clock() - begin) / len(inputs)


def scaling(call, n_threads, seconds=1.0):
    """Calls a second of so many Python threads."""
    done = [0] * n_threads
    go, stop = threading.Barrier(n_threads + 1), threading.Event()

    def work(i):
        call()
        go.wait()
        while not stop.is_set():
            call()
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


def print_scaling(call):
    """One Python thread and two, in turn: batches a second, also as they are returned."""
    rates = in_turn({n: lambda n=n: scaling(call, n) for n in (1, 2)}, 5)
    print(f"Python threads      1: {rates[1]:,.0f} batches/s   2: {rates[2]:,.0f} batches/s ({rates[2] / rates[1]:.2f} x)")
    return {"batches_per_s": rates[1], "batches_per_s_2": rates[2], "times": rates[2] / rates[1]}


def machine(load):
    """What results are of, as in those of wideout-bench; the load is that before anything was measured."""
    here = os.path.dirname(os.path.abspath(__file__))
    told = subprocess.run(
        ["git", "-C", here, "describe", "--always", "--abbrev=10", "--dirty=+"], capture_output=True, text=True, check=False
    )
    cpu = wideout.cpu()
    return {
        "commit": told.stdout.strip() or "unknown",
        "version": wideout.__version__,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {
            "cpu": cpu["model"],
            "instructions": cpu["level"],
            "cores": os.cpu_count(),
            "kernel": platform.release(),
            "load": load,
        },
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def write_json(found, path):
    """Where a file was named."""
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2)
            file.write("\n")
