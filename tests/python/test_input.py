"""What cannot be right is an exception with a sentence; what can be converted is."""

import math
import os
import sys
import unittest
import warnings

import numpy as np

import wideout
from data import D, M, W, b, index, labels, queries, scratch
from wideout._labels import to_csr

try:
    import scipy.sparse as sparse
except ImportError:
    sparse = None


class Queries(unittest.TestCase):
    def test_converted(self):
        ix = index()
        expected = ix.search(queries[:8], 3, by="cells")[1]
        wide = np.zeros((16, 2 * D), np.float32)
        wide[::2, ::2] = queries[:8]
        offset = np.frombuffer(b"\0" + queries[:8].tobytes(), np.uint8)[1:].view(np.float32).reshape(8, D)
        self.assertFalse(offset.flags.aligned)
        read_only = queries[:8].copy()
        read_only.flags.writeable = False
        for form in (
            queries[:8].astype(np.float64),
            np.asfortranarray(queries[:8]),
            wide[::2, ::2],
            queries[:8].astype(">f4"),
            queries[:8].tolist(),
            list(queries[:8]),
            memoryview(queries[:8]),
            offset,
            read_only,
            queries[7::-1][::-1],
        ):
            np.testing.assert_array_equal(ix.search(form, 3, by="cells")[1], expected)
        half = queries[:8].astype(np.float16)
        np.testing.assert_array_equal(ix.search(half, 3)[1], ix.search(half.astype(np.float32), 3)[1])

    def test_refused(self):
        ix = index()
        for bad, words in [
            (queries[:, :5], "queries have 5 numbers each, and the index takes 16"),
            (queries[0][:3], "3 numbers"),
            (queries[None], "one or two dimensions"),
            (np.float32(3), "one or two dimensions"),
            (queries.astype(np.int32), "floats, float32 at best, not int32"),
            (queries.astype(np.complex64), "complex64"),
            (queries > 0, "bool"),
            ([["a"] * D], "floats"),
            ([[1.0] * D, [1.0] * 3], "differ in length"),
            (None, "floats"),
            ("words", "floats"),
            (object(), "floats"),
            ({}, "floats"),
            (b"x" * 64, "floats"),
        ]:
            with self.subTest(words), self.assertRaisesRegex(wideout.ArgumentError, words):
                ix.search(bad)
        self.assertEqual(ix.search(np.zeros((0, D), np.float32), 2)[1].shape, (0, 2))

    def test_subclasses(self):
        """A mask is not overlooked; others are arrays."""
        ix = index()
        expected = ix.search(queries[:8], 3)[1]
        masked = np.ma.masked_array(queries[:8])
        for form in (queries[:8].view(np.recarray), np.matrix(queries[:8]), masked):
            np.testing.assert_array_equal(ix.search(form, 3)[1], expected)
        masked[2, 3] = np.ma.masked
        ids = np.ma.masked_array(np.array([1, 2], np.int32), [True, False])
        for use, what in (
            (lambda: ix.search(masked), "queries"),
            (lambda: ix.search(masked.astype(np.float64)), "queries"),
            (lambda: wideout.Log(masked), "queries"),
            (lambda: wideout.Log(queries[:2], ids), "labels"),
            (lambda: ix.search(queries[:2], forbid=ids), "forbid"),
            (lambda: wideout.Layer(masked), "the layer's weights"),
        ):
            with self.assertRaisesRegex(wideout.ArgumentError, f"^{what} is a masked array"):
                use()

    def test_not_finite(self):
        q = queries[:6].copy()
        q[1, 3], q[4, 0] = np.nan, np.inf
        scores, ids, stats = index().search(q, 3, stats=True)
        self.assertTrue((ids[[1, 4]] == -1).all() and (ids[[0, 2, 3, 5], 0] >= 0).all())
        self.assertEqual(stats["status"].tolist(), [0, 5, 0, 0, 5, 0])
        self.assertTrue((index().search(np.full(D, 1e300), 3)[1] == -1).all())
        self.assertTrue(math.isnan(index().log_partition(q, by="full")[1]))

    def test_arguments(self):
        ix = index()
        for bad, words in [
            ({"k": 0}, "k is 0"),
            ({"k": -1}, "k takes a number"),
            ({"k": 2.5}, "whole number"),
            ({"k": "3"}, "whole number"),
            ({"k": 2**80}, f"k takes a number from 0 to 2147483647, not {2**80}"),
            ({"k": 10**5000}, "not one of so many digits"),
            ({"forbid": [M]}, f"{M}"),
            ({"forbid": [-2]}, "-2"),
            ({"forbid": [1.5]}, "whole numbers"),
            ({"forbid": [2**40]}, "no id"),
            ({"forbid": "abc"}, "whole numbers"),
            ({"require": [M + 3]}, f"{M + 3}"),
            ({"bias": np.zeros(M - 1, np.float32)}, "one number for each"),
            ({"bias": np.full(M, np.nan, np.float32)}, "not finite"),
            ({"by": "magic"}, "by takes planner, cells or full, not magic"),
            ({"by": 3}, "by takes"),
            ({"by": "aa" + 30 * "\u20ac"}, "by takes planner, cells or full, not aa\u20ac{12}"),
            ({"scores": "odds"}, "logits, softmax or logprob"),
            ({"scores": "logprob"}, "partition"),
            ({"probes": 1000}, "probes"),
            ({"probes": -1}, "probes"),
            ({"threads": -1}, "threads"),
            ({"threads": 5000}, "threads"),
            ({"out": 3}, "out takes"),
        ]:
            with self.subTest(words), self.assertRaisesRegex((wideout.ArgumentError, wideout.Unsupported), words):
                ix.search(queries[:2], **bad)
        for args, names in [((), {}), ((queries, 3, 4), {}), ((queries,), {"nosuch": 1}), ((queries, 3), {"k": 3})]:
            with self.assertRaises(TypeError):
                ix.search(*args, **names)
        with self.assertRaisesRegex(wideout.OutOfMemory, f"^there is no memory for {100000 * (2**31 - 1) * 4} bytes$"):
            ix.search(np.zeros((100000, D), np.float32), 2**31 - 1)
        with self.assertRaises(wideout.ArgumentError):
            ix.threads = -1
        with self.assertRaisesRegex(wideout.ArgumentError, "cannot be deleted"):
            del ix.threads
        for bad in (2**80, -1, M):
            with self.assertRaisesRegex(wideout.ArgumentError, f"id takes a number from 0 to {M - 1}, not {bad}$"):
                ix.name(bad)
        for bad in ("two", 1025, 10**30):
            with self.assertRaisesRegex(wideout.ArgumentError, "threads takes a"):
                ix.threads = bad
        for bad in ([M], [-1], [[1], [2], [3]], ["a"], None):
            with self.assertRaises(wideout.ArgumentError):
                ix.score(queries[:2], bad)

    def test_numbers(self):
        """None wraps round."""
        ix, q = index(), queries[:9]
        log = lambda **options: wideout.LogWriter("/tmp/never-made.log", **{"d": 3, **options})  # noqa: E731
        for use, words in [
            (lambda: ix.evaluate(q, timing=False, max_queries=-1), "max_queries takes a number from 0 to .*, not -1"),
            (lambda: ix.evaluate(q, timing=False, max_queries=2**64), "max_queries takes"),
            (lambda: ix.evaluate(q, timing=False, seed=-1), "seed takes a number from 0 to 18446744073709551615, not -1"),
            (lambda: ix.evaluate(q, timing=False, batch=2**32 + 1), "batch takes"),
            (lambda: ix.evaluate(q, timing=False, rounds=1.5), "rounds takes a whole number"),
            (lambda: ix.evaluate(q, timing=False, probes=-3), "probes takes"),
            (lambda: ix.evaluate(q, timing=False, threads=10**12), "threads takes a number from 0 to 1024"),
            (lambda: ix.sample(q, seed=-1), "seed takes"),
            (lambda: ix.sample(q, seed="x"), "seed takes a whole number"),
            (lambda: ix.sample(q, top_k=2**32), "top_k takes"),
            (lambda: ix.sample(q, position=-1), "position takes"),
            (lambda: ix.sample(q, temperature="hot"), "temperature takes a number"),
            (lambda: log(n=-1), "n takes a number from 0 to 18446744073709551615, not -1"),
            (lambda: log(n=2**70), f"not {2**70}"),
            (lambda: log(n_labels=2.0), "n_labels takes a whole number"),
            (lambda: log(d=-3), "d takes a number from 0"),
            (lambda: log(d=0), "d is 0"),
            (lambda: log(d="3"), "d takes a whole number"),
            (lambda: wideout.build(W, b, method="full", threads=10**12), "threads takes a number from 0 to 1024"),
            (lambda: wideout.build(W, b, method="full", threads="all"), "threads takes a whole number"),
            (lambda: wideout.build(W, b, queries, labels, k=2.5), "k takes a whole number, not 2.5"),
            (lambda: wideout.build(W, b, queries, labels, max_queries=float("inf")), "max_queries takes a whole number"),
        ]:
            with self.subTest(words), self.assertRaisesRegex(wideout.ArgumentError, words):
                use()
        self.assertEqual(ix.sample(q, seed=2**64 - 1, k=np.int64(5)).shape, (9,))

    def test_flags(self):
        """What is no True or False has a sentence, and nothing is asked of Python while another failure waits."""
        ix, q, many, none = index(), queries[:9], np.zeros(3), np.zeros(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertFalse(none)  # numpy warns, and does so again where it is asked while another failure waits
        path = scratch("never-made.log")
        for use, words in [
            (lambda: ix.search(q, prior=many), "prior takes True or False, not numpy.ndarray"),
            (lambda: ix.search(q, prior=none, exact_fallback=none), "prior takes True"),
            (lambda: ix.search(q, prior=many, exact_fallback=none), "prior takes True"),
            (lambda: ix.search(q, by="magic", scores="x", prior=none), "by takes"),
            (lambda: ix.search(q, exact_fallback="no"), "exact_fallback takes True or False, not str"),
            (lambda: ix.search(q, stats=[1]), "stats takes True or False, not list"),
            (lambda: ix.log_partition(q, by="full", prior=many), "prior takes"),
            (lambda: ix.evaluate(q, timing=many), "timing takes True or False"),
            (lambda: ix.evaluate(q, exact_fallback=many, prior=none), "exact_fallback takes"),
            (lambda: wideout.LogWriter(path, 3, labels=labels), "labels takes True or False, not numpy.ndarray"),
            (lambda: wideout.LogWriter(path, 3, labels=[1]), "labels takes True or False, not list"),
            (lambda: wideout.LogWriter(path, 3, bf16="yes"), "bf16 takes True or False"),
        ]:
            with self.subTest(words), self.assertRaisesRegex(wideout.ArgumentError, words):
                use()
        self.assertFalse(os.path.exists(path))
        for no in (False, np.False_, 0, None):
            self.assertEqual(len(ix.search(q, stats=no)), 2)

    def test_lists_of_numbers(self):
        ix, q = index(), queries[:9]
        for ks in (np.array([1, 5]), range(1, 6, 4), (np.int64(1), 5)):
            self.assertEqual(sorted(ix.evaluate(q, ks=ks, timing=False).agreement), [1, 5])
        for bad in (3, None, [], [0.5], [1, -1], [2**32], range(1000), "12"):
            with self.assertRaisesRegex(wideout.ArgumentError, "ks takes 1 to [0-9]+ whole numbers"):
                ix.evaluate(q, ks=bad, timing=False)

    def test_sentences_are_one_line(self):
        for name in ("K", "weights", "seed"):
            with self.assertRaises(wideout.ArgumentError) as caught:
                wideout.build(W, b, queries, labels, **{"method": "evidence", name: np.zeros((3, 2))})
            self.assertNotIn("\n", str(caught.exception))

    def test_out_overlaps(self):
        ix, q, room = index(), queries[:4], np.zeros(40, np.float32)
        for first, second in ((0, 0), (0, 11), (11, 0)):
            out = room[first:][:12].reshape(4, 3), room[second:][:12].reshape(4, 3).view(np.int32)
            with self.assertRaisesRegex(wideout.ArgumentError, "share memory"):
                ix.search(q, 3, out=out)
        buffer = np.zeros((5, D), np.float32)
        buffer[:4] = q
        apart = np.zeros((4, D), np.float32)
        bias = np.zeros(M, np.float32)
        for out in ((buffer[1:], apart.view(np.int32)), (apart, buffer[:4].view(np.int32))):
            with self.assertRaisesRegex(wideout.ArgumentError, "the queries share memory"):
                ix.search(buffer[:4], D, out=out)
        with self.assertRaisesRegex(wideout.ArgumentError, "the bias share memory"):
            ix.search(q, 3, bias=bias, out=(bias[M - 12 :].reshape(4, 3), np.zeros((4, 3), np.int32)))
        out = room[:12].reshape(4, 3), room[12:24].reshape(4, 3).view(np.int32)
        np.testing.assert_array_equal(ix.search(q, 3, out=out)[1], ix.search(q, 3)[1])

    def test_names(self):
        for bad, words in [
            (["a"] * (M - 1) + ["\ud800"], f"name {M - 1} has half a letter"),
            (["a"] * (M - 1) + ["a\0"], "NUL"),
            ([3] * M, "name 0 is no text"),
            (7, "names are a list of texts, one a class, not int"),
            ("a" * M, "names are a list of texts, one a class, not str"),
        ]:
            with self.subTest(words), self.assertRaisesRegex(wideout.ArgumentError, words):
                wideout.Layer(W, b, names=bad)

    def test_many_required(self):
        ids = index().search(queries[0], M, require=np.arange(M), forbid=[3])[1]
        self.assertEqual(sorted(ids), [-1, *range(3), *range(4, M)])

    def test_closed(self):
        ix = wideout.build(W, b, method="screen")
        ix.close()
        ix.close()
        self.assertEqual(repr(ix), "<wideout.Index, closed>")
        self.assertEqual(str(ix), repr(ix))
        for use in (
            lambda: ix.search(queries),
            lambda: ix.score(queries[0], [1]),
            lambda: ix.log_partition(queries[0], by="full"),
            lambda: ix.sample(queries[0]),
            lambda: ix.evaluate(queries, timing=False),
            lambda: ix.save("/nowhere"),
            lambda: ix.info,
            lambda: ix.options,
            lambda: ix.curve,
            lambda: ix.trace,
            lambda: ix.name(3),
        ):
            with self.assertRaisesRegex(wideout.ClosedError, "closed"):
                use()

    def test_not_made_by_hand(self):
        for kind in (wideout.Index, wideout._core.Index, wideout._core.Layer, wideout._core.Log, wideout._core.LogWriter):
            with self.assertRaises(TypeError):
                kind()


class Labels(unittest.TestCase):
    def check(self, form, expected, n=3, m=None):
        indptr, ids = to_csr(form, n, m)
        self.assertEqual((indptr.dtype, ids.dtype), (np.int64, np.int32))
        self.assertEqual([ids[i:j].tolist() for i, j in zip(indptr, indptr[1:])], expected)

    def test_forms(self):
        self.assertEqual(to_csr(None, 3), (None, None))
        for form in ([4, 1, -1], (4, 1, -100), np.array([4, 1, -1]), np.array([4, 1, -1], np.int32)[::1]):
            self.check(form, [[4], [1], []])
        self.check(np.array([4, 1, 2], np.uint8), [[4], [1], [2]])
        ragged = [[4, 7], [], [1]]
        for form in (ragged, [{4, 7}, set(), [1]], [np.array(x, int) for x in ragged], [[4, 7, -1], [-100], [1]]):
            self.check(form, ragged)
        self.check(np.array([[4, 7], [-1, -1], [1, -100]]), ragged)
        flags = np.zeros((3, 9), bool)
        flags[0, [4, 7]] = flags[2, 1] = True
        self.check(flags, ragged, m=9)
        self.check([[], [], []], [[], [], []])
        self.check([], [], n=0)
        if sparse:
            for kind in (sparse.csr_matrix, sparse.csc_matrix, sparse.coo_matrix, sparse.csr_array, sparse.lil_matrix):
                self.check(kind(flags.astype(float)), ragged)
                self.check(kind(flags.astype(float)), ragged, m=9)
            zero = sparse.csr_matrix(flags.astype(float))
            zero.data[0] = 0
            self.check(zero, [[7], [], [1]])
            doubled = sparse.coo_matrix(([1, 1, 1], ([0, 0, 2], [4, 4, 1])), shape=(3, 9))
            self.check(doubled, [[4], [], [1]])

    def test_refused(self):
        for bad, words in [
            ([1, 2], "labels are of 2 queries, and there are 3"),
            ([[1], [2]], "of 2 queries"),
            (np.zeros((2, 2), int), "of 2 queries"),
            ([1.5, 2, 3], "whole numbers"),
            (np.zeros(3), "not float64$"),
            (np.eye(3), "not float64: make flags bool"),
            (np.eye(3) / 2, "not float64$"),
            (["a", "b", "c"], "whole numbers"),
            ([[1], ["a"], []], "whole numbers"),
            ([[1], 2, [3]], "some entries are lists"),
            ([b"ab", b"c", b""], "must be a list of whole numbers, ids of classes, not bytes"),
            ([[1], bytearray(b"c"), []], "not bytearray"),
            ([{1: 2}, {}, {3: 4}], "not dict"),
            ([[[1], [2, 3]], [1], []], "not lists of them"),
            ([[[1]], [[2]], [[3]]], "whole numbers"),
            ([1, [2, 3], []], "differ in length"),
            (np.zeros((3, 2), bool), r"shape \(3, 2\), and a matrix of labels has a column for each of the 3 classes"),
            (np.zeros((3, 4), bool), r"shape \(3, 4\), and a matrix"),
            (np.zeros((2, 3), bool), "of 2 queries"),
            ([1, 2, -5], "-5 is no class"),
            ([[1], [2], [-7]], "-7 is no class"),
            ([1, 2, 2**40], "no class"),
            (np.zeros((3, 2, 2), int), "one or two dimensions"),
            (np.eye(3, dtype=int), "make flags bool"),
            (object(), "one or two dimensions"),
        ]:
            with self.subTest(words), self.assertRaisesRegex(wideout.ArgumentError, words):
                to_csr(bad, 3, 3)
        if sparse:
            with self.assertRaisesRegex(wideout.ArgumentError, "2 queries"):
                to_csr(sparse.csr_matrix(np.zeros((2, 9))), 3)
            for columns in (M - 1, M + 1):
                with self.assertRaisesRegex(wideout.ArgumentError, rf"{columns}\), and a matrix of labels has a column for"):
                    wideout.build(W, b, queries, sparse.csr_matrix((len(queries), columns)), method="popular")
                with self.assertRaisesRegex(wideout.ArgumentError, "column for each"):
                    index().evaluate(queries, sparse.csr_matrix((len(queries), columns)), timing=False)
        with self.assertRaisesRegex(wideout.ArgumentError, f"column for each of the {M} classes"):
            wideout.build(W, b, queries, np.zeros((len(queries), 50), bool), method="popular")

    @unittest.skipUnless(sparse, "scipy is not installed")
    def test_sparse_that_is_damaged(self):
        """Scipy's functions, and the library, would read wherever such arrays point."""
        flags = np.eye(3, 9)
        empty = sparse.csr_matrix((3, 9))
        empty.indptr[1] = 10**9
        for kind in (sparse.csr_matrix, sparse.csc_matrix, sparse.bsr_matrix, sparse.csr_array):
            for array, at, value in (
                ("indptr", 1, 10**9),
                ("indptr", 1, -7),
                ("indptr", 0, -(10**9)),
                ("indptr", -1, 10**9),
                ("indices", 1, -4),
                ("indices", 1, 10**9),
            ):
                bad = kind(flags)
                getattr(bad, array)[at] = value
                with self.subTest((kind.__name__, array, at, value)):
                    with self.assertRaisesRegex(wideout.ArgumentError, "sparse matrix whose parts do not agree: "):
                        wideout.Log(queries[:3], bad)
        coordinates = sparse.coo_matrix(flags)
        coordinates.row[1] = 10**9
        for bad in (empty, empty.T, coordinates):
            with self.assertRaisesRegex(wideout.ArgumentError, "whose parts do not agree|of 9 queries"):
                wideout.Log(queries[:3], bad)

    @unittest.skipUnless(sparse, "scipy is not installed")
    def test_sparse_is_copied(self):
        """What is changed after it was looked at is not what is read."""
        ids = labels.astype(np.int32)
        matrix = sparse.csr_matrix((np.ones(len(ids)), ids, np.arange(len(ids) + 1, dtype=np.int64)), shape=(len(ids), M))
        log = wideout.Log(queries, matrix, m=M)
        matrix.indices[:] = 10**8
        matrix.indptr[1:-1] = -(10**9)
        options = {"method": "popular", "popular": 50}
        np.testing.assert_array_equal(
            wideout.build(W, b, log, **options).search(queries[:9], 3)[1],
            wideout.build(W, b, queries, labels, **options).search(queries[:9], 3)[1],
        )

    @unittest.skipUnless(sparse, "scipy is not installed")
    def test_sparse_columns_beyond_ids(self):
        wide = sparse.csr_matrix((np.ones(3), [5, 2**32 + 7, 1], [0, 1, 2, 3]), shape=(3, 2**33))
        with self.assertRaisesRegex(wideout.ArgumentError, f"label {2**32 + 7} is no class"):
            wideout.Log(queries[:3], wide)

    def test_out_of_range(self):
        for y in (np.full(len(queries), M), np.where(labels == labels[5], M + 5, labels)):
            with self.assertRaises(wideout.Error) as caught:
                wideout.build(W, b, queries, y, method="evidence")
            self.assertEqual(caught.exception.about, "log")
        with self.assertRaises(wideout.Error):
            index().evaluate(queries, np.full(len(queries), M), timing=False)


class Tensors(unittest.TestCase):
    def setUp(self):
        if "torch" not in sys.modules:
            try:
                import torch  # noqa: F401
            except ImportError:
                self.skipTest("torch is not installed")

    def test_tensors(self):
        import torch

        ix = index()
        t = torch.from_numpy(queries)
        expected = ix.search(queries[:8], 3, by="cells")
        grad = t[:8].clone().requires_grad_()
        for form in (t[:8], t[:8].double(), t[:8].T.contiguous().T, grad, grad * 1.0, torch.nn.Parameter(t[:8])):
            scores, ids = ix.search(form, 3, by="cells")
            self.assertEqual((scores.dtype, ids.dtype), (torch.float32, torch.int64))
            np.testing.assert_array_equal(ids.numpy(), expected[1])
            np.testing.assert_array_equal(scores.numpy(), expected[0])
        self.assertEqual(ix.search(t[0], 3)[1].shape, (3,))
        rounded = t[:8].bfloat16()
        np.testing.assert_array_equal(ix.search(rounded, 3)[1], ix.search(rounded.float().numpy(), 3)[1])
        self.assertIsInstance(ix.score(t[:8], ids), torch.Tensor)
        self.assertIsInstance(ix.log_partition(t[:8], by="full"), torch.Tensor)
        self.assertIsInstance(ix.sample(t[:8]), torch.Tensor)
        for use in (lambda q: ix.log_partition(q, by="full"), lambda q: ix.sample(q, seed=3), lambda q: ix.score(q, [1])):
            one = use(t[0])  # a number, as of numpy
            self.assertIsInstance(one, torch.Tensor)
            np.testing.assert_array_equal(one.numpy(), use(queries[0]))
        np.testing.assert_array_equal(ix.search(t[:8], 3, forbid=ids[:, 0])[1], ix.search(queries[:8], 3, forbid=expected[1][:, 0])[1])

    def test_no_memory(self):
        import torch

        with self.assertRaisesRegex(wideout.OutOfMemory, "^there is no memory for 8"):
            index().search(torch.zeros(100000, D), 2**31 - 1)

    def test_everything_from_tensors(self):
        import torch

        tensors = [torch.from_numpy(x) for x in (W, b, queries, labels)]
        ix = wideout.build(*tensors, method="popular")
        np.testing.assert_array_equal(ix.search(queries[:9], 3)[1], index(method="popular").search(queries[:9], 3)[1])
        with self.assertRaisesRegex(wideout.ArgumentError, "meta"):
            ix.search(torch.empty(3, D, device="meta"))
        for bad in (torch.zeros(3, D, dtype=torch.int32), torch.zeros(3, 5), torch.zeros(3, D).to_sparse(), torch.tensor(3.0)):
            with self.assertRaises(wideout.ArgumentError):
                ix.search(bad)

    def test_lists_of_tensors(self):
        import torch

        ix, t = index(), torch.from_numpy(queries)
        expected = ix.search(t[:3], 3, by="cells")
        for form in ([t[0], t[1], t[2]], tuple(t[:3]), [x.double() for x in t[:3]], [x.clone().requires_grad_() for x in t[:3]]):
            found = ix.search(form, 3, by="cells")
            self.assertIsInstance(found[1], torch.Tensor)
            self.assertTrue(torch.equal(found[1], expected[1]))
        self.assertEqual(wideout.Log(list(t[:5]), [torch.tensor([1, 2])] * 5).n, 5)
        np.testing.assert_array_equal(ix.score(t[:2], [torch.tensor([1, 2]), torch.tensor([3, 4])]), ix.score(t[:2], [[1, 2], [3, 4]]))
        for bad, words in [
            ([t[0], t[1][:3]], r"tensors that differ: float32 of shape \(16,\) and float32 of shape \(3,\)"),
            ([t[0], t[1].double()], "float64 of shape"),
            ([t[0], [1.0] * D], "some entries are tensors"),
            ([t[:2], t[:2]], "one or two dimensions"),
            ([torch.empty(D, device="meta")], "on meta"),
        ]:
            with self.subTest(words), self.assertRaisesRegex(wideout.ArgumentError, words):
                ix.search(bad)

    def test_odd_tensors(self):
        import torch

        t = torch.from_numpy(queries[:4])
        odd = [
            (torch.quantize_per_tensor(t, 0.1, 0, torch.quint8), "is a quantised tensor: call .dequantize"),
            (t.to_sparse(), "is a sparse tensor: call .to_dense"),
            (t.to("meta"), "is a tensor on meta, which has a shape and no numbers"),
        ]
        if hasattr(torch, "nested_tensor") or hasattr(torch, "nested"):
            nested = getattr(torch, "nested_tensor", None) or torch.nested.nested_tensor
            odd.append((nested([t[0], t[1]]), "is a nested tensor"))
        if torch.backends.mkldnn.is_available():
            odd.append((t.to_mkldnn(), "is a mkldnn tensor: call .to_dense"))
        for x, words in odd:
            for use in (index().search, lambda x: wideout.Layer(x), lambda x: to_csr(x, 4), lambda x: to_csr([x], 1)):
                with self.subTest(words), self.assertRaisesRegex(wideout.ArgumentError, words):
                    use(x)

    def test_storage_cannot_shrink(self):
        """What an index reads stays: torch refuses to resize it."""
        import torch

        weight, bias = torch.from_numpy(W).clone(), torch.from_numpy(b).clone()
        ix = wideout.build(weight, bias, method="full")
        before = ix.search(queries[:8], 3)[1]
        for x in (weight, bias):
            with self.assertRaises(RuntimeError):
                x.storage().resize_(0)
        np.testing.assert_array_equal(ix.search(queries[:8], 3)[1], before)

    def test_memory_that_moves(self):
        """share_memory() gives a storage other memory, and frees what an index reads."""
        import torch

        small = index()
        for as_given in (lambda x: x, lambda x: x.numpy(), lambda x: x.as_subclass(type("Sub", (torch.Tensor,), {}))):
            for moved in range(2):
                tensors = [torch.from_numpy(x).clone() for x in (W, b, queries)]
                weight, bias, q = map(as_given, tensors)
                log = wideout.Log(q, labels)
                ix = wideout.build(weight, bias, log, method="full")
                tensors[moved].share_memory_()
                tensors[2].share_memory_()
                for use in (
                    lambda: ix.search(queries[:3], 3),
                    lambda: ix.search(queries[0], 3),
                    lambda: ix.score(queries[0], [1]),
                    lambda: ix.log_partition(queries[:3], by="full"),
                    lambda: ix.evaluate(queries, labels, timing=False),
                    lambda: ix.save(scratch("moved.index")),
                    lambda: wideout.build(ix.layer, method="full"),
                    lambda: small.evaluate(queries, labels, timing=False, layer=ix.layer),
                    lambda: wideout.Index.from_bytes(small.to_bytes(), layer=ix.layer),
                ):
                    with self.assertRaisesRegex(wideout.ArgumentError, "the layer's .* has moved, .*call share_memory"):
                        use()
                for use in (
                    lambda: log.queries,
                    lambda: small.evaluate(log, timing=False),
                    lambda: wideout.build(W, b, log, method="popular"),
                ):
                    with self.assertRaisesRegex(wideout.ArgumentError, "the memory of the queries has moved"):
                        use()
                self.assertEqual((ix.info["method"], ix.name(3)), ("full", None))
                ix.close()
        shared = [torch.from_numpy(x).clone().share_memory_() for x in (W, b)]
        ix = wideout.build(*shared, method="full")
        for x in shared:
            x.share_memory_()
        np.testing.assert_array_equal(ix.search(queries[:9], 3)[1], index(method="full").search(queries[:9], 3)[1])

    def test_lists_of_scalars(self):
        import torch

        for scalars in ([torch.tensor(4), torch.tensor(-1), 2], [np.array(4), np.int64(-1), np.array(2)]):
            indptr, ids = to_csr(scalars, 3)
            self.assertEqual((indptr.tolist(), ids.tolist()), ([0, 1, 1, 2], [4, 2]))
        with self.assertRaisesRegex(wideout.ArgumentError, "whole numbers"):
            to_csr([torch.tensor(0.5)], 1)

    def test_modules(self):
        import torch

        with self.assertRaisesRegex(wideout.ArgumentError, "give .weight and .bias of this Linear"):
            wideout.build(torch.nn.Linear(D, M), None, queries, labels)

    def test_storage_is_kept(self):
        """model.half() and `weight.data = ...` give a parameter another storage: the layer keeps the old one."""
        import torch

        for change in (lambda linear: linear.half(), lambda linear: setattr(linear.weight, "data", torch.zeros(M, D))):
            linear = torch.nn.Linear(D, M)
            with torch.no_grad():
                linear.weight.copy_(torch.from_numpy(W))
                linear.bias.copy_(torch.from_numpy(b))
            ix = wideout.build(linear.weight, linear.bias, method="full")
            before = ix.search(queries[:8], 3)
            change(linear)
            filled = [torch.full((M, D), 9.0) for _ in range(50)]  # takes what was freed
            for found, expected in zip(ix.search(queries[:8], 3), before):
                np.testing.assert_array_equal(found, expected)
            del filled

    def test_short_storage(self):
        import torch

        def short(x, n):
            x = torch.as_tensor(x).clone()
            x.storage().resize_(n)
            return x

        ix = index()
        for n in (0, 16, 8 * D - 1):
            for kind in (torch.float32, torch.float64, torch.bfloat16):
                with self.assertRaisesRegex(wideout.ArgumentError, r"shape \(8, 16\) whose storage has [\d,]+ bytes"):
                    ix.search(short(torch.from_numpy(queries[:8]).to(kind), n))
        kept = torch.from_numpy(queries[:8]).clone()
        last = kept[7]
        before = ix.search(kept[6], 3)[1]
        kept.storage().resize_(8 * D - 1)
        with self.assertRaisesRegex(wideout.ArgumentError, "storage"):
            ix.search(last)
        np.testing.assert_array_equal(ix.search(kept[6], 3)[1], before)
        with self.assertRaisesRegex(wideout.ArgumentError, "bias is a tensor of shape .* has 0 bytes"):
            wideout.Layer(torch.from_numpy(W), short(b, 0))
        with self.assertRaisesRegex(wideout.ArgumentError, "weights is a tensor"):
            wideout.Layer(short(W, 16))
        with self.assertRaisesRegex(wideout.ArgumentError, "labels is a tensor"):
            wideout.Log(queries, short(labels, 4))
        self.assertEqual(ix.search(torch.zeros(0, D), 2)[1].shape, (0, 2))

    def test_subclasses(self):
        """They are taken for what torch knows of them, not for what they say."""
        import torch

        class Liar(torch.Tensor):
            shape = property(lambda self: torch.Size((1000, D)))

            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                raise ZeroDivisionError

        ix = index()
        scores, ids = ix.search(torch.from_numpy(queries[:8]).as_subclass(Liar), 3)
        np.testing.assert_array_equal(ids, ix.search(queries[:8], 3)[1])

    def test_interrupted(self):
        import torch
        from torch.overrides import TorchFunctionMode

        class Interrupt(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                if getattr(func, "__name__", "") == "data_ptr":
                    raise KeyboardInterrupt
                return func(*args, **(kwargs or {}))

        with self.assertRaises(KeyboardInterrupt), Interrupt():
            index().search(torch.from_numpy(queries[:8]), 3)


if __name__ == "__main__":
    unittest.main()
