"""Searching: against numpy, in every shape, with all that a call can ask for."""

import inspect
import threading
import unittest

import numpy as np

import wideout
from data import D, M, W, b, full_best, index, labels, queries


class Search(unittest.TestCase):
    def test_full_is_numpy(self):
        scores, ids = index(method="full").search(queries[:200], 7)
        expected_scores, expected_ids = full_best(queries[:200], 7)
        np.testing.assert_array_equal(ids, expected_ids)
        np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-5)
        self.assertEqual((scores.dtype, ids.dtype), (np.float32, np.int32))

    def test_one_and_many(self):
        ix = index()
        many = ix.search(queries[:5], 4, by="cells")
        for i in range(5):
            one = ix.search(queries[i], 4)
            self.assertEqual(one[0].shape, (4,))
            np.testing.assert_array_equal(one[1], many[1][i])
            np.testing.assert_array_equal(one[0], many[0][i])
        self.assertEqual(ix.search(queries[0])[1].shape, (10,))
        self.assertEqual(ix.search(queries[:0], 3)[0].shape, (0, 3))

    def test_padding(self):
        scores, ids = index(method="popular", popular=3).search(queries[:2], 5)
        np.testing.assert_array_equal(ids[:, 3:], -1)
        self.assertTrue(np.isneginf(scores[:, 3:]).all() and (ids[:, :3] >= 0).all())

    def test_masks_and_bias(self):
        ix = index(method="full")
        best = full_best(queries[:3], 3)[1]
        _, ids = ix.search(queries[:3], 2, forbid=best[:, 0])
        self.assertFalse(np.isin(ids, best[:, 0]).any())
        bias = np.zeros(M, np.float32)
        bias[77] = 1000
        self.assertTrue((ix.search(queries[:3], 1, bias=bias)[1] == 77).all())
        self.assertIn(77, index().search(queries[0], 500, require=[77])[1])
        self.assertNotIn(77, index().search(queries[0], 500, require=[77], forbid={77})[1])
        np.testing.assert_array_equal(ix.search(queries[:3], 2, forbid=[])[1], best[:, :2])

    def test_answers_are_forbidden(self):
        """As they come, padded with -1; those of many queries for all of them."""
        ix = index()
        _, ids = ix.search(queries[:40], M)
        self.assertTrue((ids == -1).any(axis=1).all())
        for forbid in (ids[0], ids[:3], ids[:3].astype(np.int64), ids[:3].tolist(), np.full(5, -1), np.full(5, -1, np.int32)):
            gone = np.unique(forbid)
            found = ix.search(queries[:40], M, forbid=forbid)[1]
            for before, after in zip(ids, found):
                self.assertEqual(set(after), (set(before) - set(gone)) | {-1})
        best = ix.search(queries[0], 1, by="full")[1]
        self.assertNotIn(best[0], ix.search(queries[0], 5, by="full", forbid=[best[0], -1])[1])
        for bad in ([-2], [3, -1, -100], np.array([-7], np.int32)):
            with self.assertRaisesRegex(wideout.ArgumentError, f"{min(bad)}"):
                ix.search(queries[0], 5, forbid=bad)
        with self.assertRaisesRegex(wideout.ArgumentError, "-1"):
            ix.search(queries[0], 5, require=[-1])

    def test_by_scores_probes(self):
        ix = index()
        expected = full_best(queries[:20], 3)
        np.testing.assert_array_equal(ix.search(queries[:20], 3, by="full")[1], expected[1])
        odds = ix.search(queries[:20], 50, scores="softmax")[0]
        np.testing.assert_allclose(odds.sum(axis=1), 1, atol=1e-5)
        few = ix.search(queries[:50], 5, stats=True, probes=1)[2]
        more = ix.search(queries[:50], 5, stats=True, probes=8)[2]
        self.assertGreater(more["candidates"].mean(), few["candidates"].mean())
        self.assertTrue((few["cells"] == 2).all() and (more["cells"] == 16).all() and not few["exact"].any())
        logprob = ix.search(queries[:5], 5, scores="logprob", by="full")[0]
        logits = full_best(queries[:5], M)[0]
        exact = logits[:, :5] - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(logprob, exact, atol=1e-4)

    def test_prior(self):
        ix = index(method="evidence", router="tree", prior=1.0, cap=8)
        scores, ids = ix.search(queries[:50], 3)
        plain, plain_ids = ix.search(queries[:50], 3, prior=False)
        self.assertTrue((scores[:, 0] >= plain[:, 0]).all() and (scores != plain).any())
        np.testing.assert_allclose(ix.score(queries[:50], plain_ids), plain, atol=1e-5)

    def test_out(self):
        ix = index()
        scores, ids = np.empty((6, 4), np.float32), np.empty((6, 4), np.int32)
        found = ix.search(queries[:6], 4, out=(scores, ids))
        self.assertIs(found[0], scores)
        self.assertIs(found[1], ids)
        np.testing.assert_array_equal(ids, ix.search(queries[:6], 4)[1])
        for bad in [(scores, ids.astype(np.int64)), (scores[:, ::2], ids), (ids, scores), (scores[0], ids[0]), scores]:
            with self.assertRaises(wideout.ArgumentError):
                ix.search(queries[:6], 4, out=bad)
        scores.flags.writeable = False
        with self.assertRaisesRegex(wideout.ArgumentError, "can be written to"):
            ix.search(queries[:6], 4, out=(scores, ids))

    def test_lists_in_out(self):
        many = np.tile(queries, (40, 1))  # in pieces
        for method in ("popular", "full"):
            ix = index(method=method)
            first = ix.search(many, 6)
            for name in ("forbid", "require"):
                scores, ids = (part.copy() for part in first)
                expected = ix.search(many, 6, **{name: ids[0, 2:].copy()})
                ix.search(many, 6, out=(scores, ids), **{name: ids[0, 2:]})
                np.testing.assert_array_equal(ids, expected[1])
                np.testing.assert_array_equal(scores, expected[0])
            hidden = first[1][0]
            self.assertFalse(np.isin(ix.search(many, 6, forbid=hidden)[1], hidden).any())

    def test_lists_that_change(self):
        ix = index()
        many = np.tile(queries, (8, 1))
        expected = ix.search(queries, 5)[1]
        ids = np.zeros(50, np.int32)
        end = threading.Event()

        def change():
            while not end.is_set():
                ids[:] = 2_000_000_000
                ids[:] = np.arange(50)

        thread = threading.Thread(target=change)
        thread.start()
        try:
            for _ in range(4):
                for ask in (ix.score, lambda q, i: ix.search(q, 1, forbid=i), lambda q, i: ix.search(q, 1, require=i)):
                    try:
                        ask(many, ids)
                    except wideout.ArgumentError as error:
                        self.assertIn("2000000000", str(error))
                np.testing.assert_array_equal(ix.search(queries, 5)[1], expected)
        finally:
            end.set()
            thread.join()

    def test_answers_do_not_depend_on_threads(self):
        ix = index()
        expected = ix.search(queries, 5, threads=1)
        for threads in (0, 2, 3):
            np.testing.assert_array_equal(ix.search(queries, 5, threads=threads)[1], expected[1])
        ix.threads = 1
        self.assertEqual(ix.threads, 1)
        ix.threads = 0

    def test_large_batches_in_pieces(self):
        many = np.tile(queries, (40, 1))  # more than two pieces
        scores, ids, stats = index().search(many, 2, stats=True)
        one = index().search(queries, 2, stats=True)
        np.testing.assert_array_equal(ids, np.tile(one[1], (40, 1)))
        np.testing.assert_array_equal(stats["candidates"], np.tile(one[2]["candidates"], 40))


