#!/usr/bin/python3
"""The bag network of 'wideout train xc' in PyTorch: same files, same recipe, so that quality and speed can be compared.

    /usr/bin/python3 bench/torch_xc.py --train train.txt --test test.txt [--epochs 7] [--seed 1] [--time-steps 50]

Prints one JSON object with the fields of 'wideout train xc --json'. With --time-steps N only 5 + N steps are run, and
ms_per_step is their median after the first 5."""
import argparse
import gzip
import json
import statistics
import time

import numpy as np
import torch
from torch import nn


def read(path):
    """An extreme-classification file as two CSR matrices: (n, features, labels), indptrs, ids, values."""
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt") as file:
        n, n_features, n_labels = map(int, file.readline().split())
        indptr, ids, values, label_indptr, labels = [0], [], [], [0], []
        for line in file:
            head, *pairs = line.rstrip("\n").split(" ")
            labels.extend(int(label) for label in head.split(",") if label)
            for pair in pairs:
                if pair:
                    feature, value = pair.split(":")
                    ids.append(int(feature))
                    values.append(float(value))
            indptr.append(len(ids))
            label_indptr.append(len(labels))
    return dict(n=n, n_features=n_features, n_labels=n_labels, indptr=np.array(indptr), ids=np.array(ids),
                values=np.array(values, dtype=np.float32), label_indptr=np.array(label_indptr), labels=np.array(labels))


def transform(data, counts, normalize):
    values = np.log1p(data["values"]) if counts == "log1p" else data["values"].copy()
    if normalize == "l2":
        rows = np.repeat(np.arange(data["n"]), np.diff(data["indptr"]))
        norm = np.sqrt(np.bincount(rows, weights=values.astype(np.float64) ** 2, minlength=data["n"]))
        values = (values / np.maximum(norm, 1e-30)[rows]).astype(np.float32)
    data["values"] = values


def gather(indptr, rows, *arrays):
    """The CSR slices of some rows, side by side."""
    starts, lengths = indptr[rows], indptr[rows + 1] - indptr[rows]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    index = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths) + np.repeat(starts, lengths)
    return offsets, [array[index] for array in arrays]


class Bag(nn.Module):
    def __init__(self, n_features, d, m, dropout):
        super().__init__()
        self.embed = nn.EmbeddingBag(n_features, d, mode="sum", sparse=True, include_last_offset=True)
        nn.init.normal_(self.embed.weight, 0, 0.1)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(d, m)

    def tensor(self, array):
        return torch.from_numpy(array).to(self.output.bias.device)

    def hidden(self, data, rows):
        offsets, (ids, values) = gather(data["indptr"], rows, data["ids"], data["values"])
        return torch.relu(self.embed(self.tensor(ids), self.tensor(offsets), per_sample_weights=self.tensor(values)))

    def loss(self, data, rows):
        logits = self.output(self.dropout(self.hidden(data, rows)))
        offsets, (labels,) = gather(data["label_indptr"], rows, data["labels"])
        counts = np.diff(offsets)
        row = self.tensor(np.repeat(np.arange(len(rows)), counts))
        share = self.tensor(np.repeat((1 / counts).astype(np.float32), counts))
        at_labels = logits[row, self.tensor(labels)]
        return (torch.logsumexp(logits, 1).sum() - (at_labels * share).sum()) / len(rows)


@torch.no_grad()
def precision(model, data):
    model.eval()
    first = hits = n = 0
    for start in range(0, data["n"], 1024):
        rows = np.arange(start, min(start + 1024, data["n"]))
        top = model.output(model.hidden(data, rows)).topk(5, 1).indices.cpu().numpy()
        for i, row in enumerate(rows):
            labels = set(data["labels"][data["label_indptr"][row]:data["label_indptr"][row + 1]].tolist())
            if labels:
                found = [int(k) in labels for k in top[i]]
                first, hits, n = first + found[0], hits + sum(found), n + 1
    model.train()
    return first / n, hits / n / 5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", required=True)
    parser.add_argument("--test")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--counts", default="log1p", choices=["log1p", "raw"])
    parser.add_argument("--normalize", default="l2", choices=["l2", "none"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--time-steps", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)

    data = read(args.train)
    transform(data, args.counts, args.normalize)
    labelled = np.flatnonzero(np.diff(data["label_indptr"]))
    model = Bag(data["n_features"], args.dim, data["n_labels"], args.dropout).to(args.device)
    optimisers = [torch.optim.SparseAdam(model.embed.parameters(), lr=args.lr),
                  torch.optim.Adam(model.output.parameters(), lr=args.lr)]
    steps = (len(labelled) + args.batch - 1) // args.batch
    rates = [torch.optim.lr_scheduler.OneCycleLR(o, args.lr, total_steps=steps * args.epochs, cycle_momentum=False)
             for o in optimisers]
    times, total, loss_mean = [], 0, 0.0
    for _ in range(args.epochs):
        order, losses = labelled[np.random.permutation(len(labelled))], 0.0
        for start in range(0, len(order), args.batch):
            rows, began = order[start:start + args.batch], time.perf_counter()
            loss = model.loss(data, rows)
            for o in optimisers:
                o.zero_grad(set_to_none=True)
            loss.backward()
            for o, rate in zip(optimisers, rates):
                o.step()
                rate.step()
            times.append(time.perf_counter() - began)
            losses += loss.item() * len(rows)
            total += len(rows)
            if args.time_steps and len(times) == 5 + args.time_steps:
                break
        loss_mean = losses / len(order)
        if args.time_steps:
            break
    result = dict(framework="torch " + torch.__version__, m=data["n_labels"], d=args.dim, epochs=args.epochs,
                  seed=args.seed, loss=None if args.time_steps else loss_mean, examples_per_s=total / sum(times),
                  seconds=sum(times), ms_per_step=1e3 * statistics.median(times[5:]))
    if args.test and not args.time_steps:
        test = read(args.test)
        transform(test, args.counts, args.normalize)
        result["test_p_at_1"], result["test_p_at_5"] = precision(model, test)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
