"""Shared by the tests: one small layer and its log, indexes of it, a scratch folder."""

import atexit
import functools
import os
import shutil
import tempfile

import numpy as np

import wideout

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GOLDEN = os.path.join(ROOT, "tests", "golden")
SCRATCH = tempfile.mkdtemp()
_owner = os.getpid()
atexit.register(lambda: os.getpid() == _owner and shutil.rmtree(SCRATCH, ignore_errors=True))

W, b, queries, labels = wideout.example()
M, D = W.shape


def scratch(name):
    return os.path.join(SCRATCH, name)


@functools.cache
def index(**options):
    """One of each kind: tests do not close these."""
    options = options or {"method": "evidence", "K": 4, "L": 2, "iterations": 20}
    return wideout.build(W, b, queries, labels, **options)


def full_best(q, k, bias=None):
    """The k best by numpy: scores and ids, ties to the lower id."""
    logits = np.atleast_2d(q).astype(np.float64) @ W.T.astype(np.float64) + b
    if bias is not None:
        logits = logits + bias
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(logits, ids, 1), ids
