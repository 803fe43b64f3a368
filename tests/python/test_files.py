"""Files: indexes, layers and logs, written and read; golden ones; pickles."""

import json
import os
import pickle
import struct
import unittest
import warnings
import zipfile

import numpy as np

import wideout
from data import GOLDEN, M, W, b, index, labels, queries, scratch


class Indexes(unittest.TestCase):
    def test_save_and_open(self):
        ix = index()
        path = scratch("saved.index")
        self.assertIsNone(wideout.build(W, b, method="screen").path)
        ix.save(path)
        for verify in ("all", "used", "none"):
            with wideout.open(path, verify=verify) as again:
                np.testing.assert_array_equal(again.search(queries[:50], 5)[1], ix.search(queries[:50], 5)[1])
                self.assertEqual(again.options, ix.options)
                self.assertEqual((again.m, again.d, again.path, again.layer), (ix.m, ix.d, path, None))
            self.assertTrue(again.closed)
        self.assertIs(type(ix.layer), wideout.Layer)

    def test_without_rows(self):
        path = scratch("none.index")
        index(method="evidence", K=4, L=2, iterations=20, weights="none").save(path)
        with self.assertRaises(wideout.Error) as caught:
            wideout.open(path)
        self.assertEqual((caught.exception.about, caught.exception.option), ("index", "layer"))
        layer = wideout.Layer(W, b)
        ix = wideout.open(path, layer=layer)
        del layer  # the index keeps it
        np.testing.assert_array_equal(ix.search(queries[:9], 3)[1], index().search(queries[:9], 3)[1])
        with self.assertRaises(wideout.ArgumentError):
            pickle.dumps(ix)  # its layer is in memory alone
        with self.assertRaisesRegex(wideout.Error, "not the one that the index was built for"):
            wideout.open(path, layer=wideout.Layer(W * 2, b))

    def test_golden(self):
        for name in sorted(os.listdir(GOLDEN)):
            if name.startswith("index-") and name.endswith(".safetensors") and name != "index-none.safetensors":
                with self.subTest(name), wideout.open(os.path.join(GOLDEN, name)) as ix:
                    self.assertEqual(ix.search(np.ones(ix.d, np.float32), 2)[1].shape, (2,))
                    self.assertIn(ix.info["method"], str(ix))
        with wideout.open(os.path.join(GOLDEN, "index-tuned.safetensors")) as tuned:
            self.assertEqual(len(tuned.curve), len(tuned.curve.settings))
            self.assertEqual(tuned.curve.chosen[tuned.tuning["chosen"]], 1)
            self.assertIn("tuned to", str(tuned))
        with wideout.open(os.path.join(GOLDEN, "index-lss.safetensors")) as lss:
            self.assertIn("step", lss.trace.dtype.names)
            self.assertIsNone(lss.curve)
        with wideout.open(os.path.join(GOLDEN, "index-names.safetensors")) as named:
            self.assertIsInstance(named.name(0), str)

    def test_names(self):
        names = [f"class {i} ü" for i in range(M)]
        with wideout.build(W, b, method="screen", names=names) as ix:
            self.assertEqual((ix.name(0), ix.name(np.int64(1999))), ("class 0 ü", "class 1999 ü"))
            for bad in (-1, M, 2**70):
                with self.assertRaises(wideout.ArgumentError):
                    ix.name(bad)
        self.assertIsNone(index().name(3))
        for bad in (names[:-1], ["a\nb"] * M, ["a\0"] * M, [1] * M):
            with self.assertRaises(wideout.ArgumentError):
                wideout.Layer(W, names=bad)

    def test_pickle(self):
        with self.assertRaisesRegex(wideout.ArgumentError, "save it first"):
            pickle.dumps(wideout.build(W, b, method="screen"))
        ix = wideout.build(W, b, method="screen")
        ix.save(scratch("pickled.index"))
        again = pickle.loads(pickle.dumps(ix))
        np.testing.assert_array_equal(again.search(queries[:9], 3)[1], ix.search(queries[:9], 3)[1])
        e = ix.evaluate(queries[:50], labels[:50], timing=False)
        planned = wideout.Evaluation({**e, "exact_share": 1.0}, {**ix.info, "full_from": 9})
        self.assertIn("\nquality is that of batches of 1,024, which FULL answers: batch=1 judges the cells\n", str(planned))
        self.assertNotIn("which FULL answers", str(e))
        self.assertEqual(str(pickle.loads(pickle.dumps(e))), str(e))

    def test_bad_files(self):
        with self.assertRaises(OSError) as caught:
            wideout.open(scratch("nothing here"))
        self.assertEqual((caught.exception.status, caught.exception.about), ("io", "index"))
        self.assertIn("nothing here: ", str(caught.exception))
        path = scratch("saved.index")
        index().save(path)
        with open(path, "rb") as file:
            data = bytearray(file.read())
        data[-5] ^= 1
        with open(scratch("damaged"), "wb") as file:
            file.write(data)
        with self.assertRaises(wideout.ChecksumError):
            wideout.open(scratch("damaged"))
        with open(scratch("short"), "wb") as file:
            file.write(data[:100])
        with self.assertRaises(wideout.FormatError) as caught:
            wideout.open(scratch("short"))
        self.assertIsInstance(caught.exception, ValueError)
        with self.assertRaises(wideout.FileError):
            index().save("/proc/none/index")
        for bad in (None, 3, "a\0b"):
            with self.assertRaises((TypeError, ValueError)):
                wideout.open(bad)


