"""The index: searching, judging, saving."""

from __future__ import annotations

import os
import tempfile
import warnings
from typing import Any, Sequence

import numpy as np

from . import _core, _report
from ._errors import Error, argument_error
from ._layer import FilePath, Layer
from ._log import Log, log_of
from ._progress import Progress, reporting


class Index(_core.Index):
    """A wide layer's fast way: made by build or open, shared by any number of threads.

    >>> import wideout
    >>> W, b, queries, labels = wideout.example()
    >>> ix = wideout.build(W, b, queries, labels, method="evidence", K=4, L=2, iterations=20)
    >>> scores, ids = ix.search(queries[:100], k=5)
    >>> scores.shape, ids.dtype
    ((100, 5), dtype('int32'))
    >>> bool((ix.score(queries[:100], ids) == scores).all())
    True
    >>> ix.search(queries[0], 3, forbid=[ids[0, 0]])[1][0] == ids[0, 1]
    True
    >>> ix.close()
    >>> ix.search(queries[0])
    Traceback (most recent call last):
    wideout.ClosedError: the index is closed
    """

    _unjudged = ""  # why it has no figures of its quality, where the log was too short
    path: str | None = None  #: the file that it was opened from, or saved to last

    # ---- Answers ----------------------------------------------------------------------------------------------

    def score(self, q: Any, ids: Any) -> Any:
        """The logits of given classes, as exact as the index's rows are.

        One query (d,) and ids (j,) give (j,); queries (n, d) give (n, j), with ids (j,) for all of them or (n, j).
        """
        return self._score(q, ids)

    def log_partition(self, q: Any, *, by: str = "cells", prior: bool = True, threads: int | None = None) -> Any:
        """log Z of each query: score - log Z is the logarithm of a class's probability among all m.

        Estimated by the cells of an index that was built with partition=True, exact with by='full'. NaN where a query
        is not finite. One query gives a number, many an array (n,).
        """
        return self._log_partition(q, by, prior, threads)

    def sample(
        self,
        q: Any,
        *,
        k: int = 50,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int = 0,
        position: int = 0,
        **search: Any,
    ) -> Any:
        """Draws a class for each query, among the k best: with exp(score / temperature) for odds, among the first
        top_k, and of these among the fewest that have top_p of the probability. -1 where a query has no answer.

        Query i draws by number position + i of the seed's: the same seed and position draw the same class. What else
        search takes may be given too, but for softmax scores.
        """
        if search.get("scores") == "softmax" or search.get("out") is not None or search.get("stats"):
            raise argument_error("scores", "sample takes logits or logprob, and neither out nor stats")
        scores, ids = self.search(q, k, **search)
        return _core.sample(ids, scores, temperature, top_p, top_k, seed, position)

    # ---- Judging ----------------------------------------------------------------------------------------------

    def evaluate(
        self,
        queries: Any,
        labels: Any = None,
        *,
        ks: Sequence[int] = (1, 5),
        batches: Sequence[int] = (1, 1024),
        batch: int = 1024,
        max_queries: int = 0,
        rounds: int = 0,
        probes: int = 0,
        exact_fallback: bool = False,
        timing: bool = True,
        prior: bool = True,
        seed: int = 0,
        threads: int = 0,
        layer: Layer | None = None,
        progress: Progress = None,
    ) -> "Evaluation":
        """Judges the index on queries that it was not built from, and times it beside FULL, the exact layer.

        queries and labels as build takes them: arrays, a Log or a file. Without labels there is no P@k, but the share
        of FULL's own best. timing=False: quality only. layer: exact rows for FULL, of an index that has none; an index
        that was built here, or opened with a layer, has its own. Print the result for a table. Let nothing else run
        meanwhile.
        """
        log = log_of(queries, labels, self.m, "labels")
        if log is None:
            raise argument_error("queries", "evaluate needs queries")
        with reporting(progress) as fn:
            found = self._evaluate(
                log,
                self.layer if layer is None else layer,
                ks,
                batches,
                batch,
                max_queries,
                rounds,
                probes,
                exact_fallback,
                timing,
                prior,
                seed,
                threads,
                fn,
            )
        if hint := _report.doubtful_labels(log, found["n"] - found["without_label"], found["full_p_at_1"]):
            warnings.warn(hint, stacklevel=2)
        return Evaluation({"batch": batch, **found}, self._describe())

    # ---- What it is -------------------------------------------------------------------------------------------

    @property
    def info(self) -> dict[str, Any]:
        """What it is made of: method, m, d, cells, entries, index_bytes, full_from, full_to, ..."""
        return self._describe()

    @property
    def options(self) -> dict[str, Any]:
        """The options that it was built with: those that have a part in it."""
        return self._options()

    @property
    def curve(self) -> np.ndarray | None:
        """What the tuner tried, in that order: a record array with p_at_1, p_at_5, agreement, classes, us, met,
        chosen, `settings` in words, and more (docs/FORMAT.md). None of an index that was not tuned."""
        found = self._curve()
        if found is None:
            return None
        return _table(found[0], found[1], found[2])

    @property
    def tuning(self) -> dict[str, Any] | None:
        """The tuner's goal and what was proved: target, target5, target_agree, target_us, k, batch, queries, labelled,
        chosen (a row of the curve), proof ('hits', 'agreement', 'held-out', 'all-equal' or 'none'), provable (what the
        queries could show at best), held_out, needed, built_from, changed (classes that updates have added, replaced and
        removed since: all this is of before)."""
        found = self._curve()
        return None if found is None else found[3]

    @property
    def trace(self) -> np.ndarray | None:
        """What learning looked like (lss): a record array, or None."""
        found = self._trace()
        return None if found is None else _table(found[0], found[1], None)

    def __repr__(self) -> str:
        if self.closed:
            return "<wideout.Index, closed>"
        return f"<wideout.Index: {self._describe()['method']}, {self.m:,} classes, {self.d:,} dimensions>"

    def __str__(self) -> str:
        return repr(self) if self.closed else _report.index_text(self)

    # ---- Files ------------------------------------------------------------------------------------------------

    def save(self, path: FilePath) -> None:
        """Writes the index to a file, which appears complete or not at all."""
        self._save(path)
        self.path = os.path.abspath(os.fsdecode(path))

    def to_bytes(self) -> bytes:
        """What save would write, for who keeps an index inside something else.

        >>> import wideout
        >>> W, b, queries, labels = wideout.example()
        >>> data = wideout.build(W, b, method="screen").to_bytes()
        >>> wideout.Index.from_bytes(data)
        <wideout.Index: screen, 2,000 classes, 16 dimensions>
        """
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "index")
            self._save(path)
            with open(path, "rb") as file:
                return file.read()

    @classmethod
    def from_bytes(cls, data: Any, *, layer: Layer | None = None) -> "Index":
        """Opens the bytes of an index file: bytes, or an array of uint8, which must stay as it is and is not copied.
        layer: as in open."""
        try:
            return cls._open_bytes(data, layer)
        except Error:
            raise
        except (TypeError, ValueError, BufferError):  # who has bytes says in its own way that they cannot be had
            raise argument_error("data", f"data takes bytes in one piece, not {type(data).__name__}") from None

    def __enter__(self) -> "Index":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        if self.path is None:
            raise argument_error("index", "an index is pickled by its file's path: save it first")
        layer = self.layer if self.options["weights"] == "none" else None
        return _open_again, (self.path, layer)


