"""Collecting a log: what reaches a layer of a torch network while it runs as it always does.

Without max_queries each batch goes straight to the file. With it, a sample of so many rows is held in memory and
written at the end: Vitter's algorithm R, with one random number a query, so that batches of other sizes give the same
sample.
"""

from __future__ import annotations

import math
import operator
import os
import warnings
from typing import Any, Callable

import numpy as np

from ._arrays import is_tensor, refuse_kind, refuse_short
from ._errors import argument_error
from ._labels import of_scalars, to_csr
from ._log import LogWriter

_PIECE = 4096  #: queries that the sample is written in at once


class _Sample:
    """At most `limit` queries of all that come, each with the same chance."""

    def __init__(self, limit: int, d: int, seed: int) -> None:
        self.limit, self.seen = limit, 0
        self.rows = np.empty((0, d), np.float32)
        self.labels: list[np.ndarray | None] = []
        self.places = np.empty(0, np.int64)  #: which query of all that came a row is
        self.random = np.random.Generator(np.random.PCG64(seed))

    def _grow(self, n: int) -> None:
        if n > len(self.rows):
            room = min(self.limit, max(n, 2 * len(self.rows)))
            self.rows = np.concatenate([self.rows, np.empty((room - len(self.rows), self.rows.shape[1]), np.float32)])
            self.places = np.concatenate([self.places, np.empty(room - len(self.places), np.int64)])
            self.labels += [None] * (room - len(self.labels))

    def add(self, rows: np.ndarray, indptr: np.ndarray | None, ids: np.ndarray | None) -> None:
        at = self.seen + np.arange(len(rows))
        drawn = (self.random.random(len(rows)) * (at + 1)).astype(np.int64)
        slots = np.where(at < self.limit, at, drawn)
        # Of several that fall into one place the last stays.
        slots, backwards = np.unique(slots[::-1], return_index=True)
        kept = (len(rows) - 1 - backwards)[slots < self.limit]
        slots = slots[slots < self.limit]
        self.seen += len(rows)
        self._grow(min(self.seen, self.limit))
        self.rows[slots] = rows[kept]
        self.places[slots] = at[kept]
        if indptr is not None and ids is not None:
            for slot, row in zip(slots.tolist(), kept.tolist()):
                self.labels[slot] = ids[indptr[row] : indptr[row + 1]].copy()

    def write(self, writer: LogWriter) -> None:
        """In the order in which they came."""
        order = np.argsort(self.places[: min(self.seen, self.limit)])
        for begin in range(0, len(order), _PIECE):
            piece = order[begin : begin + _PIECE]
            labels = [self.labels[i] for i in piece] if writer.has_labels else None
            writer.append(self.rows[piece], labels)


def _flags(a: np.ndarray, m: int) -> np.ndarray:
    """(n, m) of 0 and 1 in floats, as binary_cross_entropy takes them, as bool."""
    if a.dtype != np.bool_ and not ((a == 0) | (a == 1)).all():
        raise argument_error(
            "targets", f"targets for {m:,} classes must be 0 or 1: a log has labels, not shares of them"
        )
    return a.astype(np.bool_)


def _to_ids(targets: Any, shape: tuple[int, ...], m: int, ignore: int) -> tuple[Any, np.ndarray | None]:
    """Targets as to_csr takes them, one entry a query, and which queries count; None: all."""
    n = math.prod(shape)
    targets = of_scalars(targets, "targets")
    if hasattr(targets, "tocsr") or (isinstance(targets, (list, tuple)) and targets and not np.isscalar(targets[0])):
        return targets, None
    if is_tensor(targets):
        refuse_kind(targets, "targets", anywhere=True)
        refuse_short(targets, "targets")
    a = targets.detach().cpu() if is_tensor(targets) else targets
    a = np.asarray(a.float() if is_tensor(a) and a.is_floating_point() else a)
    wrong = argument_error("targets", f"targets have shape {a.shape}, and the queries {shape}")
    if a.dtype.kind in "fb":
        if a.ndim == 0 or a.shape[-1] != m or a.size != n * m:
            raise argument_error(
                "targets",
                f"targets must be ids of classes, or 0 and 1 for each of {m:,}, not {a.dtype} of shape {a.shape}",
            )
        if a.shape[:-1] not in (shape, (n,)):
            raise wrong
        return _flags(a.reshape(n, m), m), None
    # Only shapes in which the queries come in their order: as many numbers in another shape may be transposed.
    if a.shape in ((n,), (n, 1), shape, (*shape, 1)):
        a = a.reshape(n)
        return a[a != ignore], a != ignore
    if a.shape[:-1] not in (shape, (n,)) or a.ndim < 2:
        raise wrong
    return a.reshape(n, a.shape[-1]), None


