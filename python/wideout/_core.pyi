"""The extension: wideout.h for Python. What begins with an underscore is for the package alone."""

import os
from typing import Any, Callable, Literal, Sequence, TypeVar, overload

import numpy as np

version: str

_T = TypeVar("_T")
_Path = str | bytes | os.PathLike[Any]
_Report = Callable[[str, int, int], Any] | None
_Out = tuple[Any, Any]

def cpu() -> dict[str, Any]: ...
def options() -> dict[str, tuple[str, str | None, float, float]]: ...
def sample(
    ids: Any, scores: Any, temperature: float, top_p: float, top_k: int, seed: int, position: int, /
) -> Any: ...

class Layer:
    @property
    def m(self) -> int: ...
    @property
    def d(self) -> int: ...
    @classmethod
    def _wrap(cls: type[_T], weight: Any, bias: Any, names: Sequence[str] | None, /) -> _T: ...
    @classmethod
    def _open(
        cls: type[_T],
        path: _Path,
        weight_name: str | None,
        bias_name: str | None,
        bias_path: _Path | None,
        verify: str,
        names: Sequence[str] | None,
        progress: _Report,
        /,
    ) -> _T: ...
    def _describe(self) -> dict[str, Any]: ...

class Log:
    @property
    def n(self) -> int: ...
    @property
    def d(self) -> int: ...
    @property
    def _may_have_labels(self) -> bool: ...
    @property
    def _most_frequent(self) -> float: ...
    @classmethod
    def _wrap(cls: type[_T], queries: Any, indptr: np.ndarray | None, labels: np.ndarray | None, /) -> _T: ...
    @classmethod
    def _open(cls: type[_T], path: _Path, labels: _Path | None, /) -> _T: ...
    def __array__(self) -> np.ndarray: ...  # by the buffer protocol

class LogWriter:
    @property
    def n(self) -> int: ...
    @property
    def d(self) -> int: ...
    @property
    def path(self) -> _Path: ...
    @property
    def closed(self) -> bool: ...
    @classmethod
    def _create(cls: type[_T], path: _Path, d: int, labels: bool, n: int, n_labels: int, bf16: bool, /) -> _T: ...
    def _append(self, queries: Any, indptr: np.ndarray | None, labels: np.ndarray | None, /) -> None: ...
    def finish(self) -> None: ...
    def discard(self) -> None: ...

class Index:
    threads: int
    @property
    def m(self) -> int: ...
    @property
    def d(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def layer(self) -> Any: ...
    @overload
    def search(
        self,
        q: Any,
        k: int = 10,
        *,
        forbid: Any = None,
        require: Any = None,
        bias: Any = None,
        probes: int = 0,
        by: Literal["planner", "cells", "full"] = "planner",
        scores: Literal["logits", "softmax", "logprob"] = "logits",
        prior: bool = True,
        exact_fallback: bool = False,
        stats: Literal[False] = False,
        threads: int | None = None,
        out: _Out | None = None,
    ) -> tuple[Any, Any]: ...
    @overload
    def search(
        self,
        q: Any,
        k: int = 10,
        *,
        forbid: Any = None,
        require: Any = None,
        bias: Any = None,
        probes: int = 0,
        by: Literal["planner", "cells", "full"] = "planner",
        scores: Literal["logits", "softmax", "logprob"] = "logits",
        prior: bool = True,
        exact_fallback: bool = False,
        stats: Literal[True],
        threads: int | None = None,
        out: _Out | None = None,
    ) -> tuple[Any, Any, np.ndarray]: ...
    def name(self, id: int, /) -> str | None: ...
    def close(self) -> None: ...
    @classmethod
    def _open(cls: type[_T], path: _Path, layer: Layer | None, verify: str, progress: _Report, /) -> _T: ...
    @classmethod
    def _open_bytes(cls: type[_T], data: Any, layer: Layer | None, /) -> _T: ...
    @classmethod
    def _build(
        cls: type[_T],
        layer: Layer,
        log: Log | None,
        tune_log: Log | None,
        options: dict[str, str],
        goals: dict[str, float] | None,
        threads: int,
        progress: _Report,
        /,
    ) -> _T: ...
    def _save(self, path: _Path, /) -> None: ...
    def _evaluate(
        self,
        log: Log,
        layer: Layer | None,
        ks: Sequence[int],
        batches: Sequence[int],
        batch: int,
        max_queries: int,
        rounds: int,
        probes: int,
        exact_fallback: bool,
        timing: bool,
        prior: bool,
        seed: int,
        threads: int,
        progress: _Report,
        /,
    ) -> dict[str, Any]: ...
    def _score(self, q: Any, ids: Any, /) -> Any: ...
    def _log_partition(self, q: Any, by: str, prior: bool, threads: int | None, /) -> Any: ...
    def _time(self, q: Any, k: int, threads: int, calls: int, /) -> float: ...
    def _describe(self) -> dict[str, Any]: ...
    def _options(self) -> dict[str, Any]: ...
    def _curve(self) -> tuple[list[str], list[list[float]], list[str], dict[str, Any]] | None: ...
    def _trace(self) -> tuple[list[str], list[list[float]]] | None: ...