class Signature(unittest.TestCase):
    def test_tools_can_read_it(self):
        names = list(inspect.signature(wideout.Index.search).parameters)
        self.assertEqual(names[:4], ["self", "q", "k", "forbid"])
        self.assertEqual(names[-1], "out")
        for name in names[1:]:
            self.assertIn(name, wideout.Index.search.__doc__)


class Others(unittest.TestCase):
    def test_score(self):
        ids = np.arange(12, dtype=np.int32).reshape(3, 4)
        logits = queries[:3].astype(np.float64) @ W.T + b
        expected = np.take_along_axis(logits, ids.astype(np.int64), 1)
        for form in (ids, ids.astype(np.int64), ids.tolist(), np.asfortranarray(ids)):
            np.testing.assert_allclose(index().score(queries[:3], form), expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(index().score(queries[0], [5, 1]), logits[0, [5, 1]], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(index().score(queries[:2], [5, 1]), logits[:2, [5, 1]], rtol=1e-5, atol=1e-5)

    def test_log_partition(self):
        logits = queries[:5].astype(np.float64) @ W.T + b
        expected = np.log(np.exp(logits).sum(axis=1))
        np.testing.assert_allclose(index().log_partition(queries[:5], by="full"), expected, atol=1e-4)
        self.assertAlmostEqual(float(index().log_partition(queries[0], by="full")), expected[0], places=3)
        with self.assertRaisesRegex(wideout.Unsupported, "without a partition") as caught:
            index().log_partition(queries[0])
        self.assertEqual((caught.exception.about, caught.exception.option), ("index", "partition"))
        learned = index(method="evidence", router="tree", partition=True)
        self.assertLess(np.abs(learned.log_partition(queries[:5]) - expected).max(), 2)

    def test_sample(self):
        ix = index()
        scores, ids = ix.search(queries[:50], 50)
        drawn = ix.sample(queries[:50], seed=3)
        self.assertEqual(drawn.dtype, np.int32)
        self.assertTrue((drawn[:, None] == ids).any(axis=1).all())
        np.testing.assert_array_equal(drawn, ix.sample(queries[:50], seed=3))
        self.assertTrue((drawn != ix.sample(queries[:50], seed=4)).any())
        np.testing.assert_array_equal(ix.sample(queries[:50], temperature=0), ids[:, 0])
        self.assertEqual(ix.sample(queries[7], seed=3, position=7), drawn[7])
        self.assertNotIn(ids[0, 0], [ix.sample(queries[0], seed=s, forbid=[ids[0, 0]]) for s in range(20)])
        with self.assertRaises(wideout.ArgumentError):
            ix.sample(queries[:2], scores="softmax")

    def test_quality(self):
        e = index().evaluate(queries[:500], labels[:500], timing=False)
        _, ids = index().search(queries[:500], 1, by="cells")
        self.assertAlmostEqual(e.p_at_1, float((ids[:, 0] == labels[:500]).mean()), places=9)
        self.assertAlmostEqual(e["full_p_at_1"], float((full_best(queries[:500], 1)[1][:, 0] == labels[:500]).mean()))
        self.assertEqual((e.n, e.without_label, e.timings, list(e.agreement)), (500, 0, [], [1, 5]))
        self.assertIn("P@1", str(e))
        self.assertIsNone(e.headline_timing)
        timed = index().evaluate(queries[:500], max_queries=200, rounds=1, ks=[2], batches=[1, 8], batch=8)
        self.assertEqual([t["batch"] for t in timed.timings], [1, 8])
        self.assertEqual(timed.headline_timing["batch"], 8)
        self.assertTrue(np.isnan(timed.p_at_1) and timed.headline_timing["us"] > 0 and timed.n == 200)
        self.assertIn("no labels", str(timed))
        self.assertEqual(D, index().d)


if __name__ == "__main__":
    unittest.main()
