"""Threads, forks, signals, the end of the interpreter, versions: what happens around an index."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy as np

import wideout
from data import D, ROOT, W, b, index, labels, queries, scratch


def python(code, **options):
    """Runs a program: its exit code, and what it printed."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False, **options)
    return done.returncode, done.stdout, done.stderr


class Threads(unittest.TestCase):
    def test_one_index(self):
        ix, expected, bad = index(), {}, []
        for k in (1, 5):
            expected[k] = ix.search(queries, k, threads=1)[1]

        def work(seed):
            rng = np.random.default_rng(seed)
            for _ in range(60):
                k, at = int(rng.choice([1, 5])), int(rng.integers(len(queries) - 1024))
                n = int(rng.choice([1, 7, 1024]))
                q = queries[at] if n == 1 else queries[at : at + n]
                found = ix.search(q, k, threads=int(rng.choice([1, 2])), by="cells")[1]
                if not np.array_equal(found, expected[k][at] if n == 1 else expected[k][at : at + n]):
                    bad.append((seed, at, n))

        workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        self.assertEqual(bad, [])

    def counted(self, use):
        """Seconds of a call, and what another thread counted in them."""
        stop, counted = threading.Event(), [0]

        def count():
            while not stop.is_set():
                counted[0] += 1
                time.sleep(0.0002)

        counter = threading.Thread(target=count)
        counter.start()
        before = counted[0]
        begin = time.perf_counter()
        use()
        seconds = time.perf_counter() - begin
        during = counted[0] - before
        stop.set()
        counter.join()
        return seconds, during

    def test_gil_is_released(self):
        """Another thread runs while FULL answers a batch."""
        ix = index(method="full")
        many = np.tile(queries, (10, 1))
        seconds, during = self.counted(lambda: ix.search(many, 5, threads=1))
        self.assertGreater(seconds, 0.01)
        self.assertGreater(during, 3)

    def test_gil_is_released_by_others(self):
        """Another thread runs while classes are drawn, and while names are copied."""
        ids = np.tile(np.arange(200, dtype=np.int32), (60000, 1))
        scores = np.zeros(ids.shape, np.float32)
        many = [f"class {i}" for i in range(400000)]
        rows = np.zeros((len(many), 1), np.float32)
        for use in (
            lambda: wideout._core.sample(ids, scores, 1.0, 0.9, 0, 1, 0),
            lambda: wideout.Layer(rows, names=many),
        ):
            seconds, during = self.counted(use)
            self.assertGreater(seconds, 0.01)
            self.assertGreater(during, 3)

    def test_close_while_searching(self):
        for _ in range(5):
            ix = wideout.build(W, b, method="full")
            ended = []

            def work(ix=ix, ended=ended):
                try:
                    while True:
                        ix.search(queries, 3, threads=1)
                except wideout.ClosedError:
                    ended.append(True)

            workers = [threading.Thread(target=work) for _ in range(3)]
            for w in workers:
                w.start()
            time.sleep(0.02)
            ix.close()
            for w in workers:
                w.join()
            self.assertEqual(ended, [True] * 3)


class Forks(unittest.TestCase):
    def test_child_searches(self):
        ix = index()
        expected = ix.search(queries, 5)[1]  # threads exist when it forks
        child = os.fork()
        if child == 0:
            try:
                same = all(np.array_equal(ix.search(queries, 5, threads=t)[1], expected) for t in (0, 1, 2))
                os._exit(0 if same else 3)
            finally:
                os._exit(4)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        np.testing.assert_array_equal(ix.search(queries, 5)[1], expected)

    def test_fork_while_others_search(self):
        ix, stop = index(), threading.Event()
        expected = ix.search(queries, 5)[1]

        def work():
            while not stop.is_set():
                ix.search(queries, 5)

        workers = [threading.Thread(target=work) for _ in range(2)]
        for w in workers:
            w.start()
        statuses = []
        for _ in range(10):
            child = os.fork()
            if child == 0:
                os._exit(0 if np.array_equal(ix.search(queries, 5)[1], expected) else 3)
            statuses.append(os.waitpid(child, 0)[1])
        stop.set()
        for w in workers:
            w.join()
        self.assertEqual(statuses, [0] * 10)

    def test_multiprocessing_by_path(self):
        index().save(scratch("shared.index"))
        code = f"""
import multiprocessing, numpy as np, wideout
def work(pair):
    ix, q = pair
    return ix.search(q, 3)[1]
if __name__ == "__main__":
    ix = wideout.open({scratch("shared.index")!r})
    q = np.ones((4, {D}), np.float32)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for found in pool.map(work, [(ix, q)] * 4):
            assert (found == ix.search(q, 3)[1]).all()
    print("same")
"""
        self.assertEqual(python(code), (0, "same\n", ""))


# Ctrl-C comes a second after the call has begun, however long all before that takes; what it then still does is told by
# the processor's time, because others may use the machine. Each call takes a minute of that, if it is not stopped. What
# is all zeros takes no memory.
LONG = """
import os, signal, threading, time, numpy as np, wideout
# A shell's background jobs ignore Ctrl-C, and Python then too.
signal.signal(signal.SIGINT, signal.default_int_handler)
begun, sent = threading.Event(), []
def interrupt():
    begun.wait()
    time.sleep(1)
    sent.append(time.process_time())
    os.kill(os.getpid(), signal.SIGINT)
SETUP
threading.Thread(target=interrupt, daemon=True).start()
try:
    begun.set()
    CALL
    print("ended")
except KeyboardInterrupt:
    more = time.process_time() - sent[0]
    print("interrupted" if more < 20 else f"{more:.0f} s of the processor's time after that")
"""
MADE = "W, b, queries, labels = wideout.example(m=20000, d=64, n=20000)"
WIDE = """
queries = np.zeros((70000, 256), np.float32)
ix = wideout.build(np.zeros((200000, 256), np.float32), None, method="full")
"""