def _open_again(path: str, layer: Layer | None) -> Index:
    return open_index(path, layer=layer)


def open_index(
    path: FilePath, *, layer: Any = None, verify: str = "all", progress: Progress = None
) -> Index:
    """Opens an index file, which is mapped and not read into memory.

    layer: a Layer, or the path of its file: needed where the index was built with weights='none'. It must be the one
    that the index was built for. verify: 'all', 'used' or 'none': how much of the file is compared with its checksums.
    """
    if isinstance(layer, (str, bytes, os.PathLike)):
        layer = Layer.open(layer, verify=verify)
    with reporting(progress) as fn:
        index = Index._open(path, layer, verify, fn)
    index.path = os.path.abspath(os.fsdecode(path))
    return index


def _table(names: list[str], rows: list[list[float]], settings: list[str] | None) -> np.ndarray:
    """Rows of numbers as a record array, the settings' words first."""
    fields: list[Any] = [(name, np.float64) for name in names]
    if settings is None:
        return np.rec.array([tuple(row) for row in rows], dtype=fields)
    longest = max(map(len, settings), default=1)
    lines: Any = [(text, *row) for text, row in zip(settings, rows)]
    return np.rec.array(lines, dtype=[("settings", f"U{max(longest, 1)}"), *fields])


class Evaluation(dict):
    """What evaluate found: a dict whose entries are attributes too, printed as a table. NaN stands for what does not
    apply. `timings` has a dict for each batch size, `agreement` the share of FULL's k best for each k."""

    def __init__(self, found: dict[str, Any], index: dict[str, Any]) -> None:
        super().__init__(found)
        self._index = index

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def headline_timing(self) -> dict[str, Any] | None:
        """The timing of the batch that was asked for."""
        return self["timings"][self["headline"]] if self["timings"] else None

    def __str__(self) -> str:
        return _report.evaluation_text(self, self._index)

    def __reduce__(self) -> Any:
        return Evaluation, (dict(self), self._index)