def flat_rows(x: Any, d: int) -> np.ndarray:
    """A tensor (..., d) as an array (n, d) of float32, which may be the tensor's own memory."""
    refuse_kind(x, "queries", anywhere=True)
    if x.ndim == 0 or x.shape[-1] != d:
        raise argument_error("queries", f"queries have shape {tuple(x.shape)}, and the layer takes {d} numbers each")
    refuse_short(x, "queries")
    return x.detach().reshape(-1, d).float().cpu().numpy()


def with_labels(
    rows: np.ndarray, shape: tuple[int, ...], targets: Any, m: int, ignore: int = -100
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """The queries that count, and their labels: rows (n, d), indptr (n+1), ids. `shape` is what n was."""
    targets, counts = _to_ids(targets, shape, m, ignore)
    if counts is not None:
        rows = rows[counts]
    indptr, ids = to_csr(targets, len(rows), m)
    if ids is not None and ids.size and int(ids.max()) >= m:
        raise argument_error("targets", f"label {int(ids.max())} is no class: the layer has {m:,}, counted from 0")
    return np.ascontiguousarray(rows), indptr, ids


class collect:
    """Writes a log of what reaches a layer, around an ordinary evaluation loop:

        with wideout.collect(model.head, "train.log") as log:
            for x, y in loader:
                model(x)
                log.labels(y)

    layer: a torch module with weights (m, d), called with its queries first: nn.Linear, or a WideLinear. Whatever
    device and float type they have, the log has float32. Run the network in eval mode, without gradients.

    log.labels(targets) comes after each batch, one target for each query: ids of any shape that the queries have,
    (batch,) or (batch, time); ids (..., l), up to l each, -1 and -100 for none; 0 and 1 for each class (..., m); lists
    of lists; scipy.sparse. Queries whose only target is ignore_index are left out, as cross_entropy does. targets: a
    function that returns the same, called as each batch passes, where the loop is not yours. labels=False: a log
    without labels.

    max_queries: a seeded sample of at most so many, held in memory until the end; None: all, straight to the file.
    bf16: queries are rounded, which halves the file.

    The file appears when the `with` ends, complete; where it ends by an exception there is none, and an old one stays.
    Queries with NaN or infinite numbers are left out, and counted: a warning says so at the end.
    """

    n: int  #: queries so far, sampled or not
    not_finite: int  #: queries that were left out

    def __init__(
        self,
        layer: Any,
        path: str | os.PathLike,
        *,
        targets: Callable[[], Any] | None = None,
        labels: bool = True,
        ignore_index: int = -100,
        max_queries: int | None = None,
        seed: int = 0,
        bf16: bool = False,
    ) -> None:
        weight: Any = getattr(layer, "weight", None)
        if not is_tensor(weight) or weight.ndim != 2 or not hasattr(layer, "register_forward_pre_hook"):
            raise argument_error(
                "layer",
                f"collect takes a torch module with weights (m, d), such as nn.Linear, not {type(layer).__name__}",
            )
        for name, given, hint in (("labels", labels, ": they go to log.labels, or come from targets"), ("bf16", bf16, "")):
            if not isinstance(given, (bool, int, np.bool_)):
                raise argument_error(name, f"{name} takes True or False, not {type(given).__name__}{hint}")
        if targets is not None and (not labels or not callable(targets)):
            raise argument_error(
                "targets",
                "targets takes a function that returns the targets of a batch"
                if labels
                else "targets are labels: leave one of targets and labels=False out",
            )
        try:
            self._limit = None if max_queries is None else operator.index(max_queries)
            self._seed = operator.index(seed)
        except TypeError:
            raise argument_error("max_queries", "max_queries and seed take whole numbers") from None
        if (self._limit is not None and self._limit < 1) or self._seed < 0:
            raise argument_error("max_queries", "max_queries takes a number above 0, and seed one from 0")
        self._layer, self._path, self._bf16 = layer, path, bf16
        self._labels, self._targets, self._ignore = bool(labels), targets, ignore_index
        self._m, self._d = weight.shape
        self._hook: Any = None
        self.n = self.not_finite = 0

    # ---- The loop -------------------------------------------------------------------------------------------------

    def __enter__(self) -> "collect":
        if self._hook is not None:
            raise argument_error("collect", "this collects already: make another for another log")
        self._writer = LogWriter(self._path, self._d, labels=self._labels, bf16=self._bf16)
        self._sample = None if self._limit is None else _Sample(self._limit, self._d, self._seed)
        self._waiting: tuple[np.ndarray, tuple[int, ...]] | None = None
        self.n = self.not_finite = 0
        self._hook = self._layer.register_forward_pre_hook(self._take)
        return self

    def labels(self, targets: Any) -> None:
        """The labels of the batch that just passed."""
        if self._hook is None:
            raise argument_error("labels", "nothing is collected yet: say `with wideout.collect(...) as log:`")
        if not self._labels:
            raise argument_error("labels", "this log is collected with labels=False")
        if self._waiting is None:
            raise argument_error(
                "labels",
                "labels come from targets"
                if self._targets
                else "log.labels comes after the layer ran, once for each batch: none waits for its labels",
            )
        rows, shape = self._waiting
        self._waiting = None
        self._store(*with_labels(rows, shape, targets, self._m, self._ignore))

    def __exit__(self, kind: object, *rest: object) -> None:
        if self._hook is None:
            raise argument_error("collect", "nothing is collected: say `with wideout.collect(...) as log:`")
        self._hook.remove()
        self._hook = None
        try:
            if kind is None:
                self._finish()
        finally:
            self._writer.discard()

    # ---- Its parts ------------------------------------------------------------------------------------------------

    def _take(self, module: Any, inputs: tuple[Any, ...]) -> None:
        """The hook: called before the layer runs."""
        if not inputs or not is_tensor(inputs[0]):
            raise argument_error("layer", "collect needs the layer to be called with a tensor, not by keyword")
        x = inputs[0]
        rows = flat_rows(x, self._d)
        if self._waiting is not None:
            raise argument_error(
                "labels",
                f"the layer ran again, and the {len(self._waiting[0]):,} queries before have no labels: call "
                "log.labels(targets) after each batch, or say labels=False",
            )
        if not self._labels:
            self._store(rows, None, None)
        elif self._targets is not None:
            self._store(*with_labels(rows, tuple(x.shape[:-1]), self._targets(), self._m, self._ignore))
        else:
            self._waiting = rows.copy(), tuple(x.shape[:-1])  # the network may go on working in place

    def _store(self, rows: np.ndarray, indptr: np.ndarray | None, ids: np.ndarray | None) -> None:
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            if indptr is not None and ids is not None:
                lengths = np.diff(indptr)
                ids = ids[np.repeat(finite, lengths)]
                indptr = np.concatenate([[0], np.cumsum(lengths[finite])]).astype(np.int64)
            self.not_finite += int(len(rows) - finite.sum())
            rows = rows[finite]
        self.n += len(rows)
        if self._sample is not None:
            self._sample.add(rows, indptr, ids)
        else:
            self._writer._append_pieces(rows, indptr, ids)

    def _finish(self) -> None:
        if self._waiting is not None:
            raise argument_error(
                "labels",
                f"the last {len(self._waiting[0]):,} queries have no labels: call log.labels(targets) after each "
                "batch, or say labels=False",
            )
        if not self.n and self.not_finite:
            raise argument_error("layer", f"all {self.not_finite:,} queries have numbers that are not finite")
        if not self.n:
            raise argument_error("layer", "no query was collected: the layer did not run, or every target was ignored")
        if self.not_finite:
            warnings.warn(
                f"{self.not_finite:,} of {self.n + self.not_finite:,} queries were left out: they have numbers that are "
                "not finite",
                stacklevel=3,
            )
        if self._sample is not None:
            self._sample.write(self._writer)
        self._writer.finish()
