"""Building: exactly as asked, tuned to a goal, options by their names, progress and its end."""

import contextlib
import io
import math
import re
import unittest
import warnings
from unittest import mock

import numpy as np

import wideout
from data import M, W, b, index, labels, queries, scratch


class Exactly(unittest.TestCase):
    def test_options(self):
        ix = index(method="evidence", K=5, L=3, lambda_=0.05, source_k=7, learn_batch=256, iterations=10, seed=9)
        o = ix.options
        self.assertEqual(
            [o[x] for x in ("method", "K", "L", "lambda", "source_k", "batch", "seed")],
            ["evidence", 5, 3, 0.05, 7, 256, 9],
        )
        self.assertIs(o["partition"], False)
        self.assertIn("lambda_", wideout.options())
        self.assertIn("learn_batch", wideout.options())
        self.assertIsNone(ix.curve)
        self.assertIsNone(ix.tuning)

    def test_seed_gives_one_file(self):
        files = []
        for threads in (1, 2):
            path = scratch(f"seed{threads}")
            wideout.build(W, b, queries, labels, method="lss", iterations=5, threads=threads).save(path)
            with open(path, "rb") as file:
                files.append(file.read())
        self.assertEqual(files[0], files[1])

    def test_labels_matter(self):
        """The labels that everyone would write, one a query, are not ignored."""
        popular = wideout.build(W, b, queries, labels, method="popular", popular=20)
        self.assertIn("\n1 cell holds 20 classes", str(popular))
        ids = popular.search(queries[:1], 20)[1]
        often = np.argsort(-np.bincount(labels, minlength=M), kind="stable")[:20]
        self.assertEqual(sorted(ids[0]), sorted(often))

    def test_refused(self):
        for names, words in [
            ({"method": "magic"}, "method takes"),
            ({"method": "evidence", "K": 99}, "K takes"),
            ({"method": "evidence", "K": [1]}, "K takes a number or a word"),
            ({"method": "evidence", "K": math.nan}, "K takes"),
            ({"method": "screen", "K": 4}, "K has no part in an index with method screen"),
            ({"router": "tree", "K": 4}, "router tree"),
            ({"method": "evidence", "k": 5}, "k is for tuning"),
            ({"method": "evidence", "tune_queries": W}, "tune_queries is for tuning"),
            ({"target": 0}, "above 0"),
            ({"target": "good"}, "or 'best'"),
            ({"target": 0.9, "target_us": 3}, "give one"),
            ({"target": "best", "target_agree": 0.9}, "give one"),
            ({"tune_queries": queries}, "flatters every index"),
            ({"tune_queries": queries.copy()}, "flatters every index"),
            ({"tune_queries": queries[:500].astype(np.float64)}, "flatters every index"),
            ({"k": -3}, "k is out of range"),
            ({"max_time": "5m"}, "max_time takes a number of seconds, not '5m'"),
            ({"target_agree": "most"}, "target_agree takes a number, not 'most'"),
            ({"target": [1]}, r"target takes a number, not \[1\]"),
            ({"tune_queries": queries[:9].copy()}, "give tune_labels too, or say target_agree"),
            ({"tune_queries": queries[:9].copy(), "target_us": 3}, "give tune_labels too, or say target_agree"),
            ({"tune_queries": queries[:9].copy(), "tune_labels": [-1] * 9}, "give tune_labels too"),
            ({"tune_labels": labels}, "labels go with queries"),
            ({"tune_queries": queries[:, :3]}, "."),
        ]:
            with self.subTest(words), self.assertRaisesRegex((wideout.Error, TypeError), words):
                wideout.build(W, b, queries, labels, **names)
        with self.assertRaisesRegex(TypeError, "no option 'batch_size'"):
            wideout.build(W, b, queries, labels, batch_size=3)
        for args, words in [
            ((W, b), "tuning needs queries"),
            ((W, b, queries, labels[:-1]), "of 3999 queries, and there are 4000"),
            ((W, b, queries[:, :4], labels), "."),
            ((W.T, b, queries, labels), "2000 biases for 16 classes of 2000 numbers: is the layer"),
            ((W, b[:, None], queries, labels), r"bias has shape \(2000, 1\): .* \(2000,\)"),
            ((W, b[:7], queries, labels), "each of the 2000 classes, not 7"),
            ((W, b, None, labels), "labels go with queries"),
            ((wideout.Layer(W), b, queries, labels), "give None for b"),
            ((W, b, queries * np.nan, labels), "has nan at place 0"),
        ]:
            with self.subTest(words), self.assertRaisesRegex(wideout.Error, words):
                wideout.build(*args)


    def test_a_screen_that_is_too_coarse(self):
        """Columns of very different sizes are too much for int8, which its log shows."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fine = wideout.build(W, b, queries, labels, method="screen")
            wideout.build(W, b, method="screen")
        self.assertGreater(fine.info["same_five"], 0.999)
        self.assertIn("of the five best 100.00%", str(fine))
        sizes = np.float32(10.0) ** np.where(np.arange(W.shape[1]) % 2, 2, -2).astype(np.float32)
        with self.assertWarnsRegex(UserWarning, "^the screen has .*% of FULL's five best answers .*: int8 is too coarse"):
            coarse = wideout.build(W / sizes, b, queries * sizes, labels, method="screen")
        self.assertLess(coarse.info["same_five"], 0.9)


def some_frequent():
    """Queries, several times over, whose labels are FULL's answers, of 20 frequent classes."""
    best = index(method="full").search(queries, k=1)[1][:, 0]
    some = np.isin(best, np.argsort(-np.bincount(best))[:20])
    return np.tile(queries[some], (4, 1)), np.tile(best[some], 4)


