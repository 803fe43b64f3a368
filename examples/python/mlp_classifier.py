#!/usr/bin/python3
"""A classifier with many classes, from PyTorch to a fast last layer: train, collect a log, build, compare.

    mlp_classifier.py                       2,000 made-up classes, some seconds
    mlp_classifier.py --full                Debian's package catalogue, some 50,000 classes: minutes to train

The network is a bag of words, 128 numbers with a ReLU, and a wide nn.Linear: the extreme classifier of the papers. What
matters for your own network are the lines from `wideout.collect` to `WideLinear.from_linear`.

--full makes the data with the tool (wideout data deb822; WIDEOUT names it). With --keep, data, trained network and logs
stay in a folder, and are taken from there the next time. Two threads everywhere.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np
import torch
from torch import nn

import wideout
from wideout.torch import WideLinear

THREADS = 2


# ---- Data: bags of words, and the labels of each -------------------------------------------------------------------


class Bags:
    """n examples: the words of example i are words[at[i] : at[i+1]], its labels labels[label_at[i] : label_at[i+1]]."""

    def __init__(self, n_words, n_classes, words, values, at, labels, label_at):
        self.n_words, self.n_classes, self.n = n_words, n_classes, len(at) - 1
        self.words, self.at = torch.as_tensor(words), torch.as_tensor(at)
        self.labels, self.label_at = np.asarray(labels), np.asarray(label_at)
        lengths = self.at.diff()
        norms = torch.zeros(self.n).index_add_(0, torch.arange(self.n).repeat_interleave(lengths), values**2).sqrt()
        self.values = values / norms.clamp_min(1e-30).repeat_interleave(lengths)

    def batch(self, rows):
        """(words, offsets, values) of some rows, as EmbeddingBag wants them."""
        lengths = self.at[rows + 1] - self.at[rows]
        offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
        places = torch.arange(int(offsets[-1])) + (self.at[rows] - offsets[:-1]).repeat_interleave(lengths)
        return self.words[places], offsets, self.values[places]

    def labels_of(self, rows):
        return [self.labels[self.label_at[i] : self.label_at[i + 1]] for i in rows.tolist()]


def made_up(n, seed, n_words=1500, n_classes=2000, n_typical=6):
    """Every class has words of its own, which other classes share; some classes are frequent."""
    typical = torch.randint(n_words, (n_classes, n_typical), generator=torch.Generator().manual_seed(0))
    rng = torch.Generator().manual_seed(seed)
    label = (n_classes * torch.rand(n, generator=rng) ** 3).long()
    words = typical[label]
    noise = torch.randint(n_words, words.shape, generator=rng)
    words = torch.where(torch.rand(words.shape, generator=rng) < 0.25, noise, words).flatten()
    at = torch.arange(0, len(words) + 1, n_typical)
    return Bags(n_words, n_classes, words, torch.ones(len(words)), at, label, np.arange(n + 1))


def read_xc(path):
    """The extreme-classification text format: 'l1,l2 f:v f:v', below a line with the counts."""
    words, values, at, labels, label_at = [], [], [0], [], [0]
    with open(path, encoding="utf-8") as file:
        _, n_words, n_classes = map(int, file.readline().split())
        for line in file:
            head, *pairs = line.rstrip("\n").split(" ")
            labels += [int(label) for label in head.split(",") if label]
            for pair in filter(None, pairs):
                word, value = pair.split(":")
                words.append(int(word))
                values.append(float(value))
            at.append(len(words))
            label_at.append(len(labels))
    return Bags(n_words, n_classes, words, torch.tensor(values).log1p(), at, labels, label_at)


def debian(folder):
    """The catalogue of this machine: descriptions in, dependencies out."""
    if not os.path.exists(os.path.join(folder, "test.txt")):
        catalogue = subprocess.run(["apt-cache", "dumpavail"], check=True, stdout=subprocess.PIPE).stdout
        tool = os.environ.get("WIDEOUT", "wideout")
        subprocess.run(
            [tool, "data", "deb822", "--min-label-count", "1", "-", "-o", folder], check=True, input=catalogue
        )
    return [read_xc(os.path.join(folder, part + ".txt")) for part in ("train", "valid", "test")]


# ---- The network ---------------------------------------------------------------------------------------------------


class Network(nn.Module):
    def __init__(self, n_words, d, n_classes):
        super().__init__()
        self.embed = nn.EmbeddingBag(n_words, d, mode="sum", sparse=True, include_last_offset=True)
        nn.init.normal_(self.embed.weight, 0, 0.1)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(d, n_classes)

    def forward(self, words, offsets, values):
        return self.head(self.dropout(torch.relu(self.embed(words, offsets, per_sample_weights=values))))


def train(network, data, epochs, lr=2e-3, batch=256):
    labelled = torch.from_numpy(np.flatnonzero(np.diff(data.label_at)))
    optimisers = [
        torch.optim.SparseAdam(list(network.embed.parameters()), lr=lr),
        torch.optim.Adam(network.head.parameters(), lr=lr),
    ]
    steps = epochs * -(-len(labelled) // batch)
    rates = [torch.optim.lr_scheduler.OneCycleLR(o, lr, total_steps=steps, cycle_momentum=False) for o in optimisers]
    for epoch in range(epochs):
        began, total = time.perf_counter(), 0.0
        for rows in labelled[torch.randperm(len(labelled))].split(batch):
            logits = network(*data.batch(rows))
            labels = data.labels_of(rows)
            counts = torch.tensor([len(found) for found in labels])
            places = torch.arange(len(rows)).repeat_interleave(counts)
            hits = logits[places, torch.as_tensor(np.concatenate(labels))] / counts[places]
            loss = (logits.logsumexp(1).sum() - hits.sum()) / len(rows)
            for o in optimisers:
                o.zero_grad(set_to_none=True)
            loss.backward()
            for o, rate in zip(optimisers, rates):
                o.step()
                rate.step()
            total += loss.item() * len(rows)
        took = time.perf_counter() - began
        print(f"epoch {epoch + 1} of {epochs}: loss {total / len(labelled):.3f}, {took:.1f} s", flush=True)


# ---- The log, and what comes of it ---------------------------------------------------------------------------------


def prepare(folder, full, epochs=None):
    """A trained network, and logs to learn an index from, to judge it while tuning, and to test it."""
    if full:
        parts = debian(os.path.join(folder, "data"))
    else:
        parts = [made_up(n, seed) for n, seed in ((8000, 1), (2000, 2), (2000, 3))]
    training = parts[0]
    network = Network(training.n_words, 128 if full else 32, training.n_classes)
    print(f"{training.n:,} examples, {training.n_classes:,} classes")
    model = os.path.join(folder, "model.pt")
    logs = [os.path.join(folder, part) for part in ("train.log", "valid.log", "test.log")]
    if os.path.exists(model):
        network.load_state_dict(torch.load(model))
    else:
        train(network, training, epochs or (7 if full else 4), lr=2e-3 if full else 1e-2)
        for data, log in zip(parts, logs):
            collect(network, data, log)
        torch.save(network.state_dict(), model)
    return network.eval(), logs


@torch.no_grad()
def collect(network, data, path):
    """An ordinary evaluation loop, with what reaches the head written to a log."""
    network.eval()
    with wideout.collect(network.head, path) as log:
        for rows in torch.arange(data.n).split(1024):
            network(*data.batch(rows))
            log.labels(data.labels_of(rows))


def times(calls, rounds):
    """Seconds of each call, the median over rounds in which all take turns."""
    taken = [[] for _ in calls]
    for _ in range(rounds):
        for call, times in zip(calls, taken):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
    return [statistics.median(t) for t in taken]


@torch.no_grad()
def compare(head, queries, rounds):
    """torch's linear(x).topk(5), our FULL, and the index: microseconds a query."""
    print(f"\n{'us a query':<12}{'torch':>10}{'FULL':>10}{'index':>10}{'x torch':>10}{'x FULL':>10}")
    for batch, calls in ((1, 100), (1024, 8)):
        some = queries[torch.arange(batch * calls) % len(queries)].split(batch)
        slow = some[: max(1, calls // 10)]  # 5 ms a query needs no hundred

        def in_torch():
            for x in slow:
                head(x).topk(5)

        def in_full():
            for x in slow:
                head.index.search(x, 5, by="full")

        def in_index():
            for x in some:
                head.topk(x, 5)

        in_index()
        full = 1e6 / (batch * len(slow))
        us = [
            t * scale
            for t, scale in zip(times([in_torch, in_full, in_index], rounds), (full, full, 1e6 / (batch * calls)))
        ]
        print(f"batch {batch:<6}{us[0]:10.2f}{us[1]:10.2f}{us[2]:10.3f}{us[0] / us[2]:10.0f}{us[1] / us[2]:10.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="Debian's catalogue instead of 2,000 made-up classes")
    parser.add_argument("--keep", metavar="FOLDER", help="for data, network and logs, to be used again")
    parser.add_argument("--epochs", type=int, help="default: 4, with --full 7")
    parser.add_argument("--max-time", type=float, help="seconds that the tuner may take (5; with --full 180)")
    args = parser.parse_args()
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)

    with contextlib.ExitStack() as stack:
        folder = args.keep or stack.enter_context(tempfile.TemporaryDirectory())
        os.makedirs(folder, exist_ok=True)
        network, logs = prepare(folder, args.full, args.epochs)

        # The five lines: a layer that answers as before, from a few classes of many.
        network.head = WideLinear.from_linear(
            network.head, logs[0], tune_queries=logs[1], max_time=args.max_time or (180 if args.full else 5)
        )
        print(f"\n{network.head.index}")

        network.head.index.threads = THREADS
        judged = network.head.index.evaluate(logs[2], timing=False)
        print(f"\nOn test data, which neither network nor index have seen:\n{judged}")
        queries = torch.from_numpy(wideout.open_log(logs[2]).queries.copy())
        compare(network.head, queries, 9)


if __name__ == "__main__":
    main()
