#!/usr/bin/python3
"""The language model of 'wideout train lm' in PyTorch: same token files, same recipe.

    /usr/bin/python3 bench/torch_lm.py --train train.tokens.safetensors --test test.tokens.safetensors [--time-steps 50]

Prints one JSON object with the fields of 'wideout train lm --json'. With --time-steps N only 5 + N steps are run, and
ms_per_step is their median after the first 5."""
import argparse
import json
import statistics
import struct
import time

import numpy as np
import torch
from torch import nn


def read(path):
    """The ids of a token file, and the size of its vocabulary."""
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])

    def tensor(name, dtype):
        begin, end = header[name]["data_offsets"]
        return np.frombuffer(data[8 + length + begin:8 + length + end], dtype)

    return torch.from_numpy(tensor("tokens", "<i4").astype(np.int64)), len(tensor("names.labels.indptr", "<i8")) - 1


class Model(nn.Module):
    def __init__(self, words, d, dropout):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.embed = nn.Embedding(words, d)
        nn.init.normal_(self.embed.weight, 0, 0.1)
        self.lstm = nn.LSTM(d, d, 2, dropout=dropout)
        self.output = nn.Linear(d, words)

    def hidden(self, words, state):
        out, state = self.lstm(self.drop(self.embed(words)), state)
        return self.drop(out), state


@torch.no_grad()
def precision(model, ids):
    model.eval()
    state, first, hits, n = None, 0, 0, 0
    for start in range(0, len(ids) - 1, 1024):
        words, target = ids[start:start + 1024], ids[start + 1:start + 1025]
        out, state = model.hidden(words[:len(target)].unsqueeze(1), state)
        found = model.output(out.squeeze(1)).topk(5, 1).indices == target.unsqueeze(1)
        first, hits, n = first + found[:, 0].sum().item(), hits + found.sum().item(), n + len(target)
    model.train()
    return first / n, hits / n / 5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", required=True)
    parser.add_argument("--test")
    parser.add_argument("--dim", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=35)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--dropout", type=float, default=0.35)
    parser.add_argument("--clip", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--time-steps", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)

    torch.backends.cudnn.allow_tf32 = False  # float32 on a GPU too
    ids, n_words = read(args.train)
    ids = ids.to(args.device)
    length = (len(ids) - 1) // args.batch
    words = ids[:length * args.batch].view(args.batch, length).t().contiguous()
    targets = ids[1:length * args.batch + 1].view(args.batch, length).t().contiguous()
    model = Model(n_words, args.dim, args.dropout).to(args.device)
    optimiser = torch.optim.Adam(model.parameters(), lr=args.lr)
    steps = (length + args.steps - 1) // args.steps
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, args.lr, total_steps=steps * args.epochs, cycle_momentum=False)
    times, total, loss_mean = [], 0, 0.0
    for _ in range(args.epochs):
        state, losses = None, 0.0
        for start in range(0, length, args.steps):
            began = time.perf_counter()
            window, target = words[start:start + args.steps], targets[start:start + args.steps]
            if state is not None:
                state = tuple(part.detach() for part in state)
            out, state = model.hidden(window, state)
            loss = nn.functional.cross_entropy(model.output(out.view(-1, args.dim)), target.reshape(-1))
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimiser.step()
            rate.step()
            times.append(time.perf_counter() - began)
            losses += loss.item() * target.numel()
            total += target.numel()
            if args.time_steps and len(times) == 5 + args.time_steps:
                break
        loss_mean = losses / (length * args.batch)
        if args.time_steps:
            break
    result = dict(framework="torch " + torch.__version__, m=n_words, d=args.dim, epochs=args.epochs, seed=args.seed,
                  loss=None if args.time_steps else loss_mean, examples_per_s=total / sum(times), seconds=sum(times),
                  ms_per_step=1e3 * statistics.median(times[5:]))
    if args.test and not args.time_steps:
        result["test_p_at_1"], result["test_p_at_5"] = precision(model, read(args.test)[0].to(args.device))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