class Layers(unittest.TestCase):
    def test_arrays(self):
        layer = wideout.Layer(W)
        self.assertEqual((layer.m, layer.d, layer.info["has_bias"]), (*W.shape, False))
        for bad_w, bad_b in [(W[0], None), (W, b[1:]), (W, W), (W[:, :0], None), (W[:0], None), (W.astype(int), None)]:
            with self.assertRaises(wideout.ArgumentError):
                wideout.Layer(bad_w, bad_b)
        with self.assertRaisesRegex(wideout.Error, "finite"):
            wideout.build(np.full((50, 4), np.nan, np.float32), method="screen")
        for form in (W.astype(np.float64), np.asfortranarray(W), W[::-1][::-1], W.astype(">f4"), W.tolist()):
            np.testing.assert_array_equal(
                wideout.build(form, b, method="full").search(queries[:9], 3)[1],
                index(method="full").search(queries[:9], 3)[1],
            )

    def test_no_copy(self):
        """float32 in C order is read where it lies."""
        weight, bias, q = W.copy(), b.copy(), queries[:9].copy()
        self.assertTrue(np.shares_memory(wideout.Log(q, labels[:9]).queries, q))
        ix = wideout.build(weight, bias, method="full")
        before = ix.score(q, [3, 4])
        weight[3], bias[4] = 0, bias[4] + 1
        np.testing.assert_array_equal(ix.score(q, [3])[:, 0], bias[3])
        np.testing.assert_allclose(ix.score(q, [4])[:, 0], before[:, 1] + 1, rtol=1e-4, atol=1e-4)

    def test_files(self):
        np.save(scratch("W.npy"), W)
        np.save(scratch("b.npy"), b)
        layer = wideout.open_layer(scratch("W.npy"), bias_path=scratch("b.npy"))
        self.assertTrue(layer.info["has_bias"])
        again = pickle.loads(pickle.dumps(layer))
        np.testing.assert_array_equal(
            wideout.build(again, method="full").search(queries[:9], 3)[1],
            index(method="full").search(queries[:9], 3)[1],
        )
        self.assertEqual(wideout.build(scratch("W.npy"), method="full").m, M)
        golden = wideout.Layer.open(os.path.join(GOLDEN, "layer.safetensors"))
        self.assertEqual(golden.info["weight_name"], "weight")
        with self.assertRaisesRegex(wideout.Error, "nosuch"):
            wideout.Layer.open(os.path.join(GOLDEN, "layer.safetensors"), weight_name="nosuch")
        with self.assertRaises(wideout.ArgumentError):
            wideout.Layer.open(scratch("W.npy"), verify="much")
        with self.assertRaises(wideout.ArgumentError):
            wideout.Layer(scratch("W.npy"))
        with self.assertRaises(wideout.ArgumentError):
            pickle.dumps(wideout.Layer(W))


