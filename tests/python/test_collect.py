"""Collecting a log: what reaches a layer while a network of torch's runs."""

import json
import os
import struct
import unittest

import numpy as np

import wideout
from data import scratch

try:
    import torch
except ImportError:
    torch = None

M, D = 50, 6


def read(path):
    """(queries, labels as lists) of a log file, read as anybody would."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()

    def array(name, dtype):
        begin, end = header[name]["data_offsets"]
        return np.frombuffer(data[begin:end], dtype).reshape(header[name]["shape"])

    queries = array("queries", np.float32)
    if "labels.indptr" not in header:
        return queries, None
    at, ids = array("labels.indptr", np.int64), array("labels.indices", np.int32)
    return queries, [ids[at[i] : at[i + 1]].tolist() for i in range(len(queries))]


@unittest.skipUnless(torch, "torch is not installed")
class Collect(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        self.head = torch.nn.Linear(D, M)
        self.path = scratch("collected.log")
        if os.path.exists(self.path):
            os.remove(self.path)

    def collected(self, batches, **options):
        with wideout.collect(self.head, self.path, **options) as log, torch.no_grad():
            for x, y in batches:
                self.head(x)
                if y is not None:
                    log.labels(y)
        self.assertFalse(self.head._forward_pre_hooks)
        self.n = log.n
        return read(self.path)

    def refused(self, sentence, batches, **options):
        """The sentence; no file, and no hook."""
        with self.assertRaisesRegex(wideout.ArgumentError, sentence):
            self.collected(batches, **options)
        self.assertFalse(os.path.exists(self.path))
        self.assertFalse(self.head._forward_pre_hooks)
        self.assertEqual([name for name in os.listdir(os.path.dirname(self.path)) if "collected" in name], [])

    def test_all(self):
        batches = [(torch.randn(n, D), torch.randint(M, (n,))) for n in (4, 1, 7)]
        queries, labels = self.collected(batches)
        np.testing.assert_array_equal(queries, torch.cat([x for x, _ in batches]).numpy())
        self.assertEqual(labels, [[int(y)] for _, ys in batches for y in ys])
        self.assertEqual(self.n, 12)

    def test_language_model(self):
        """(batch, time), and targets that are ignored."""
        x, y = torch.randn(3, 5, D), torch.randint(M, (3, 5))
        y[:, -1] = -100
        queries, labels = self.collected([(x, y)])
        np.testing.assert_array_equal(queries, x[:, :-1].reshape(-1, D).numpy())
        self.assertEqual(labels, [[int(i)] for i in y[:, :-1].flatten()])
        y[0] = 7
        queries, labels = self.collected([(x, y.flatten())], ignore_index=7)
        self.assertEqual(len(queries), int((y != 7).sum()))
        for targets in ([1, 7, 3], [torch.tensor(1), torch.tensor(7), torch.tensor(3)], list(np.array([1, 7, 3]))):
            queries, labels = self.collected([(x[0, :3], targets)], ignore_index=7)
            np.testing.assert_array_equal(queries, x[0, [0, 2]].numpy())
            self.assertEqual(labels, [[1], [3]])

    def test_forms_of_targets(self):
        x = torch.randn(3, D)
        flags = torch.zeros(3, M)
        flags[0, 4] = flags[0, 9] = flags[2, 1] = 1
        expected = [[4, 9], [], [1]]
        for targets in (
            flags,
            flags.bool(),
            flags.bfloat16(),
            [[4, 9], [], [1]],
            [torch.tensor([4, 9]), torch.tensor([], dtype=torch.long), torch.tensor([1])],
            torch.tensor([[4, 9], [-1, -1], [1, -1]]),
            np.array([[4, 9], [-100, -1], [1, -1]]),
        ):
            self.assertEqual(self.collected([(x, targets)])[1], expected)
        self.assertEqual(self.collected([(x, [5, 6, 7])])[1], [[5], [6], [7]])
        self.assertEqual(self.collected([(x[0], 5)])[1], [[5]])
        self.assertEqual(self.collected([(x.reshape(1, 3, D), flags.reshape(1, 3, M))])[1], expected)
        many, ids = torch.randn(2, 3, D), torch.arange(6).reshape(2, 3)
        for one in (ids, ids.flatten(), ids[..., None], ids.reshape(6, 1)):
            self.assertEqual(self.collected([(many, one)])[1], [[0], [1], [2], [3], [4], [5]])

    def test_kinds_of_queries(self):
        x = torch.randn(4, D)
        for form in (x.double(), x.clone().requires_grad_()):
            self.head.to(form.dtype)
            np.testing.assert_array_equal(self.collected([(form, torch.arange(4))])[0], x.numpy())
        self.head.bfloat16()
        half = x.bfloat16()
        np.testing.assert_array_equal(self.collected([(half, torch.arange(4))])[0], half.float().numpy())

    def test_without_labels(self):
        x = torch.randn(4, D)
        queries, labels = self.collected([(x, None), (x + 1, None)], labels=False)
        self.assertEqual((len(queries), labels), (8, None))

    def test_targets(self):
        batches = [(torch.randn(3, D), torch.randint(M, (3,))) for _ in range(4)]
        current = {}
        with wideout.collect(self.head, self.path, targets=lambda: current["y"]), torch.no_grad():
            for x, current["y"] in batches:
                self.head(x)
        self.assertEqual(read(self.path)[1], [[int(y)] for _, ys in batches for y in ys])

    def test_works_in_place(self):
        """What the network does to the tensor afterwards is not in the log."""
        x = torch.randn(3, D)
        before = x.clone()
        with wideout.collect(self.head, self.path) as log, torch.no_grad():
            self.head(x)
            x.zero_()
            log.labels([1, 2, 3])
        np.testing.assert_array_equal(read(self.path)[0], before.numpy())

    def test_sample(self):
        x = torch.arange(1000.0).reshape(-1, 1).expand(-1, D).contiguous()
        y = torch.arange(1000) % M
        batches = [(x[i : i + 100], y[i : i + 100]) for i in range(0, 1000, 100)]
        queries, labels = self.collected(batches, max_queries=60, seed=5)
        kept = queries[:, 0].astype(int)
        self.assertEqual((self.n, len(kept), len(set(kept))), (1000, 60, 60))
        self.assertEqual(labels, [[int(i) % M] for i in kept])
        self.assertTrue((np.diff(kept) > 0).all())
        other = [(x[i : i + 7], [[int(j)] for j in y[i : i + 7]]) for i in range(0, 1000, 7)]
        again = self.collected(other, max_queries=60, seed=5)
        np.testing.assert_array_equal(again[0], queries)
        self.assertEqual(again[1], labels)
        self.assertTrue((self.collected(batches, max_queries=60, seed=6)[0] != queries).any())
        np.testing.assert_array_equal(self.collected(batches, max_queries=5000)[0], x.numpy())

    def test_the_sample_is_even(self):
        """Each tenth of the stream has its share, over 200 seeds: 6 of 60 each, within five standard errors."""
        from wideout._collect import _Sample

        counts = np.zeros(10)
        for seed in range(200):
            sample = _Sample(60, 1, seed)
            for i in range(0, 1000, 50):
                sample.add(np.arange(i, i + 50, dtype=np.float32).reshape(-1, 1), None, None)
            counts += np.bincount((sample.rows[:, 0] // 100).astype(int), minlength=10)
        self.assertLess(np.abs(counts / 200 - 6).max(), 5 * np.sqrt(6 * 0.9 / 200))

    def test_it_is_learned_from(self):
        x = torch.randn(400, D)
        with wideout.collect(self.head, self.path, bf16=True) as log, torch.no_grad():
            best = self.head(x).argmax(1)
            log.labels(best)
        ix = wideout.build(self.head.weight.detach(), self.head.bias.detach(), self.path, method="popular", popular=M)
        self.assertTrue((ix.search(x, 1)[1][:, 0] == best).all())

    def test_without_with(self):
        log = wideout.collect(self.head, self.path)
        self.head(torch.randn(3, D))
        for use in (lambda: log.labels([1, 2, 3]), lambda: log.__exit__(None, None, None)):
            with self.assertRaisesRegex(wideout.ArgumentError, r"say `with wideout.collect\(...\) as log:`"):
                use()

    def test_entered_twice(self):
        log = wideout.collect(self.head, self.path, labels=False)
        with self.assertRaisesRegex(wideout.ArgumentError, "collects already"), log, log:
            pass
        self.assertFalse(self.head._forward_pre_hooks)
        with log:
            self.head(torch.randn(3, D))
        self.assertEqual(log.n, 3)

    def test_not_finite(self):
        """Such queries are left out with their labels, and counted: an index would refuse the whole log."""
        x = torch.randn(6, D)
        x[1, 2], x[4, 0] = float("nan"), float("inf")
        for targets, expected in (
            (torch.arange(6), [[0], [2], [3], [5]]),
            ([[], [1, 2], [3, 4], [5], [6], [7, 8, 9]], [[], [3, 4], [5], [7, 8, 9]]),
        ):
            for options in ({}, {"max_queries": 4}):
                with self.assertWarnsRegex(UserWarning, "^2 of 6 queries were left out"):
                    with wideout.collect(self.head, self.path, **options) as log:
                        self.head(x)
                        log.labels(targets)
                self.assertEqual((log.n, log.not_finite), (4, 2))
                found, lists = read(self.path)
                np.testing.assert_array_equal(found, x[[0, 2, 3, 5]])
                self.assertEqual(lists, expected)
        with self.assertRaisesRegex(wideout.ArgumentError, "all 2 queries have numbers that are not finite"):
            with wideout.collect(self.head, self.path, labels=False):
                self.head(x[[1, 4]])

    def test_refused(self):
        x, y = torch.randn(3, D), torch.tensor([1, 2, 3])
        self.refused("label 50 is no class: the layer has 50", [(x, y), (x, y + 47)])
        self.refused("label -2 is no class", [(x, y - 3)])
        self.refused(r"targets have shape \(2,\), and the queries \(3,\)", [(x, y[:2])])
        self.refused(
            r"shape \(3, 2\), and the queries \(2, 3\)", [(torch.randn(2, 3, D), torch.zeros(3, 2, dtype=torch.long))]
        )
        many, ids, flags = torch.randn(2, 3, D), torch.arange(6).reshape(2, 3), torch.eye(M)[:6].reshape(2, 3, M)
        for wrong in (ids.T[..., None], ids.T[None], ids.T[:, None], ids.reshape(1, 6), flags.reshape(3, 1, 2, M)):
            self.refused(r"targets have shape \([0-9, ]+\), and the queries \(2, 3\)", [(many, wrong)])
        self.refused("labels are of 2 queries, and there are 3", [(x, [[1], [2]])])
        self.refused("must be 0 or 1", [(x, torch.full((3, M), 0.5))])
        self.refused("ids of classes, or 0 and 1", [(x, torch.rand(3))])
        self.refused(r"shape \(3, 5\), and the layer takes 6", [(x[:, :5], y)])
        self.refused("the layer ran again, and the 3 queries before", [(x, None), (x, y)])
        self.refused("the last 3 queries have no labels", [(x, y), (x, None)])
        self.refused("no query was collected", [])
        self.refused("no query was collected", [(x, torch.full((3,), -100))])
        self.refused("labels=False", [(x, y)], labels=False)
        for bad in (
            {"max_queries": 0},
            {"max_queries": 1.5},
            {"seed": -1},
            {"labels": y},
            {"labels": [1, 2, 3]},
            {"bf16": "no"},
            {"targets": 3},
            {"targets": list, "labels": False},
        ):
            with self.assertRaises(wideout.ArgumentError):
                wideout.collect(self.head, self.path, **bad)
        for layer in (None, torch.nn.ReLU(), torch.nn.LayerNorm(4), torch.zeros(3, 4)):
            with self.assertRaisesRegex(wideout.ArgumentError, "a torch module with weights"):
                wideout.collect(layer, self.path)
        with self.assertRaises(wideout.FileError):
            wideout.collect(self.head, scratch("no such folder/log")).__enter__()
        with self.assertRaisesRegex(wideout.ArgumentError, "not by keyword"), wideout.collect(self.head, self.path):
            self.head(input=x)
        with self.assertRaisesRegex(wideout.ArgumentError, "after the layer ran"), wideout.collect(
            self.head, self.path
        ) as log:
            log.labels(y)

    def test_an_exception_leaves_the_old_file(self):
        x, y = torch.randn(3, D), torch.tensor([1, 2, 3])
        self.collected([(x, y)])
        with open(self.path, "rb") as file:
            before = file.read()
        for options in ({}, {"max_queries": 2}):
            with self.assertRaises(KeyboardInterrupt), wideout.collect(self.head, self.path, **options) as log:
                self.head(x + 1)
                log.labels(y)
                raise KeyboardInterrupt
            with open(self.path, "rb") as file:
                self.assertEqual(file.read(), before)


if __name__ == "__main__":
    unittest.main()
