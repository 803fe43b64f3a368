#!/usr/bin/python3
"""WideLinear beside the C call, FULL and torch's own layer, on the layer that examples/python/mlp_classifier.py trains.

    python_torch.py [--small] [--only-train] [--json FILE] FOLDER

Debian's catalogue, all labels, log by collect, the default target; --small: 2,000 made-up classes, to try this. FOLDER
has data, network and logs, which are made where they are missing: 15 minutes of processor time. --only-train stops
there. Then an index is tuned and judged on the test log, and these are measured: WideLinear.topk(x, 5), wo_search alone
in a loop in C, our FULL, and torch's linear(x).topk(5), for one query and for a batch of 1,024, two threads on all sides
(one query never starts one of ours); and how topk scales with Python threads, each with batches of 1,024 of its own.
Medians over rounds in which all take turns. The load of the machine is told: overheads are processor time of the one
thread, but ratios and scaling mean nothing while others work.
"""

import argparse
import os
import sys
import time

import torch
from torch import nn

import wideout
from python_timing import in_turn, machine, print_scaling, timed, write_json
from wideout.torch import WideLinear

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples", "python"))
from mlp_classifier import THREADS, prepare

K, BATCH = 5, 1024


def overheads(wide, queries):
    """Microseconds of a call, on one thread."""
    ix, array, rows = wide.index, queries.numpy(), list(queries)
    cpu = time.thread_time
    one = in_turn(
        {
            "C": lambda: ix._time(array, K, 1, 0) / len(rows),
            "topk": lambda: timed(lambda x: wide.topk(x, K), rows, cpu),
        },
        41,
    )
    ix.threads = 1
    many = in_turn(
        {
            "C": lambda: ix._time(array, K, 1, 10) / 10,
            "topk": lambda: timed(lambda x: wide.topk(x, K), [queries] * 10, cpu),
        },
        41,
    )
    ix.threads = THREADS
    more = 1e6 * (one["topk"] - one["C"])
    share = many["topk"] / many["C"] - 1
    print(f"one query           C {1e6 * one['C']:8.2f} us   topk {1e6 * one['topk']:8.2f} us   {more:+.2f} us")
    print(f"{BATCH:,}, one thread   C {1e6 * many['C']:8.1f} us   topk {1e6 * many['topk']:8.1f} us   {100 * share:+.2f}%")
    return {"one_c_us": 1e6 * one["C"], "one_more_us": more, "many_c_us": 1e6 * many["C"], "many_more_share": share}


def ratios(wide, queries):
    """Microseconds a query."""
    lines = []
    for batch, calls, few in ((1, 512, 32), (BATCH, 20, 2)):
        some = [queries[i % BATCH : i % BATCH + batch] for i in range(0, batch * calls, batch)]
        works = {
            "topk": lambda: timed(lambda x: wide.topk(x, K), some),
            "full": lambda: timed(lambda x: wide.index.search(x, K, by="full"), some[:few]),
            "torch": lambda: timed(lambda x: nn.Linear.forward(wide, x).topk(K), some[:few]),
        }
        # Threads of torch's OpenMP spin for some milliseconds after a call: they go to sleep before the next one is timed.
        us = {name: 1e6 * t / batch for name, t in in_turn(works, 9, rest=0.02).items()}
        times = {name: us[name] / us["topk"] for name in ("torch", "full")}
        print(
            f"batch {batch:>4}: torch {us['torch']:9.2f}   FULL {us['full']:8.2f}   topk {us['topk']:7.3f} us a query: "
            f"{times['torch']:6.0f} x torch, {times['full']:5.0f} x FULL"
        )
        lines.append({"batch": batch, "us": us, "times": times})
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only-train", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    os.makedirs(args.folder, exist_ok=True)
    network, logs = prepare(args.folder, not args.small)
    if args.only_train:
        return
    torch.set_grad_enabled(False)
    load = os.getloadavg()[0]
    wide = WideLinear.from_linear(network.head, logs[0], tune_queries=logs[1], max_time=2 if args.small else 180)
    print(wide.index)
    wide.index.threads = THREADS
    judged = wide.index.evaluate(logs[2], timing=False)
    print(f"\n{judged}\n\n{wide}, torch {torch.__version__}, load {load:.1f}")
    queries = torch.as_tensor(wideout.open_log(logs[2]).queries[:BATCH].copy())
    found = {
        **machine(load),
        "torch": torch.__version__,
        "m": wide.out_features,
        "n": judged.n,
        "options": wide.index.options,
        "quality": {name: judged[name] for name in ("p_at_1", "full_p_at_1", "p_at_5", "full_p_at_5", "sample_size")},
        "overheads": overheads(wide, queries),
        "ratios": ratios(wide, queries),
    }
    wide.index.threads = 1
    found["scaling"] = print_scaling(lambda: wide.topk(queries, K))
    write_json(found, args.json)


if __name__ == "__main__":
    main()
