"""Labels, in the forms that people have them, as the library wants them: where each query's begin, and all of them."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from ._arrays import as_array, is_tensor, refuse_kind, refuse_short
from ._errors import argument_error

NONE = (-1, -100)  #: stand for no label, as in log files and in torch's cross_entropy
FLAGS = 16  #: columns, all 0 or 1, that are flags: of fewer, a short list may name the classes 0 and 1 several times


def _refuse(text: str) -> Exception:
    return argument_error("labels", text)


def _refuse_shape(shape: tuple[int, ...], n: int, m: int | None) -> None:
    """Of a matrix with a column for each class."""
    if shape[0] != n:
        raise _refuse(f"labels are of {shape[0]} queries, and there are {n}")
    if m is not None and shape[1] != m:
        raise _refuse(f"labels have shape {tuple(shape)}, and a matrix of labels has a column for each of the {m} classes")


def _copied(matrix: Any) -> Any:
    """A copy in CSR, whose arrays nobody else can change, and which agree: scipy's functions, and the library, read
    wherever they point."""
    own = matrix.copy()
    if hasattr(own, "indptr"):  # of the other forms scipy looks at each number
        own.check_format(full_check=True)
        if (np.diff(own.indptr) < 0).any():  # which the check leaves out where nothing is stored
            raise ValueError("indptr falls")
    csr = own.tocsr()
    csr.check_format(full_check=True)
    return csr


def _from_sparse(labels: Any, n: int, m: int | None) -> tuple[np.ndarray, np.ndarray]:
    _refuse_shape(labels.shape, n, m)
    try:
        csr = _copied(labels)
    except (ValueError, IndexError, TypeError) as error:
        raise _refuse(f"labels are a sparse matrix whose parts do not agree: {error}") from None
    csr.sum_duplicates()
    csr.eliminate_zeros()
    return csr.indptr.astype(np.int64), _to_int32(csr.indices)


def _from_flags(flags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n, m): True where a class is a label."""
    rows, ids = np.nonzero(flags)
    return np.searchsorted(rows, np.arange(len(flags) + 1)).astype(np.int64), ids.astype(np.int32)


def _to_int32(ids: np.ndarray) -> np.ndarray:
    if ids.size and ids.dtype != np.int32:
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= 2**31:
            raise _refuse(f"label {low if low < 0 else high} is no class: classes count from 0, -1 and -100 are none")
    elif ids.size and int(ids.min()) < 0:
        raise _refuse(f"label {int(ids.min())} is no class: classes count from 0, -1 and -100 are none")
    return np.require(ids, np.int32, ["C", "A"])


def _from_table(table: np.ndarray, m: int | None) -> tuple[np.ndarray, np.ndarray]:
    """(n, l) of ids, up to l a query."""
    flags = table.shape[1] == m > 2 if m is not None else table.shape[1] >= FLAGS
    if flags and table.size and table.min() >= 0 and table.max() <= 1:
        raise _refuse(
            f"labels have shape {table.shape} and are 0 or 1: a table of ids has the labels themselves; make flags bool"
        )
    is_label = (table != NONE[0]) & (table != NONE[1])
    indptr = np.zeros(len(table) + 1, np.int64)
    np.cumsum(is_label.sum(axis=1), out=indptr[1:])
    return indptr, _to_int32(table[is_label])


def _from_lists(lists: list) -> tuple[np.ndarray, np.ndarray]:
    for x in lists:
        if isinstance(x, (bytes, bytearray, dict)):  # which have whole numbers in them too
            raise _refuse(f"labels of a query must be a list of whole numbers, ids of classes, not {type(x).__name__}")
    try:
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    except TypeError:
        raise _refuse("labels are a list in which some entries are lists and others are not") from None
    flat = list(chain.from_iterable(lists))
    try:
        ids = np.asarray(flat) if flat else np.zeros(0, np.int32)
    except ValueError:  # lists in lists, which differ in length
        raise _refuse("labels of a query must be whole numbers, ids of classes, not lists of them") from None
    if ids.dtype.kind not in "iu" or ids.ndim != 1:
        raise _refuse("labels of a query must be whole numbers, ids of classes")
    is_label = (ids != NONE[0]) & (ids != NONE[1])
    before = np.concatenate([[0], np.cumsum(is_label)])  # labels before each entry
    return before[np.concatenate([[0], np.cumsum(lengths)])].astype(np.int64), _to_int32(ids[is_label])


def of_scalars(labels: Any, what: str) -> Any:
    """A list of scalars of torch's and numpy's as one of numbers; other labels as they are."""
    if not isinstance(labels, (list, tuple)) or not labels or getattr(labels[0], "ndim", None) != 0:
        return labels
    for x in labels:
        if is_tensor(x):
            refuse_kind(x, what, anywhere=True)
            refuse_short(x, what)
    return [x.item() if getattr(x, "ndim", None) == 0 else x for x in labels]


def to_csr(labels: Any, n: int, m: int | None = None) -> tuple[np.ndarray | None, np.ndarray | None]:
    """(indptr, ids) of the labels of n queries; (None, None) where there are none.

    >>> to_csr([3, 1, -1], 3)
    (array([0, 1, 2, 2]), array([3, 1], dtype=int32))
    >>> to_csr([[3], [], [1, 2]], 3)
    (array([0, 1, 1, 3]), array([3, 1, 2], dtype=int32))
    """
    if labels is None:
        return None, None
    if hasattr(labels, "tocsr"):
        return _from_sparse(labels, n, m)
    for x in labels if isinstance(labels, (list, tuple)) else ():
        if is_tensor(x):
            refuse_kind(x, "labels")
            refuse_short(x, "labels")
    labels = of_scalars(labels, "labels")
    if isinstance(labels, (list, tuple)) and len(labels) and hasattr(labels[0], "__len__"):
        found = _from_lists([x.tolist() if is_tensor(x) or isinstance(x, np.ndarray) else x for x in labels])
        rows = len(labels)
    else:
        a = as_array(labels, "labels")
        if a.size == 0 and a.dtype.kind == "f" and isinstance(labels, (list, tuple)):
            a = a.astype(np.int32)
        if a.ndim not in (1, 2):
            raise _refuse(f"labels must have one or two dimensions, not {a.ndim}")
        rows = a.shape[0]
        if rows != n:
            raise _refuse(f"labels are of {rows} queries, and there are {n}")
        if a.ndim == 2 and a.dtype == np.bool_:
            _refuse_shape(a.shape, n, m)
            found = _from_flags(a)
        elif a.dtype.kind in "iu":
            found = _from_table(a if a.ndim == 2 else a[:, None], m if a.ndim == 2 else None)
        else:
            flags = a.ndim == 2 and a.dtype.kind == "f" and a.shape[1] == m and ((a == 0) | (a == 1)).all()
            hint = ": make flags bool" if flags else ""
            raise _refuse(f"labels must be whole numbers, ids of classes, not {a.dtype}{hint}")
    if rows != n:
        raise _refuse(f"labels are of {rows} queries, and there are {n}")
    return np.ascontiguousarray(found[0]), np.ascontiguousarray(found[1])
