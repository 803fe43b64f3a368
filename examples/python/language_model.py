#!/usr/bin/python3
"""A language model that decodes with WideLinear: tokens a second before and after.

    language_model.py                       an LSTM with tied weights, trained for some seconds on made-up text
    language_model.py --model FOLDER        WikiText-2's in safetensors: embed, a 2-layer LSTM, output

For each step of decoding the whole network runs; what changes is how the next word is drawn from its last layer. With
--model, --text names the tokens that a log is collected from.
"""

import argparse
import gzip
import json
import os
import struct
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import wideout
from wideout.torch import WideLinear

THREADS = 2


class LanguageModel(nn.Module):
    def __init__(self, n_words, d, layers, tied):
        super().__init__()
        self.embed = nn.Embedding(n_words, d)
        self.lstm = nn.LSTM(d, d, layers, batch_first=True)
        self.output = nn.Linear(d, n_words, bias=not tied)
        if tied:
            self.output.weight = self.embed.weight

    def hidden(self, words, state=None):
        return self.lstm(self.embed(words), state)

    def forward(self, words, state=None):
        hidden, state = self.hidden(words, state)
        return self.output(hidden), state


# ---- A small model, or one that somebody trained --------------------------------------------------------------------


def made_up_text(n, n_words, seed=1):
    """Words that follow each other: each has two likely followers, and mostly one of them comes."""
    rng = np.random.default_rng(seed)
    followers = (n_words * rng.random((n_words, 2)) ** 2).astype(np.int64)
    words = (n_words * rng.random(n) ** 3).astype(np.int64)  # frequent words and rare ones
    for i in np.flatnonzero(rng.random(n) < 0.8):
        words[i] = followers[words[i - 1], rng.integers(2)]
    return torch.from_numpy(words)


def small(n_words=2000, d=48, steps=150):
    model = LanguageModel(n_words, d, 1, tied=True)
    nn.init.normal_(model.embed.weight, 0, 0.2)
    text = made_up_text(64 * 20 * steps, n_words)
    optimiser = torch.optim.Adam(model.parameters())
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-2, total_steps=steps)
    for batch in text.reshape(64, steps, 20).transpose(0, 1):
        logits, _ = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rates.step()
    print(f"an LSTM with {n_words:,} words, after {steps} steps: loss {loss.item():.2f}")
    return model, made_up_text(40_000, n_words)


def tensors_of(folder):
    """All tensors of the safetensors files in a folder."""
    found = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            data = file.read()
        for tensor, entry in header.items():
            if tensor != "__metadata__":
                kind = {"F32": torch.float32, "BF16": torch.bfloat16}[entry["dtype"]]
                begin, end = entry["data_offsets"]
                found[tensor] = torch.frombuffer(bytearray(data[begin:end]), dtype=kind).reshape(entry["shape"]).float()
    return found


def load(folder, text):
    tensors = tensors_of(folder)
    n_words, d = tensors["output.weight"].shape
    model = LanguageModel(n_words, d, 2, tied=False)
    model.load_state_dict(tensors)
    with open(os.path.join(folder, "vocab.txt"), encoding="utf-8") as file:
        ids = {line.rstrip("\n"): i for i, line in enumerate(file)}
    opener = gzip.open if text.endswith(".gz") else open
    with opener(text, "rt", encoding="utf-8") as file:
        words = [ids[word] for line in file for word in [*line.split(), "<eos>"]]
    print(f"{folder}: {n_words:,} words, {d} dimensions; {len(words):,} words of text")
    return model, torch.tensor(words)


# ---- The log, and decoding -----------------------------------------------------------------------------------------


@torch.no_grad()
def collect(model, text, path, max_queries):
    with wideout.collect(model.output, path, max_queries=max_queries) as log:
        columns = text[: len(text) // 32 * 32].reshape(32, -1)
        state = None
        for at in range(0, min(columns.shape[1] - 1, 1 + max_queries // 32), 35):
            words, following = columns[:, at : at + 35], columns[:, at + 1 : at + 36]
            _, state = model(words[:, : following.shape[1]], state)
            log.labels(following)
    return log.n


@torch.no_grad()
def decode(model, start, n, draw):
    """n words for each start, one after the other; seconds, and the words."""
    words, state, drawn = start.reshape(-1, 1), None, []
    began = time.perf_counter()
    for _ in range(n):
        hidden, state = model.hidden(words, state)
        words = draw(hidden[:, -1]).reshape(-1, 1)
        drawn.append(words)
    return time.perf_counter() - began, torch.cat(drawn, 1)


def draw_in_torch(model):
    """What one writes without an index: all logits, and of them the 50 best."""

    def draw(hidden):
        values, words = model.output(hidden).topk(50)
        return words.gather(1, torch.multinomial(values.softmax(1), 1))

    return draw


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder with safetensors of embed, lstm and output, and vocab.txt")
    parser.add_argument("--text", help="with --model: a file of tokens, plain or gzip")
    parser.add_argument("--words", type=int, default=50, help="to decode (50)")
    parser.add_argument("--max-time", type=float, help="seconds that the tuner may take (5; with --model 120)")
    args = parser.parse_args()
    if args.model and not args.text:
        parser.error("--model needs --text, which a log is collected from")
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    model, text = load(args.model, args.text) if args.model else small()
    model.eval()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "lm.log")
        n = collect(model, text, path, 400_000 if args.model else 20_000)
        head = WideLinear.from_linear(model.output, path, max_time=args.max_time or (120 if args.model else 5))
    print(f"an index from {n:,} queries:\n{head.index}\n")
    head.index.threads = THREADS
    slow, fast = draw_in_torch(model), head.sample
    tied = head.weight is model.embed.weight
    print(f"{'tokens a second':<18}{'torch':>10}{'WideLinear':>12}{'':>6}   ({'tied' if tied else 'not tied'})")
    for batch in (1, 32):
        start = text[:batch]
        before, after = [], []
        for _ in range(5):  # in turn
            before.append(decode(model, start, args.words, slow)[0])
            after.append(decode(model, start, args.words, fast)[0])
        before, after = (batch * args.words / sorted(x)[2] for x in (before, after))
        print(f"{batch:>3} at once       {before:10,.0f}{after:12,.0f}{after / before:6.1f} x")
    with torch.no_grad():
        hidden = model.hidden(text[:500].reshape(10, 50))[0]
        best, (_, found) = model.output(hidden).argmax(-1), head.topk(hidden, 1)
        estimated = head.log_prob(hidden[:, :-1], text[:500].reshape(10, 50)[:, 1:]).mean()
        with head.exact():
            exact = head.log_prob(hidden[:, :-1], text[:500].reshape(10, 50)[:, 1:]).mean()
    print(f"the same best word for {100 * (best == found[..., 0]).float().mean():.1f}% of 500 places")
    print(f"log p of the words that follow: {estimated:.3f} by the index, {exact:.3f} exactly")


if __name__ == "__main__":
    main()
