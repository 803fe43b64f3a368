"""WideLinear: beside nn.Linear, in every shape, through state dicts, copies and pickles."""

import copy
import io
import math
import unittest

import numpy as np

import wideout
from data import D, M, W, b, labels, queries, scratch

try:
    import torch
except ImportError:
    torch = None
else:
    from torch.multiprocessing.reductions import ForkingPickler

    from wideout.torch import WideLinear

    x, y = torch.from_numpy(queries), torch.from_numpy(labels)
    TREE = {"method": "evidence", "router": "tree", "nodes": 1, "leaves": 64, "lambda_": 0.001}


def linear(bias=True):
    made = torch.nn.Linear(D, M, bias=bias)
    state = {"weight": torch.from_numpy(W), "bias": torch.from_numpy(b)}
    made.load_state_dict(state if bias else {"weight": state["weight"]})
    return made


@unittest.skipUnless(torch, "torch is not installed")
class Wide(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plain = linear()
        cls.wide = WideLinear.from_linear(cls.plain, x, y, **TREE)

    def test_forward_is_the_layer(self):
        self.assertIsInstance(self.wide, torch.nn.Linear)
        self.assertIs(self.wide.weight, self.plain.weight)
        self.assertTrue(torch.equal(self.wide(x[:9]), self.plain(x[:9])))
        z = x[:2].clone().requires_grad_()
        self.wide(z).sum().backward()
        self.assertTrue(torch.allclose(z.grad, self.plain.weight.sum(0).expand(2, -1), atol=1e-3))
        self.assertIsNotNone(self.wide.weight.grad)
        self.plain.zero_grad()
        self.assertIn("index=evidence", repr(self.wide))

    def test_topk(self):
        values, ids = self.wide.topk(x[:50], 3)
        expected = self.wide.index.search(queries[:50], 3)
        np.testing.assert_array_equal(ids, expected[1])
        np.testing.assert_array_equal(values, expected[0])
        self.assertEqual((values.dtype, ids.dtype), (torch.float32, torch.int64))
        logits = self.plain(x[:50]).detach()
        found = ids >= 0
        self.assertTrue(torch.allclose(logits.gather(1, ids.clamp_min(0))[found], values[found], atol=1e-4))
        self.assertEqual(self.wide.topk(x[:50], 3).indices.shape, (50, 3))

    def test_shapes(self):
        flat = self.wide.topk(x[:24], 4)
        for shape in ((2, 12), (2, 3, 4), (24,), (24, 1)):
            values, ids = self.wide.topk(x[:24].reshape(*shape, D), 4)
            self.assertEqual(tuple(ids.shape), (*shape, 4))
            self.assertTrue(torch.equal(ids.reshape(24, 4), flat.indices))
            self.assertTrue(torch.equal(values.reshape(24, 4), flat.values))
            self.assertEqual(tuple(self.wide.log_prob(x[:24].reshape(*shape, D), y[:24].reshape(shape)).shape), shape)
            self.assertEqual(tuple(self.wide.sample(x[:24].reshape(*shape, D)).shape), shape)
        self.assertEqual(self.wide.topk(x[0], 4).indices.shape, (4,))
        self.assertEqual(self.wide.topk(x[:0], 4).indices.shape, (0, 4))
        self.assertEqual(self.wide.topk(x[:0].reshape(0, 3, D), 4).indices.shape, (0, 3, 4))
        strided = torch.stack([x[:8], x[:8]], 2)[:, :, 1]
        self.assertTrue(torch.equal(self.wide.topk(strided, 4).indices, flat.indices[:8]))
        grad = x[:8].clone().requires_grad_()
        self.assertTrue(torch.equal(self.wide.topk(grad, 4).indices, flat.indices[:8]))
        half = x[:8].bfloat16()
        self.assertTrue(torch.equal(self.wide.topk(half, 4).indices, self.wide.topk(half.float(), 4).indices))

    def test_no_copy(self):
        """The index has the rows of the parameter itself."""
        layer = self.wide.index.layer
        plain = linear()
        wide = WideLinear.from_linear(plain, x, y, method="full")
        before = wide.index.search(x[0], 1)[0].item()
        plain.weight.data.numpy()[:] *= 2  # behind torch's back
        self.assertGreater(wide.index.search(x[0], 1)[0].item(), before)
        self.assertEqual((layer.m, layer.d), (M, D))

    def test_exact(self):
        with self.wide.exact() as wide:
            values, ids = wide.topk(x[:20], 5)
            best = self.plain(x[:20]).topk(5)
            self.assertTrue(torch.equal(ids, best.indices) and torch.equal(values, best.values))
            values.sum().backward()  # differentiable
            with wide.exact():
                pass
            logs = self.plain(x[:20]).log_softmax(1)
            self.assertTrue(torch.equal(wide.log_prob(x[:20], y[:20]), logs.gather(1, y[:20, None])[:, 0]))
        self.plain.zero_grad()
        with self.assertRaises(ZeroDivisionError), self.wide.exact():
            1 / 0
        self.assertFalse(self.wide._exact)

    def test_log_prob(self):
        logs = self.plain(x[:300]).log_softmax(1).detach()
        exact = logs.gather(1, y[:300, None])[:, 0]
        found = self.wide.log_prob(x[:300], y[:300])
        self.assertFalse(math.isnan(self.wide.index.info["log_z_error"]))
        self.assertLess(float((found - exact).abs().mean()), 0.5)
        several = self.wide.log_prob(x[:300], torch.stack([y[:300], y[:300].flip(0)], 1))
        self.assertTrue(torch.equal(several[:, 0], found))
        without = WideLinear.from_linear(self.plain, x, y, partition=False, **TREE)
        self.assertTrue(torch.allclose(without.log_prob(x[:300], y[:300]), exact, atol=1e-3))
        self.assertTrue(torch.equal(self.wide.log_prob(x[:300], y[:300].int()), found))
        for bad in (y[:5], y[:300].reshape(100, 3), y[:300] + M, y[:300] - M, y[:300].float(), y[:300] > 0):
            with self.assertRaises(wideout.ArgumentError) as caught:
                self.wide.log_prob(x[:300], bad)
            with self.wide.exact(), self.assertRaises(wideout.ArgumentError) as exactly:
                self.wide.log_prob(x[:300], bad)
            self.assertEqual(str(exactly.exception), str(caught.exception))

    def test_no_queries(self):
        """The last batch of a loop may have none."""
        for shape in ((0,), (0, 3), (3, 0)):
            none = x[:0].reshape(*shape, D)
            for ids in (y[:0].reshape(shape), torch.zeros((*shape, 2), dtype=torch.long), torch.zeros((*shape, 0), dtype=torch.long)):
                self.assertEqual(self.wide.log_prob(none, ids).shape, ids.shape)
                with self.wide.exact():
                    self.assertEqual(self.wide.log_prob(none, ids).shape, ids.shape)
            self.assertEqual(tuple(self.wide.sample(none).shape), shape)
            with self.wide.exact():
                self.assertEqual(tuple(self.wide.sample(none).shape), shape)
        self.assertEqual(self.wide.log_prob(x[:3], torch.zeros(3, 0, dtype=torch.long)).shape, (3, 0))

    def test_sample(self):
        torch.manual_seed(7)
        drawn = self.wide.sample(x[:200])
        torch.manual_seed(7)
        self.assertTrue(torch.equal(self.wide.sample(x[:200]), drawn))
        self.assertFalse(torch.equal(self.wide.sample(x[:200]), drawn))
        one = self.wide.sample(x[:200], generator=torch.Generator().manual_seed(1))
        self.assertTrue(torch.equal(self.wide.sample(x[:200], generator=torch.Generator().manual_seed(1)), one))
        best = self.wide.topk(x[:200], 1).indices[:, 0]
        self.assertTrue(torch.equal(self.wide.sample(x[:200], temperature=0), best))
        self.assertTrue(torch.equal(self.wide.sample(x[:200], top_p=0), best))
        self.assertTrue(torch.equal(self.wide.sample(x[:200], top_k=1), best))
        with self.wide.exact():
            best = self.plain(x[:200]).argmax(1)
            self.assertTrue(torch.equal(self.wide.sample(x[:200], temperature=0), best))
            self.assertTrue(torch.equal(self.wide.sample(x[:200], top_k=1), best))
            self.assertEqual(self.wide.sample(x[:2], top_k=M + 1).shape, (2,))
            with self.assertRaisesRegex(wideout.ArgumentError, "top_k takes a number from 0"):
                self.wide.sample(x[:2], top_k=-1)
            often = torch.stack([self.wide.sample(x[:1]) for _ in range(300)]).flatten()
        expected = self.plain(x[0]).softmax(0)
        seen = torch.bincount(often, minlength=M) / 300
        self.assertLess(float((seen - expected).abs().max()), 0.12)

    def test_state_dict(self):
        state = self.wide.state_dict()
        self.assertEqual(state["_extra_state"].dtype, torch.uint8)
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        again = WideLinear(D, M)
        with self.assertRaisesRegex(wideout.ArgumentError, "has no index"):
            again.topk(x, 3)
        again.load_state_dict(torch.load(file))
        self.assertTrue(torch.equal(again.topk(x, 5).indices, self.wide.topk(x, 5).indices))
        self.assertTrue(torch.equal(again.state_dict()["_extra_state"], state["_extra_state"]))
        again.load_state_dict(self.plain.state_dict())  # a plain layer's: no index
        with self.assertRaisesRegex(wideout.ArgumentError, "has no index"):
            again.index
        self.assertEqual(again.state_dict()["_extra_state"].numel(), 0)
        again.load_state_dict(again.state_dict())
        other = {**state, "weight": state["weight"] + 1}
        with self.assertWarnsRegex(UserWarning, "call build again: .*not the one that the index was built for"):
            again.load_state_dict(other)
        self.assertTrue(torch.equal(again.weight, other["weight"]))
        with self.assertRaisesRegex(wideout.ArgumentError, "has no index"):
            again.topk(x, 3)
        again.build(x, y, **TREE)
        again.topk(x, 3)
        with self.assertWarns(UserWarning), self.assertRaisesRegex(RuntimeError, "size mismatch for weight"):
            WideLinear(D, M - 1).load_state_dict(state)
        with self.assertWarnsRegex(UserWarning, "the weight is float64|the bias is float64"):
            WideLinear(D, M, dtype=torch.float64).load_state_dict(state)
        with self.assertRaises(wideout.FormatError):
            again.load_state_dict({**state, "_extra_state": state["_extra_state"][:100]})
        self.assertEqual(torch.nn.Linear(D, M).load_state_dict(state, strict=False).unexpected_keys, ["_extra_state"])
        small = WideLinear.from_linear(self.plain, x, y, weights="none", **TREE).state_dict()["_extra_state"]
        self.assertLess(small.numel(), state["_extra_state"].numel() - W.nbytes // 2)

    def test_inside_a_model(self):
        model = torch.nn.Sequential(torch.nn.Linear(D, D), self.wide)
        state = model.state_dict()
        again = torch.nn.Sequential(torch.nn.Linear(D, D), WideLinear(D, M))
        again.load_state_dict(state)
        self.assertTrue(torch.equal(again[1].topk(x[:9], 5).indices, self.wide.topk(x[:9], 5).indices))

    def test_copies(self):
        file = io.BytesIO()
        torch.save(self.wide, file)
        file.seek(0)
        for other in (copy.deepcopy(self.wide), torch.load(file)):
            self.assertIsNot(other.weight, self.wide.weight)
            self.assertTrue(torch.equal(other.topk(x[:99], 5).indices, self.wide.topk(x[:99], 5).indices))
            self.assertTrue(torch.equal(other(x[:9]), self.wide(x[:9])))

    def test_changed_weights(self):
        wide = WideLinear.from_linear(linear(), x, y, **TREE)
        wide.eval().float().cpu().requires_grad_(False)
        wide.topk(x[:3], 2)
        with torch.no_grad():
            wide.bias.add_(1)
        for use in (lambda: wide.topk(x, 2), lambda: wide.sample(x), lambda: wide.log_prob(x, y), lambda: wide.index):
            with self.assertRaisesRegex(wideout.ArgumentError, "have changed since"):
                use()
        self.assertEqual(wide.state_dict()["_extra_state"].numel(), 0)
        with wide.exact():
            wide.topk(x[:3], 2)
        wide.build(x, y, **TREE)
        wide.topk(x[:3], 2)

    def test_converted_weights(self):
        """half() and the like swap the numbers under the parameter: the index is stale, and is not saved."""
        for convert in (
            lambda wide: wide.half(),
            lambda wide: wide.bfloat16(),
            lambda wide: wide.half().float(),
            lambda wide: setattr(wide.weight, "data", wide.weight.data + 1),
            lambda wide: setattr(wide.bias, "data", wide.bias.data.half().float()),
        ):
            wide = WideLinear.from_linear(linear(), x, y, **TREE)
            convert(wide)
            with self.assertRaisesRegex(wideout.ArgumentError, "have changed since"):
                wide.topk(x[:3], 2)
            state = wide.state_dict()
            self.assertEqual(state["_extra_state"].numel(), 0)
            again = WideLinear(D, M, dtype=wide.weight.dtype)
            again.load_state_dict(state)
            self.assertTrue(torch.equal(again.weight, wide.weight))
            copy.deepcopy(wide)
        wide.build(x, y, **TREE)
        wide.topk(x[:3], 2)

    def test_moved_weights(self):
        """The same numbers elsewhere, as after cuda() and cpu()."""
        wide = WideLinear.from_linear(linear(), x, y, **TREE)
        wide.weight.data = wide.weight.data.clone()
        self.assertTrue(torch.equal(wide.topk(x[:9], 3).indices, self.wide.topk(x[:9], 3).indices))
        self.assertTrue(torch.equal(wide.state_dict()["_extra_state"], self.wide.state_dict()["_extra_state"]))
        with torch.no_grad():
            wide.weight.add_(1)
        with self.assertRaisesRegex(wideout.ArgumentError, "have changed since"):
            wide.topk(x[:3], 2)
        shared = WideLinear.from_linear(linear(), x, y, **TREE)
        before = shared.index
        shared.share_memory()  # moves the storage itself, which the index reads
        with self.assertRaisesRegex(wideout.ArgumentError, r"have changed since .*, or share_memory\(\) has moved them"):
            shared.topk(x[:3], 2)
        with self.assertRaisesRegex(wideout.ArgumentError, "has moved"):
            before.search(x[:3], 2)
        self.assertIn("index=evidence", repr(shared))
        shared.build(x, y, **TREE)
        ForkingPickler(io.BytesIO()).dump(shared)  # as it goes to a child: what is shared already is not moved again
        self.assertTrue(torch.equal(shared.topk(x[:9], 3).indices, self.wide.topk(x[:9], 3).indices))

    def test_tied(self):
        embedding = torch.nn.Embedding(M, D)
        with torch.no_grad():
            embedding.weight.copy_(torch.from_numpy(W))
        head = torch.nn.Linear(D, M, bias=False)
        head.weight = embedding.weight
        for layer in (head, embedding):
            wide = WideLinear.from_linear(layer, x, y, **TREE)
            self.assertIs(wide.weight, embedding.weight)
            self.assertIsNone(wide.bias)
            self.assertTrue(torch.equal(wide(x[:3]), head(x[:3])))
            wide.topk(x[:3], 2)

    def test_bfloat16_weights(self):
        plain = linear().bfloat16()
        wide = WideLinear.from_linear(plain, x.bfloat16(), y, **TREE)
        again = WideLinear(D, M, dtype=torch.bfloat16)
        again.load_state_dict(wide.state_dict())
        self.assertTrue(torch.equal(again.topk(x[:9], 3).indices, wide.topk(x[:9], 3).indices))

    def test_batches(self):
        """A tensor, its pieces, pairs and a file give the same index."""
        path = scratch("torch.log")
        with wideout.LogWriter(path, D) as log:
            log.append(queries, labels)
        expected = self.wide.state_dict()["_extra_state"]
        many, shape = list(x.split(300)), (40, -1)
        for batches, given in (
            (many, list(y.split(300))),
            (zip(many, y.split(300)), None),
            (((q, [[int(i)] for i in l]) for q, l in zip(many, y.split(300))), None),
            (x.reshape(*shape, D), y.reshape(shape)),
            (path, None),
            (wideout.open_log(path), None),
        ):
            made = WideLinear.from_linear(self.plain, batches, given, **TREE)
            self.assertTrue(torch.equal(made.state_dict()["_extra_state"], expected))
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=300)  # lists of one
        made = WideLinear.from_linear(self.plain, loader, list(y.split(300)), **TREE)
        self.assertTrue(torch.equal(made.state_dict()["_extra_state"], expected))
        unlabelled = WideLinear.from_linear(self.plain, iter(many), **{**TREE, "source": "top"})
        self.assertEqual(unlabelled.index.options["source"], "top")
        tuned = WideLinear.from_linear(
            self.plain, x[:3000], y[:3000], target=0.9, max_time=1, tune_queries=x[3000:], tune_labels=y[3000:]
        )
        self.assertEqual(tuned.index.tuning["queries"], 1000)

    def test_parameters_that_are_computed(self):
        """torch.nn.utils takes the parameter away."""
        from torch.nn.utils import parametrizations, prune

        for change in (
            lambda wide: prune.l1_unstructured(wide, "weight", 0.3),
            lambda wide: prune.l1_unstructured(wide, "bias", 0.3),
            torch.nn.utils.spectral_norm,
            parametrizations.spectral_norm,
        ):
            wide = WideLinear.from_linear(linear(), x, y, **TREE)
            change(wide)
            self.assertEqual(wide(x[:3]).shape, (3, M))
            for use in (lambda: wide.topk(x[:3], 2), lambda: wide.index, lambda: wide.build(x, y, **TREE)):
                with self.assertRaisesRegex(wideout.ArgumentError, "is no parameter any more"):
                    use()
            repr(wide)
            self.assertEqual(wide.state_dict()["_extra_state"].numel(), 0)
        wide = WideLinear.from_linear(linear(), x, y, **TREE)
        prune.remove(prune.l1_unstructured(wide, "weight", 0.3), "weight")
        with self.assertRaisesRegex(wideout.ArgumentError, "call build again"):
            wide.topk(x[:3], 2)
        wide.build(x, y, **TREE)
        self.assertEqual(wide.topk(x[:3], 2).indices.shape, (3, 2))
        with self.assertRaisesRegex(wideout.ArgumentError, "the bias is no parameter"):
            WideLinear.from_linear(prune.l1_unstructured(linear(), "bias", 0.3), x, y)

    def test_closed_index(self):
        wide = WideLinear.from_linear(linear(), x, y, **TREE)
        wide.index.close()
        self.assertIn("index=closed", repr(wide))
        self.assertEqual(wide.state_dict()["_extra_state"].numel(), 0)
        copy.deepcopy(wide)
        with self.assertRaises(wideout.ClosedError):
            wide.topk(x[:3], 2)

    def test_lists_are_refused(self):
        some = x[:2].tolist()
        for use in (
            lambda: self.wide.topk(some, 2),
            lambda: self.wide.log_prob(some, [1, 2]),
            lambda: self.wide.sample(some),
        ):
            with self.assertRaisesRegex(wideout.ArgumentError, "x takes a tensor, not list"):
                use()
        with self.assertRaisesRegex(wideout.ArgumentError, "ids must be a tensor, not a list that is no table"):
            self.wide.log_prob(x[:2], [[1], [2, 3]])
        self.assertEqual(self.wide.log_prob(x[:2], [1, 2]).shape, (2,))

    def test_refused_batches(self):
        for batches, given, sentence in (
            ([], None, "there are no batches"),
            (3, None, "batches come as one tensor, or batch by batch, not as int"),
            (np.float32(3), None, "not as float32"),
            (list(x.split(300)), 3, "labels come as one tensor, or batch by batch, not as int"),
            (list(x.split(300)), [y[:300]], "fewer labels than batches"),
            ([x], [y, y], "more labels than batches"),
            ([(x, y), x], None, "some batches have labels"),
            ([(x, y)], [y], "pairs with their labels"),
            (x.double(), y, "a batch is float64"),
            (x.half(), y, "a batch is float16"),
            (x.to("meta"), y, "a batch is a tensor on meta"),
            (x[:, :3], y, r"shape \(4000, 3\), and the layer takes 16"),
            (x, y[:5], r"targets have shape \(5,\), and the queries \(4000,\)"),
            (x, y + M, "is no class"),
            (scratch("torch.log"), y, "has its own labels"),
        ):
            with self.assertRaisesRegex(wideout.ArgumentError, sentence):
                WideLinear.from_linear(self.plain, batches, given, **TREE)

    def test_refused_layers(self):
        for layer in (torch.nn.ReLU(), torch.nn.LayerNorm(4), None, torch.nn.Conv1d(3, 4, 2)):
            with self.assertRaisesRegex(wideout.ArgumentError, "from_linear takes an nn.Linear"):
                WideLinear.from_linear(layer, x, y)
        for layer, sentence in (
            (linear().double(), "the weight is float64|the bias is float64"),
            (torch.nn.Linear(D, M, device="meta"), "is a tensor on meta"),
        ):
            with self.assertRaisesRegex(wideout.ArgumentError, sentence):
                WideLinear.from_linear(layer, x, y, **TREE)
        normed = torch.nn.utils.weight_norm(linear())
        with self.assertRaisesRegex(wideout.ArgumentError, "with plain weights"):
            WideLinear.from_linear(normed, x, y)
        with self.assertRaises(TypeError):
            WideLinear.from_linear(linear(), x, y, no_such_option=3)

    def test_refused_queries(self):
        for bad, sentence in (
            (x.double(), "x is float64"),
            (x.half(), "x is float16"),
            (torch.zeros(3, D, dtype=torch.long), "x is int64"),
            (x.to("meta"), "on meta"),
            (x[:, :3], "have 3 numbers each"),
            (x.reshape(-1, 2, 2, D // 2), r"shape \(2000, 2, 2, 8\)"),
            (x.to_sparse(), "sparse"),
            (torch.tensor(1.0), "dimensions"),
            (queries, "x takes a tensor, not ndarray"),
            ([1.0], "x takes a tensor, not list"),
        ):
            with self.assertRaisesRegex(wideout.ArgumentError, sentence):
                self.wide.topk(bad, 3)
        for k in (-1, 1.5, "3"):
            with self.assertRaises(wideout.ArgumentError):
                self.wide.topk(x, k)
        nan = x[:2].clone()
        nan[0, 3] = math.nan
        self.assertEqual(self.wide.topk(nan, 1).indices[:, 0].tolist()[0], -1)

    def test_jit(self):
        """Scripting has a sentence, inside a model too, and changes nothing; a trace is of the exact layer."""
        model = torch.nn.Sequential(torch.nn.Linear(D, D), self.wide)
        for scripted in (self.wide, model):
            with self.assertRaisesRegex(wideout.Unsupported, "script does not take a WideLinear") as caught:
                torch.jit.script(scripted)
            self.assertEqual(caught.exception.status, "unsupported")
        self.assertIs(model[1], self.wide)
        self.wide.topk(x[:3], 2)
        self.assertTrue(torch.equal(torch.jit.trace(self.wide, (x[:2],))(x[:9]), self.plain(x[:9])))

    def test_inference_mode(self):
        with torch.inference_mode():
            wide = WideLinear.from_linear(linear(), x, y, **TREE)
            self.assertTrue(torch.equal(wide.topk(x[:9], 3).indices, self.wide.topk(x[:9], 3).indices))
            self.assertTrue(torch.equal(wide(x[:9]), self.plain(x[:9])))


if __name__ == "__main__":
    unittest.main()