class Named(unittest.TestCase):
    """An index that is built as it was named says what it is worth on queries of the log that it did not know."""

    def test_good(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ix = wideout.build(W, b, queries, labels, method="evidence", lambda_=0.001, K=4, L=2, iterations=20)
        held = {name: ix.info[name] for name in ("held_n", "held_same_best", "held_p_at_1", "held_full_p_at_1")}
        self.assertEqual(held["held_n"], 200)
        self.assertIn(
            f"\non 200 queries of the log that it did not know: P@1 {held['held_p_at_1']:.4f}, FULL's "
            f"{held['held_full_p_at_1']:.4f}; FULL's best answer for {100 * held['held_same_best']:.1f}%\n",
            str(ix) + "\n",
        )
        self.assertNotIn("did not know", str(wideout.build(W, b, queries, labels, max_time=0.1)))

    def test_short_log(self):
        words = "\na log of 999 queries says nothing of the quality: give 1,000 or more, or judge it on others by evaluate"
        for method, is_said in (("popular", True), ("screen", False)):
            self.assertEqual(words in str(wideout.build(W, b, queries[:999], labels[:999], method=method)), is_said)
        self.assertNotIn("says nothing", str(index(method="popular")))

    def test_poor(self):
        with self.assertWarnsRegex(UserWarning, "^the index has [0-9]+% of FULL's P@1 on 200 queries .*; a larger popular helps too$"):
            wideout.build(W, b, queries, labels, method="popular", popular=20)
        words = "^the index has [0-9]+% of FULL's best answers on .*; a smaller lambda_ or a longer log helps too$"
        with self.assertWarnsRegex(UserWarning, words):
            ix = wideout.build(W, b, queries, lambda_=2, K=9, L=1, iterations=5)
        self.assertNotIn("P@1", str(ix))

    def test_labels_in_another_order(self):
        words = "^on [0-9]+ labelled queries FULL's best answer is a label for [0-9.]+%, and the most frequent"
        with self.assertWarnsRegex(UserWarning, words):
            q, right = some_frequent()
            wideout.build(W, b, q, np.roll(right, 1), method="popular", popular=20)

    def test_probabilities(self):
        with self.assertWarnsRegex(UserWarning, "^log Z is off by [0-9.]+ nats, so that probabilities mean little: "):
            wideout.build(3 * W, 3 * b, queries, labels, lambda_=2, K=9, L=1, iterations=5, partition=True)


class Tuned(unittest.TestCase):
    def test_labels_from_one(self):
        """Hits cannot be the goal, and a warning says why; evaluate has one too."""
        wrong = np.where(wideout.build(W, b, method="full").search(queries, k=1)[1][:, 0] == 7, 8, 7)
        words = "labelled queries FULL's best answer is never a label: are they"
        with self.assertWarnsRegex(UserWarning, words):
            index = wideout.build(W, b, queries, wrong, max_time=0.1, threads=1)
        with self.assertWarnsRegex(UserWarning, "^on 4,000 " + words):
            index.evaluate(queries, wrong, timing=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            index.evaluate(queries[:49], wrong[:49], timing=False)
            index.evaluate(queries, timing=False)
            index.evaluate(queries, labels, timing=False)

    def test_labels_in_another_order(self):
        """FULL is then right no more often than who always says the same; a good network on few queries may be, too."""
        q, right = some_frequent()
        moved = np.roll(right, 1)
        words = "labelled queries FULL's best answer is a label for [0-9.]+%, and the most frequent label alone for [0-9.]*%: are these"
        with self.assertWarnsRegex(UserWarning, words):
            ix = wideout.build(W, b, q, moved, max_time=0.1, threads=1)
        with self.assertWarnsRegex(UserWarning, f"^on {len(q):,} {words}"):
            ix.evaluate(q, moved, timing=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ix.evaluate(q[:49], moved[:49], timing=False)
            ix.evaluate(q, right, timing=False)

    def test_target_without_labels(self):
        """It is then the share of FULL's own answers, as in the tool, and a warning says so."""
        paths = [scratch("unlabelled.log"), scratch("unlabelled.npy")]
        with wideout.LogWriter(paths[0], d=16, labels=False) as log:
            log.append(queries)
        np.save(paths[1], queries)
        for log in (queries, *paths, wideout.Log(queries, np.full(len(queries), -1))):
            with self.assertWarnsRegex(UserWarning, "no labels to judge by: target was taken for target_agree=0.9, the share"):
                ix = wideout.build(W, b, log, None, target=0.9, max_time=1)
            self.assertEqual(ix.tuning["target_agree"], 0.9)
        with self.assertWarnsRegex(UserWarning, "target5 was taken for target_agree=0.99"):
            wideout.build(W, b, queries, target5=0.9, max_time=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(wideout.build(W, b, queries, max_time=1).tuning["target_agree"], 0.99)
        agreed = wideout.build(W, b, paths[0], tune_queries=queries[::-1], target_agree=0.5, max_time=1)
        self.assertEqual(agreed.tuning["target_agree"], 0.5)
        self.assertIn("\nno hits to judge by: the queries have no labels\nshown by the answers themselves: at least ", str(agreed))
        with wideout.LogWriter(scratch("labelled.log"), d=16) as log:
            log.append(queries, labels)
        with self.assertRaisesRegex(wideout.ArgumentError, "give tune_labels too"):
            wideout.build(W, b, scratch("labelled.log"), tune_queries=queries[::-1])
        self.assertEqual(wideout.build(W, b, scratch("labelled.log"), target=0.9, max_time=1).tuning["target"], 0.9)

    def test_target_that_full_never_hits(self):
        """FULL's own answers are the goal then too, and the report says why."""
        worst = np.argmin(queries @ W.T + b, axis=1)
        for tune in ({}, {"tune_queries": queries[:1].copy(), "tune_labels": worst[:1]}):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ix = wideout.build(W, b, queries, worst, max_time=1, **tune)
            self.assertEqual(ix.tuning["target_agree"], 0.99)
            counted = "1 labelled query" if tune else "400 labelled queries"
            self.assertIn(f"\nno hits to judge by: on {counted} FULL's best answer is never a label: do labels count from 0?\n", str(ix))

    def test_what_scores_all_says_so_first(self):
        for method, words in (("full", ": this is FULL, the exact layer"), ("screen", ": a screen: all classes in int8")):
            first = str(index(method=method)).splitlines()[0]
            self.assertIn(f" names{words}", first)
        self.assertTrue(str(index(method="evidence")).splitlines()[0].endswith(" names"))

    def test_goal(self):
        ix = index(target=0.9, max_time=1, batch=8, k=3)
        self.assertEqual((ix.tuning["target"], ix.tuning["target5"]), (0.9, 0.9))
        self.assertEqual((ix.tuning["batch"], ix.tuning["k"]), (8, 3))
        self.assertEqual(ix.curve.chosen.sum(), 1)
        self.assertIn("full", ix.curve.settings.tolist())
        self.assertIn("tuned to 0.9 of FULL's P@1", str(ix))
        self.assertGreater(ix.curve.us.min(), 0)

    def test_fixed_method(self):
        ix = wideout.build(
            W, b, queries[:3000], labels[:3000], method="popular", target_agree=0.02,
            tune_queries=queries[3000:], tune_labels=labels[3000:], max_time=1,
        )
        self.assertEqual((ix.options["method"], ix.tuning["target_agree"], ix.tuning["queries"]), ("popular", 0.02, 1000))
        with self.assertRaises(wideout.Unsupported) as caught:
            wideout.build(W, b, queries, labels, method="popular", popular=2, target=0.99, max_time=1)
        self.assertEqual(caught.exception.status, "unsupported")


class Progress(unittest.TestCase):
    def test_function(self):
        seen = []
        wideout.build(W, b, queries, labels, method="evidence", iterations=20, progress=lambda *report: seen.append(report))
        self.assertTrue(seen)
        for stage, done, total in seen:
            self.assertIsInstance(stage, str)
            self.assertTrue(0 <= done <= total or total == 0)

    def test_stops(self):
        with self.assertRaises(wideout.Cancelled) as caught:
            wideout.build(W, b, queries, labels, method="evidence", iterations=20, progress=lambda *report: True)
        self.assertEqual(caught.exception.status, "cancelled")
        with self.assertRaises(ZeroDivisionError):
            wideout.build(W, b, queries, labels, method="evidence", iterations=20, progress=lambda *report: 1 / 0)
        with self.assertRaises(ZeroDivisionError):
            index().evaluate(queries, progress=lambda *report: 1 / 0)

    def test_bars(self):
        def shown(progress, tqdm):
            with contextlib.redirect_stderr(io.StringIO()) as err:
                with mock.patch.dict("sys.modules", {} if tqdm else {"tqdm.auto": None}):
                    wideout.build(W, b, queries, labels, lambda_=0.001, K=4, L=2, iterations=20, progress=progress)
            return err.getvalue()

        self.assertEqual(shown(None, tqdm=False), "")  # no terminal
        self.assertEqual(shown(False, tqdm=False), "")
        self.assertRegex(shown(True, tqdm=False), re.compile(r"^wideout: [a-z ]+ +\d+%$", re.MULTILINE))
        try:
            import tqdm.auto  # noqa: F401
        except ImportError:
            self.skipTest("tqdm is not installed")
        self.assertRegex(shown(True, tqdm=True), r"\d+%\|")


if __name__ == "__main__":
    unittest.main()
