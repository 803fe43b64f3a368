"""A small made-up layer and its log, for the examples in the documents."""

from __future__ import annotations

import numpy as np


def example(
    m: int = 2000, d: int = 16, n: int = 4000, seed: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(W, b, queries, labels): classes in families, queries near the rows of their labels, some labels more often.

    >>> import wideout
    >>> [x.shape for x in wideout.example()]
    [(2000, 16), (2000,), (4000, 16), (4000,)]
    """
    rng = np.random.default_rng(seed)
    families = rng.uniform(-1, 1, (40, d))
    W = families[np.arange(m) % 40] + rng.uniform(-0.5, 0.5, (m, d))
    b = rng.uniform(-0.25, 0.25, m)
    labels = ((m - 1) * rng.uniform(0, 1, n) ** 3).astype(np.int64)
    queries = W[labels] + rng.uniform(-0.25, 0.25, (n, d))
    return W.astype(np.float32), b.astype(np.float32), queries.astype(np.float32), labels
