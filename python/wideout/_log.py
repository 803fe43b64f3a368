"""Logs: the queries that a network sends to its wide layer, and their labels."""

from __future__ import annotations

import json
import os
import warnings
from typing import Any, cast

import numpy as np

from . import _core
from ._arrays import as_array, held, to_floats
from ._errors import ABOUTS, STATUSES, argument_error, make_error
from ._labels import to_csr
from ._layer import FilePath


#: Numbers that go to a file at once: 64 MiB, between which Ctrl-C is noticed
_AT_ONCE = 1 << 24


def _warn_of_other_names(path: FilePath, n: int) -> None:
    """Of a log file of n queries, which the library has opened, and found no labels in: what may be labels by another
    name is told of."""
    with open(path, "rb") as file:
        header = int.from_bytes(file.read(8), "little")
        if header > os.fstat(file.fileno()).st_size:
            return  # no safetensors
        text = file.read(header)
    try:
        tensors = json.loads(text)
        others = [
            name
            for name, tensor in tensors.items()
            if name != "__metadata__" and tensor["dtype"][0] in "IU" and tensor["shape"][:1] == [n]
        ]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return
    if others and "queries" in tensors:
        warnings.warn(
            f"{os.fsdecode(path)} has no labels: the tensor '{others[0]}' is not read, for theirs is called 'labels'",
            stacklevel=4,
        )


def _npz_labels(path: FilePath) -> Any:
    """Labels as to_csr takes them, of numpy's archive of one array or of what scipy.sparse.save_npz wrote; None: the file
    is another."""
    name = os.fspath(path)  # a whole number would be a file that is open already, and closed here
    try:
        with open(name, "rb") as file:
            if file.read(4) != b"PK\x03\x04":
                return None
    except OSError:
        return None  # the library says why
    try:
        with np.load(path) as archive:
            if len(archive.files) == 1:
                only = archive[archive.files[0]]
                if not isinstance(only, np.ndarray):
                    raise ValueError("what is in it is no array of numpy's")
                return only
        from scipy.sparse import load_npz  # it is scipy that writes the others

        matrix = load_npz(path)
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)  # scipy's own functions trust the numbers in the file
        return matrix
    except MemoryError:
        raise _of_archive(path, "memory", "there is no memory for what the archive says it has") from None
    except Exception as error:  # of a damaged archive nearly any: numpy's and scipy's readers, zipfile and tokenize
        why = str(error).strip().split("\n")[0] or type(error).__name__
        raise _of_archive(path, "format", f"the archive has no labels: {why}") from None


def _of_archive(path: FilePath, status: str, text: str) -> Exception:
    return make_error(STATUSES.index(status), ABOUTS.index("labels"), "", text, None, os.fsdecode(path))


class Log(_core.Log):
    """Queries (n, d), and labels in any of the forms that build takes, or None.

    Queries of float32 in C order are not copied.

    >>> import numpy as np, wideout
    >>> log = wideout.Log(np.zeros((2, 3), np.float32), [[4, 1], []])
    >>> log
    <wideout.Log of 2 queries with 3 dimensions, with labels>
    >>> log.queries.shape
    (2, 3)
    """

    has_labels: bool | None  #: whether any query has one; None: of a file, not looked at
    path: str | None

    def __new__(cls, queries: Any, labels: Any = None, *, m: int | None = None) -> "Log":
        if isinstance(queries, (str, bytes, os.PathLike)):
            raise argument_error("queries", "queries takes an array: open_log opens a file")
        array, _ = to_floats(queries, "queries")
        if array.ndim != 2:
            raise argument_error("queries", "queries have one dimension: a log has two, (n, d)")
        indptr, ids = to_csr(labels, len(array), m)
        self = cls._wrap(held(queries, array), indptr, ids)
        self.has_labels, self.path = ids is not None and len(ids) > 0, None
        return self

    @classmethod
    def open(cls, path: FilePath, labels: FilePath | None = None, *, m: int | None = None) -> "Log":
        """Opens a log file, anyone's safetensors with `queries` and `labels`, or queries as .npy.

        labels: the .npy file of their labels, or .npz (one array, or scipy.sparse), for queries that come without.
        m: how many classes there are: a matrix of labels must then have as many columns.
        """
        packed = None if labels is None else _npz_labels(labels)
        if packed is not None:
            bare = cls.open(path)
            if bare.has_labels is not False:
                raise argument_error("labels", "a log has its own labels: leave them out")
            self = cls(bare.queries, packed, m=m)
            self.path = bare.path
            return self
        self = cls._open(path, labels)
        self.has_labels = None if self._may_have_labels else False
        if self.has_labels is False:
            _warn_of_other_names(path, self.n)
        self.path = os.path.abspath(os.fsdecode(path))
        return self

    @property
    def queries(self) -> np.ndarray:
        """(n, d), float32, not to be written to; not copied."""
        view: Any = memoryview(cast(Any, self))  # of self numpy would keep to itself why there are none
        return np.asarray(view)

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        labels = {True: ", with labels", False: ", without labels", None: f", {self.path}"}[self.has_labels]
        return f"<wideout.Log of {self.n:,} queries with {self.d:,} dimensions{labels}>"

    def __reduce__(self) -> Any:
        raise argument_error("log", "a log is not pickled: pickle its arrays, or its path")