class Signals(unittest.TestCase):
    def interrupt(self, setup, call):
        self.assertEqual(python(LONG.replace("SETUP", setup).replace("CALL", call))[:2], (0, "interrupted\n"))

    def test_build(self):
        self.interrupt(MADE, "wideout.build(W, b, queries, labels, max_time=100)")

    def test_evaluate(self):
        self.interrupt(MADE + "; ix = wideout.build(W, b, method='full')", "ix.evaluate(queries, rounds=100000)")

    def test_search(self):
        self.interrupt(WIDE, "ix.search(queries, 5)")

    def test_search_of_large_queries(self):
        """A query takes 2^30 multiply-adds: pieces are few of them."""
        large = """
queries = np.zeros((2000, 1024), np.float32)
ix = wideout.build(np.zeros((1000000, 1024), np.float32), None, method="full")
"""
        self.interrupt(large, "ix.search(queries, 5)")

    def test_score(self):
        long = """
queries = np.zeros((70000, 4096), np.float32)
ix = wideout.build(np.zeros((2000, 4096), np.float32), None, method="full")
"""
        self.interrupt(long, "ix.score(queries, np.arange(2000))")

    def test_log_partition(self):
        self.interrupt(WIDE, "ix.log_partition(queries, by='full')")


class Interpreter(unittest.TestCase):
    def test_shutdown(self):
        code = """
import atexit, threading, numpy as np, wideout
W, b, queries, labels = wideout.example()
ix = wideout.build(W, b, queries, labels, method="evidence", K=4, L=2, iterations=5)
writer = wideout.LogWriter("/tmp/never-finished.log", d=16)
class Late:
    def __del__(self, ix=ix, q=queries):
        ix.search(q, 3)
late = Late()
atexit.register(lambda: ix.search(queries, 3))
def work():
    while True:
        ix.search(queries, 3)
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
print("end")
"""
        for _ in range(3):
            code_, out, err = python(code)
            self.assertEqual((code_, out), (0, "end\n"), err)
        self.assertFalse(os.path.exists("/tmp/never-finished.log"))

    def test_main(self):
        done = subprocess.run([sys.executable, "-m", "wideout", "--version"], capture_output=True, text=True, check=True)
        self.assertRegex(done.stdout, rf"^wideout {re.escape(wideout.__version__)}, \w+, Python 3")
        wrong = subprocess.run([sys.executable, "-m", "wideout", "now"], capture_output=True, text=True, check=False)
        self.assertEqual((wrong.returncode, wrong.stdout), (2, ""))

    def test_leaks(self):
        """The same again and again needs no more memory."""
        import resource

        def once():
            ix = wideout.build(W, b, queries[:500], labels[:500], method="popular")
            ix.search(queries[:500], 3, stats=True, forbid=[1, 2], require=[3], bias=b)
            ix.score(queries[:5].astype(np.float64), [1])
            ix.evaluate(queries[:20], labels[:20], timing=False)
            for bad in ({"k": 0}, {"forbid": [-2]}, {"by": "x"}, {"out": 3}, {"nosuch": 1}):
                try:
                    ix.search(queries[:500], **bad)
                except (wideout.Error, TypeError):
                    pass

        for _ in range(20):
            once()
        before, blocks = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, sys.getallocatedblocks()
        for _ in range(200):
            once()
        self.assertLess(sys.getallocatedblocks() - blocks, 100)  # of Python's memory: less than one a time
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 20000)  # KiB; a layer has 128

    def test_objects_are_freed(self):
        """Arrays are held no longer than they are used."""
        q = queries[:100].copy()
        before = sys.getrefcount(q)
        ix = wideout.build(W, b, q, labels[:100], method="popular")
        for use in (lambda: ix.search(q), lambda: ix.search(q, k=0), lambda: ix.score(q, [1]), lambda: ix.evaluate(q, timing=False)):
            try:
                use()
            except wideout.Error:
                pass
        q.resize((50, D), refcheck=True)  # numpy refuses where a view of it is held
        self.assertEqual(sys.getrefcount(q), before)


class Versions(unittest.TestCase):
    def test_versions_agree(self):
        with open(os.path.join(ROOT, "include", "wideout.h"), encoding="utf-8") as file:
            parts = re.findall(r"#define WO_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", file.read())
        self.assertEqual(wideout.__version__, ".".join(parts))
        self.assertEqual(wideout._core.version, wideout.__version__)

    def test_other_python_files(self):
        """The package's files of one version, its extension of another."""
        folder = scratch("mixed")
        shutil.copytree(os.path.dirname(wideout.__file__), os.path.join(folder, "wideout"))
        path = os.path.join(folder, "wideout", "__init__.py")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(f'__version__ = "{wideout.__version__}"', '__version__ = "7.3.0"'))
        code, _, err = python("import wideout", env={**os.environ, "PYTHONPATH": folder})
        self.assertEqual(code, 1)
        self.assertIn("ImportError: wideout's Python files are of version 7.3.0, and its extension is of", err)


if __name__ == "__main__":
    unittest.main()
