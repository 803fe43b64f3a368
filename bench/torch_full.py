#!/usr/bin/python3
"""The exact layer in PyTorch, for wideout-bench: torch_full.py FOLDER M D N

FOLDER holds weight (M, D), bias (M) and queries (N, D) as plain floats. Prints "torch VERSION", then answers each line
"FIRST N K THREADS ANSWER" with "WALL CPU", the seconds of one call, and where ANSWER is 1 a line of the N x K ids."""
import os
import sys
import time

try:
    import numpy as np
    import torch
except ImportError:
    sys.exit(1)

AT_ONCE = 1 << 28  # logits held at once: 1 GiB


def load(folder, name, *shape):
    return torch.from_numpy(np.fromfile(os.path.join(folder, name), dtype=np.float32).reshape(shape))


def topk(weight, bias, queries, k):
    step = max(1, AT_ONCE // len(bias))
    parts = [torch.topk(torch.addmm(bias, queries[i:i + step], weight), k).indices
             for i in range(0, len(queries), step)]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def main():
    folder, (m, d, n) = sys.argv[1], map(int, sys.argv[2:5])
    weight, bias = load(folder, "weight", m, d).t(), load(folder, "bias", m)
    queries = load(folder, "queries", n, d)
    print("torch", torch.__version__, flush=True)
    with torch.inference_mode():
        for line in sys.stdin:
            first, count, k, threads, answer = map(int, line.split())
            if threads != torch.get_num_threads():
                torch.set_num_threads(threads)
            batch = queries[first:first + count]
            wall, cpu = time.perf_counter(), time.process_time()
            ids = topk(weight, bias, batch, k)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            print(wall, cpu, flush=not answer)
            if answer:
                print(*ids.flatten().tolist(), flush=True)


main()