class LogWriter(_core.LogWriter):
    """Writes a log file, any number of queries at a time, in memory that does not grow.

    The file appears under its name, complete, when the `with` ends, or with `finish()`; where the `with` ends by an
    exception nothing is left behind, and an old file as it was.

    d: numbers in a query. labels: whether every query comes with its labels, perhaps none. n, n_labels: how many there
    will be, where that is known. bf16: queries are rounded, which halves the file.

    >>> import numpy as np, os, tempfile, wideout
    >>> path = os.path.join(tempfile.mkdtemp(), "train.log")
    >>> with wideout.LogWriter(path, d=3) as log:
    ...     for batch in range(4):
    ...         log.append(np.ones((2, 3), np.float32), [batch, -1])
    >>> wideout.open_log(path).n
    8
    """

    def __new__(
        cls,
        path: FilePath,
        d: int,
        *,
        labels: bool = True,
        n: int = 0,
        n_labels: int = 0,
        bf16: bool = False,
    ) -> "LogWriter":
        self = cls._create(path, d, labels, n, n_labels, bf16)
        self.has_labels = bool(labels)
        return self

    has_labels: bool

    def append(self, queries: Any, labels: Any = None) -> None:
        """Adds queries (n, d) or one (d,), and their labels in any of the forms that build takes."""
        array, _ = to_floats(queries, "queries")
        one = array.ndim == 1
        if (labels is not None) != self.has_labels:
            raise argument_error(
                "labels", "this log has labels: give them" if self.has_labels else "this log was made without labels"
            )
        if one:
            array = array.reshape(1, -1)
            labels = None if labels is None else [as_array(labels, "labels").reshape(-1)]
        for at in range(0, len(array), self._step()):
            finite = np.isfinite(array[at : at + self._step()]).all(axis=1)
            if not finite.all():
                place = self.n + at + int(np.argmin(finite))
                raise argument_error(
                    "queries", f"query {place} has a number that is not finite: no index is built from such a log"
                )
        self._append_pieces(array, *to_csr(labels, len(array)))

    def _step(self) -> int:
        return max(1, _AT_ONCE // self.d)

    def _append_pieces(self, queries: np.ndarray, indptr: np.ndarray | None, ids: np.ndarray | None) -> None:
        if len(queries) <= self._step():
            self._append(queries, indptr, ids)
            return
        for at in range(0, len(queries), self._step()):
            piece = queries[at : at + self._step()]
            if indptr is None or ids is None:
                self._append(piece, None, None)
            else:
                ends = indptr[at : at + len(piece) + 1]
                self._append(piece, ends - ends[0], ids[ends[0] : ends[-1]])

    def __enter__(self) -> "LogWriter":
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is not None:
            self.discard()
        elif not self.closed:
            self.finish()

    def __repr__(self) -> str:
        return f"<wideout.LogWriter of {os.fsdecode(self.path)}, {self.n:,} queries{', closed' if self.closed else ''}>"

    def __reduce__(self) -> Any:
        raise argument_error("log", "a log that is being written is not pickled")


def log_of(queries: Any, labels: Any, m: int, what: str) -> Log | None:
    """A log from what build was given: arrays, a Log or the path of a file."""
    if queries is None:
        if labels is not None:
            raise argument_error(what, "labels go with queries")
        return None
    if isinstance(queries, Log):
        if labels is not None:
            raise argument_error(what, "a log has its own labels: leave them out")
        return queries
    if isinstance(queries, (str, bytes, os.PathLike)):
        if labels is not None and not isinstance(labels, (str, bytes, os.PathLike)):
            raise argument_error(what, "labels of a log file are the path of a .npy or .npz file, or its own")
        return Log.open(queries, labels, m=m)
    return Log(queries, labels, m=m)