class Logs(unittest.TestCase):
    def test_writer(self):
        path = scratch("train.log")
        with wideout.LogWriter(path, d=16) as log:
            for i in range(0, 1000, 100):
                log.append(queries[i : i + 100], labels[i : i + 100])
            log.append(queries[1000], labels[1000])
            self.assertEqual((log.n, log.closed), (1001, False))
            self.assertFalse(os.path.exists(path))
        read = wideout.open_log(path)
        np.testing.assert_array_equal(read.queries, queries[:1001])
        self.assertEqual((len(read), read.n, read.d), (1001, 1001, 16))
        own = wideout.Log(queries[:1001], labels[:1001])
        for log in (read, own, path):
            np.testing.assert_array_equal(
                wideout.build(W, b, log, method="popular").search(queries[:20], 5)[1],
                wideout.build(W, b, queries[:1001], labels[:1001], method="popular").search(queries[:20], 5)[1],
            )
        e = index().evaluate(path, timing=False)
        self.assertEqual(str(e), str(index().evaluate(own, timing=False)))

    def test_npz(self):
        """Labels in numpy's archives, and in scipy's."""
        bare, expected = scratch("queries.npy"), wideout.build(W, b, queries, labels, method="popular").search(queries[:9], 5)[1]
        np.save(bare, queries)
        np.savez_compressed(scratch("one.npz"), labels)
        names = ["one.npz"]
        try:
            import scipy.sparse as sparse

            flags = sparse.csr_matrix((np.ones(len(labels)), (np.arange(len(labels)), labels)), (len(labels), M))
            sparse.save_npz(scratch("csr.npz"), flags)
            names.append("csr.npz")
            sparse.save_npz(scratch("narrow.npz"), flags[:, : M - 3])
            with self.assertRaisesRegex(wideout.ArgumentError, f"column for each of the {M} classes"):
                wideout.build(W, b, bare, scratch("narrow.npz"), method="popular")
        except ImportError:
            pass
        for name in names:
            log = wideout.open_log(bare, scratch(name))
            self.assertEqual((log.has_labels, log.path), (True, bare))
            for ix in (wideout.build(W, b, log, method="popular"), wideout.build(W, b, bare, scratch(name), method="popular")):
                np.testing.assert_array_equal(ix.search(queries[:9], 5)[1], expected)
        with self.assertRaisesRegex(wideout.ArgumentError, "labels are of"):
            np.savez(scratch("short.npz"), labels[:5])
            wideout.open_log(bare, scratch("short.npz"))
        for name in sorted(os.listdir(GOLDEN)):
            if name.startswith("labels-bad") and name.endswith(".npz"):
                with self.subTest(name), self.assertRaises(wideout.Error):
                    wideout.open_log(bare, os.path.join(GOLDEN, name))
        with open(scratch("one.npz"), "rb") as file:
            packed = file.read()
        for at in (5, len(packed) // 2, len(packed) - 5):
            with open(scratch("cut.npz"), "wb") as file:
                file.write(packed[:at])
            with self.assertRaisesRegex(wideout.FormatError, "cut.npz: the archive has no labels"):
                wideout.open_log(bare, scratch("cut.npz"))
        with self.assertRaises(wideout.FileError):
            wideout.open_log(bare, scratch("nowhere.npz"))

    def test_npz_that_is_damaged(self):
        """What numpy, scipy and zipfile raise of one is a sentence too, whatever it is."""

        def member(header, data=bytes(40)):
            text = header.encode() + b"\n"
            return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data

        longs = "{'descr': '<i8', 'fortran_order': False, 'shape': %s, }"
        bare = scratch("five.npy")
        np.save(bare, queries[:5])
        for kind, sentence, parts in (
            (wideout.FormatError, "the archive has no labels: ", {"a": member("{'descr': ('<i8', ")}),  # tokenize
            (wideout.FormatError, "the archive has no labels: ", {"a": member(longs % f"({10**24},)")}),  # too large a number
            (wideout.OutOfMemory, "there is no memory for what the archive says", {"a": member(longs % f"({10**14},)")}),
            (wideout.FormatError, "the archive has no labels: .* is no array of numpy's$", {"a": b"hello"}),
            (wideout.FormatError, "the archive has no labels: ", {"format": member(longs % "(1,)"), "shape": b""}),
        ):
            with zipfile.ZipFile(scratch("odd.npz"), "w") as archive:
                for name, data in parts.items():
                    archive.writestr(name + ".npy", data)
            with self.subTest(parts), self.assertRaisesRegex(kind, f"odd.npz: {sentence}") as caught:
                wideout.open_log(bare, scratch("odd.npz"))
            self.assertEqual(caught.exception.about, "labels")
        for at, value in ((10, 12), (8, 1)):  # a method that nobody knows; encrypted
            np.savez(scratch("odd.npz"), labels[:5])
            with open(scratch("odd.npz"), "r+b") as file:
                data = file.read()
                for start, shift in ((data.index(b"PK\1\2"), 0), (0, 2)):
                    file.seek(start + at - shift)
                    file.write(bytes([value]))
            with self.assertRaisesRegex(wideout.FormatError, "odd.npz: the archive has no labels: "):
                wideout.open_log(bare, scratch("odd.npz"))

    def test_what_is_no_path(self):
        """A number is no file that is open already."""
        np.save(scratch("five.npy"), queries[:5])
        with open(scratch("five.npy"), "rb") as file:
            for bad in (file.fileno(), labels[:5], [1]):
                for use in (
                    lambda: wideout.open(bad),
                    lambda: wideout.open_layer(bad),
                    lambda: wideout.open_log(bad),
                    lambda: wideout.open_log(scratch("five.npy"), bad),
                    lambda: wideout.LogWriter(bad, d=3),
                    lambda: index().save(bad),
                ):
                    with self.assertRaises(TypeError):
                        use()
            self.assertEqual(len(file.read()), os.path.getsize(scratch("five.npy")))

    def test_journal(self):
        """What a service has learned from is a log as any other."""
        path = os.path.join(GOLDEN, "log.journal")
        log = wideout.open_log(path)
        self.assertEqual((log.n, log.d, log.queries.shape, log.has_labels), (5, 3, (5, 3), None))
        rows = np.eye(13, log.d, dtype=np.float32)
        ids = wideout.build(rows, None, path, method="popular", popular=13).search(log.queries, 9)[1]
        self.assertTrue((ids[:, 0] >= 0).all())
        np.savez(scratch("more.npz"), np.arange(log.n))
        with self.assertRaisesRegex(wideout.ArgumentError, "a log has its own labels"):
            wideout.open_log(path, scratch("more.npz"))

    def test_appended_in_pieces(self):
        from unittest import mock

        files = []
        ragged = [[i % 7] * (i % 3) for i in range(1000)]
        for name, step in (("whole.log", 1 << 24), ("pieces.log", 16 * 7)):
            with mock.patch("wideout._log._AT_ONCE", step), wideout.LogWriter(scratch(name), d=16) as log:
                log.append(queries[:1000], ragged)
                log.append(queries[1000:1005], labels[1000:1005])
            self.assertEqual(log.n, 1005)
            with open(scratch(name), "rb") as file:
                files.append(file.read())
        self.assertEqual(*files)

    def test_not_finite(self):
        """An index would refuse the whole log."""
        with wideout.LogWriter(scratch("finite.log"), d=16, labels=False) as log:
            log.append(queries[:5])
            for bad in (np.nan, np.inf):
                odd = queries[:9].copy()
                odd[3, 2] = bad
                with self.assertRaisesRegex(wideout.ArgumentError, "query 8 has a number that is not finite"):
                    log.append(odd)
            self.assertEqual(log.n, 5)

    def test_labels_by_another_name(self):
        """Anyone's safetensors: what is not read is told of."""
        y = labels.astype(np.int64)
        for name, shape, told in (("targets", [len(y)], True), ("label", [len(y), 1], True), ("step", [1], False)):
            data = queries.tobytes() + y.tobytes()[: 8 * shape[0]]
            header = json.dumps(
                {
                    "queries": {"dtype": "F32", "shape": list(queries.shape), "data_offsets": [0, queries.nbytes]},
                    name: {"dtype": "I64", "shape": shape, "data_offsets": [queries.nbytes, len(data)]},
                }
            ).encode()
            with open(scratch("theirs.log"), "wb") as file:
                file.write(struct.pack("<Q", len(header)) + header + data)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                log = wideout.open_log(scratch("theirs.log"))
            self.assertIs(log.has_labels, False)
            texts = [str(w.message) for w in caught]
            self.assertEqual(len(texts), told, texts)
            if told:
                self.assertIn(f"has no labels: the tensor '{name}' is not read", texts[0])

    def test_views_outlive_the_log(self):
        view = wideout.Log(queries.astype(np.float64)).queries
        np.testing.assert_array_equal(view, queries)
        with self.assertRaises(ValueError):
            view[0, 0] = 1

    def test_given_up(self):
        path = scratch("old.log")
        with wideout.LogWriter(path, d=16, labels=False) as log:
            log.append(queries[:10])
        with self.assertRaises(ZeroDivisionError), wideout.LogWriter(path, d=16) as log:
            log.append(queries, labels)
            raise ZeroDivisionError
        self.assertEqual(wideout.open_log(path).n, 10)
        self.assertTrue(log.closed)
        with self.assertRaises(wideout.ClosedError):
            log.append(queries, labels)
        with self.assertRaises(wideout.ClosedError):
            log.finish()
        log.discard()
        self.assertEqual([name for name in os.listdir(scratch("")) if name.startswith("old.log")], ["old.log"])

    def test_bad(self):
        with wideout.LogWriter(scratch("bad.log"), d=16) as log:
            for bad_q, bad_y in [(queries[:, :3], labels), (queries, labels[1:]), (queries, None)]:
                with self.assertRaises(wideout.ArgumentError):
                    log.append(bad_q, bad_y)
            with self.assertRaises(wideout.ArgumentError):
                pickle.dumps(log)
            for end in (3, 1, -1):
                with self.assertRaisesRegex(wideout.ArgumentError, f"labels end at {end}, and there are 2"):
                    log._append(queries[:2], np.array([0, 0, end]), np.array([1, 2], np.int32))
            flags = np.zeros((2, 40), int)
            with self.assertRaisesRegex(wideout.ArgumentError, r"shape \(2, 40\) and are 0 or 1: .* make flags bool"):
                log.append(queries[:2], flags)
            log.append(queries[:2], [[], [1, 2]])
            self.assertEqual(log.n, 2)
            log.append(queries[:2], flags == 1)
            log.append(queries[:2], flags[:, :5])
            self.assertEqual(log.n, 6)
        with self.assertRaises(wideout.ArgumentError):
            wideout.LogWriter(scratch("bad.log"), d=0)
        with self.assertRaises(wideout.FileError):
            wideout.LogWriter("/proc/none/log", d=3)
        with self.assertRaises(wideout.ArgumentError):
            wideout.Log(queries[0])
        with self.assertRaises(wideout.ArgumentError):
            pickle.dumps(wideout.Log(queries))


if __name__ == "__main__":
    unittest.main()
