#!/usr/bin/python3
"""What torch and Python add to a search, and what an index saves: WideLinear beside the C call and torch's own layer.

    make python && PYTHONPATH=build/python /usr/bin/python3 bench/python_torch.py [MODEL LOG]

Of a layer with 50,778 classes and 128 dimensions, Debian's shape, made up; or of the head of a model that
examples/python/mlp_classifier.py kept (--model), tuned on a log of it: the time of WideLinear.topk(x, 5), of wo_search
alone in a loop in C, of our FULL, and of torch's linear(x).topk(5), for one query and for a batch of 1,024, two threads
on all sides (one query never starts one of ours); then how topk scales with Python threads, each with batches of 1,024
of its own. Medians over rounds in which all take turns. The load of the machine is printed: overheads are processor
time of the one thread, but ratios and scaling mean nothing while others work.
"""

import os
import sys
import time

import numpy as np
import torch
from torch import nn

import wideout
from python_timing import in_turn, print_scaling, timed
from wideout.torch import WideLinear

K, BATCH, THREADS = 5, 1024, 2


def layer_of(args):
    """A WideLinear, and its queries."""
    if args:
        network = torch.load(args[0])
        weight, bias, log = network["head.weight"], network["head.bias"], wideout.open_log(args[1])
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        linear.load_state_dict({"weight": weight, "bias": bias})
        wide = WideLinear.from_linear(linear, log, max_time=60)
        queries = log.queries
    else:
        W, b, queries, labels = map(torch.as_tensor, wideout.example(m=50778, d=128, n=20000))
        linear = nn.Linear(128, 50778)
        linear.load_state_dict({"weight": W, "bias": b})
        wide = WideLinear.from_linear(linear, queries, labels, method="evidence", router="tree", partition=False)
    return wide.requires_grad_(False), torch.as_tensor(np.array(queries[:BATCH]))


def overheads(wide, queries):
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
    print(f"one query           C {1e6 * one['C']:8.2f} us   topk {1e6 * one['topk']:8.2f} us   {more:+.2f} us")
    share = 100 * (many["topk"] / many["C"] - 1)
    print(f"{BATCH:,}, one thread   C {1e6 * many['C']:8.1f} us   topk {1e6 * many['topk']:8.1f} us   {share:+.2f}%")


def ratios(wide, queries):
    for batch, calls, few in ((1, 512, 32), (BATCH, 20, 2)):
        some = [queries[i % BATCH : i % BATCH + batch] for i in range(0, batch * calls, batch)]
        works = {
            "topk": lambda: timed(lambda x: wide.topk(x, K), some),
            "FULL": lambda: timed(lambda x: wide.index.search(x, K, by="full"), some[:few]),
            "torch": lambda: timed(lambda x: nn.Linear.forward(wide, x).topk(K), some[:few]),
        }
        us = {name: 1e6 * t / batch for name, t in in_turn(works, 9).items()}
        print(
            f"batch {batch:>4}: torch {us['torch']:9.2f}   FULL {us['FULL']:8.2f}   topk {us['topk']:7.3f} us a query: "
            f"{us['torch'] / us['topk']:6.0f} x torch, {us['FULL'] / us['topk']:5.0f} x FULL"
        )


def main(args):
    torch.set_num_threads(THREADS)
    torch.set_grad_enabled(False)
    wide, queries = layer_of(args)
    print(f"{wide}, torch {torch.__version__}, {wideout.cpu()['model']}, load {os.getloadavg()[0]:.1f}")
    overheads(wide, queries)
    ratios(wide, queries)
    wide.index.threads = 1
    print_scaling(lambda: wide.topk(queries, K))


if __name__ == "__main__":
    main(sys.argv[1:])
