"""WideLinear: a trained nn.Linear that finds its best classes from a few of them.

    with wideout.collect(model.head, "train.log") as log:      # around an ordinary evaluation loop
        for x, y in loader:
            model(x)
            log.labels(y)
    model.head = WideLinear.from_linear(model.head, "train.log")
    values, indices = model.head.topk(hidden, 5)

>>> import os, tempfile, torch, wideout
>>> head = torch.nn.Linear(8, 100)
>>> path = os.path.join(tempfile.mkdtemp(), "train.log")
>>> with wideout.collect(head, path, max_queries=250) as log, torch.no_grad():
...     for batch in range(10):
...         logits = head(torch.randn(4, 7, 8))
...         log.labels(logits.argmax(-1))
>>> log.n, wideout.open_log(path).n
(280, 250)
>>> wide = WideLinear.from_linear(head, path, method="evidence", router="tree", nodes=1, leaves=4)
>>> wide.topk(torch.randn(2, 3, 8), 5).indices.shape
torch.Size([2, 3, 5])
"""

from __future__ import annotations

import contextlib
import os
import warnings
from typing import Any, Iterator, NamedTuple

import numpy as np
import torch
from torch import Tensor, float32, nn

from . import _core
from ._arrays import refuse_kind, refuse_short
from ._build import build
from ._collect import flat_rows, with_labels
from ._errors import ArgumentError, Unsupported, argument_error, unsupported
from ._index import Index
from ._layer import Layer
from ._log import Log


class TopK(NamedTuple):
    """What topk returns, as torch's does."""

    values: Tensor
    indices: Tensor


_pair = tuple.__new__


def _refuse_kind(x: Tensor, what: str) -> None:
    """float32 and bfloat16 on the CPU are taken."""
    refuse_kind(x, what)
    if x.dtype not in (float32, torch.bfloat16):
        kind = str(x.dtype).replace("torch.", "")
        raise argument_error(
            what, f"{what} is {kind}: an index takes float32, and converts bfloat16: call .float() first"
        )
    refuse_short(x, what)


def _floats(x: Tensor, what: str) -> Tensor:
    """float32 where it lies; bfloat16 is converted."""
    _refuse_kind(x, what)
    return x.detach().float().contiguous()


def _as_tensor(x: Any, what: str) -> Tensor:
    try:
        return torch.as_tensor(x)
    except (TypeError, ValueError, RuntimeError):
        kind = "a list that is no table of numbers" if isinstance(x, (list, tuple)) else type(x).__name__
        raise argument_error(what, f"{what} must be a tensor, not {kind}") from None


def _whole(ids: Tensor, logits: Tensor) -> Tensor:
    """Ids of classes as torch takes them, int64 beside the logits (..., m), with the index's sentences."""
    if ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
        kind = str(ids.dtype).replace("torch.", "")
        raise argument_error("ids", f"ids must be whole numbers, ids of classes, not {kind}")
    m, ids = logits.shape[-1], ids.to(logits.device, torch.int64)
    wrong = ids[(ids < 0) | (ids >= m)]
    if wrong.numel():
        raise argument_error("ids", f"given class {int(wrong[0])} is not one of the {m} classes")
    return ids


def _each(batches: Any, what: str) -> Iterator[Any]:
    several = hasattr(batches, "__iter__") or hasattr(batches, "__getitem__")
    if not several or np.isscalar(batches) or hasattr(batches, "tocsr"):
        raise argument_error(what, f"{what} come as one tensor, or batch by batch, not as {type(batches).__name__}")
    return iter(batches)


def _log(batches: Any, labels: Any, m: int, d: int, what: str) -> Any:
    """Queries as build takes them: a file and a Log as they are, tensors as a Log."""
    if batches is None or isinstance(batches, (Log, str, bytes, os.PathLike)):
        if labels is not None:
            raise argument_error(what, "a log has its own labels: leave them out")
        return batches
    if isinstance(batches, (Tensor, np.ndarray)):
        batches, labels = [batches], None if labels is None else [labels]
    parts: list[tuple[Any, Any, Any]] = []
    given = _each(labels, what) if labels is not None else None
    for batch in _each(batches, "batches"):
        if isinstance(batch, (tuple, list)) and len(batch) == 1 and isinstance(batch[0], Tensor):
            batch = batch[0]  # as a DataLoader of queries alone has them
        pair = isinstance(batch, (tuple, list)) and len(batch) == 2
        if given is not None and pair:
            raise argument_error(what, "batches are pairs with their labels: leave the others out")
        x, targets = batch if pair else (batch, next(given, None) if given is not None else None)
        x = _as_tensor(x, "a batch")
        _refuse_kind(x, "a batch")
        rows = flat_rows(x, d)
        if given is not None and targets is None:
            raise argument_error(what, "there are fewer labels than batches")
        parts.append(with_labels(rows, tuple(x.shape[:-1]), targets, m) if targets is not None else (rows, None, None))
    if given is not None and next(given, None) is not None:
        raise argument_error(what, "there are more labels than batches")
    if not parts:
        raise argument_error("batches", "there are no batches to learn from")
    if len({part[1] is None for part in parts}) > 1:
        raise argument_error(what, "some batches have labels and others have none")
    queries = np.concatenate([part[0] for part in parts])
    if parts[0][1] is None:
        return Log(queries)
    starts = np.cumsum([0] + [len(part[2]) for part in parts])
    indptr = np.concatenate([[0]] + [part[1][1:] + start for part, start in zip(parts, starts)])
    log = Log._wrap(queries, indptr.astype(np.int64), np.concatenate([part[2] for part in parts]))
    log.has_labels, log.path = bool(indptr[-1]), None
    return log


class WideLinear(nn.Linear):
    """An nn.Linear with an index: calling it is exact and has gradients as ever, topk, log_prob and sample are fast.

    Made by from_linear. Its parameters are those of the layer that it replaces, so a weight that is tied to an
    embedding stays tied. State dicts have one entry more, `_extra_state`: the bytes of the index. A WideLinear of the
    same sizes that loads them has the index again; one that loads a plain layer's has none, and one whose weights are
    not those of the index warns, and has none.

    The index belongs to the weights that it was built for. After they changed in place (a step of training), or by
    half() and the like, it is refused and not saved, until build has been called again.

    >>> import torch, wideout
    >>> W, b, queries, labels = map(torch.as_tensor, wideout.example())
    >>> linear = torch.nn.Linear(16, 2000)
    >>> _ = linear.load_state_dict({"weight": W, "bias": b})
    >>> wide = WideLinear.from_linear(linear, queries, labels, max_time=2, progress=False)
    >>> values, indices = wide.topk(queries[:100], 5)
    >>> with wide.exact():
    ...     slow = wide.topk(queries[:100], 5)
    >>> indices.shape == slow.indices.shape, wide(queries[:100]).shape
    (True, torch.Size([100, 2000]))
    """

    _index: Index | None
    _stamp: tuple[int, ...]
    _of: list[Tensor]
    _exact: bool

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(in_features, out_features, bias=bias, device=device, dtype=dtype)
        self._index, self._stamp, self._of, self._exact = None, (), [], False

    @classmethod
    def from_linear(
        cls, linear: nn.Module, batches: Any, labels: Any = None, *, target: Any = None, **options: Any
    ) -> "WideLinear":
        """The layer with an index of it.

        linear: an nn.Linear, or an nn.Embedding whose weights are a tied head. batches: the file of a log that
        wideout.collect wrote; a tensor (..., d) of what reached the layer; or an iterable of tensors, or of pairs
        (queries, labels), which are held in memory. labels: of a tensor, or of each batch, in the forms that
        log.labels of collect takes. target and options: as wideout.build has them (tune_queries and tune_labels may be
        such batches too). Unless partition=False is said, log Z is learned too, for log_prob.
        """
        weight, bias = getattr(linear, "weight", None), getattr(linear, "bias", None)
        if not isinstance(weight, nn.Parameter) or weight.ndim != 2 or isinstance(linear, nn.Bilinear):
            raise argument_error(
                "linear",
                f"from_linear takes an nn.Linear, or an nn.Embedding, with plain weights, not {type(linear).__name__}",
            )
        if bias is not None and not isinstance(bias, nn.Parameter):
            raise argument_error("linear", "the bias is no parameter: it is computed before each call, by pruning, say")
        m, d = weight.shape
        layer = cls(d, m, bias=bias is not None, device="meta")
        layer.register_parameter("weight", weight)
        layer.register_parameter("bias", bias)
        layer.train(linear.training)
        layer.build(batches, labels, target=target, **options)
        return layer

    def build(self, batches: Any, labels: Any = None, *, target: Any = None, **options: Any) -> None:
        """Builds the index, again where there is one: for weights that have changed, or another target."""
        self._refuse_computed()
        m, d = self.weight.shape
        if options.get("method", "evidence") == "evidence":
            options.setdefault("partition", True)
        layer = self._layer(options.pop("names", None))
        log = _log(batches, labels, m, d, "labels")
        tune_log = _log(options.pop("tune_queries", None), options.pop("tune_labels", None), m, d, "tune_labels")
        self._set_index(build(layer, None, log, target=target, tune_queries=tune_log, **options))

    # ---- Answers --------------------------------------------------------------------------------------------------

    def topk(self, x: Tensor, k: int) -> TopK:
        """The k best classes of each query (..., d), as torch.topk(self(x), k) has them: values and indices (..., k).

        Where the cells of a query have fewer than k classes the rest is -inf and -1. Values are logits, plus the prior
        of an index that has one (prior=0 in the options builds without). They have no gradient.
        """
        if self._exact:
            return TopK(*self(x).topk(k))
        if type(x) is Tensor and x.dtype is float32 and x.ndim <= 2:
            return _pair(TopK, self._ready().search(x, k))  # past TopK's own constructor: all this takes 0.9 us
        values, ids = self._ready().search(self._rows(x), k)
        return TopK(values.reshape(*x.shape[:-1], k), ids.reshape(*x.shape[:-1], k))

    def log_prob(self, x: Tensor, ids: Tensor) -> Tensor:
        """log p of classes: x (..., d) with ids (...), one each, or (..., j); the result has the shape of ids.

        The logits are exact; log Z is estimated by the cells, or exact where the index has no estimate of it:
        layer.index.info["log_z_error"] is how far off it is, in nats, and NaN where it is exact.
        """
        if not isinstance(x, Tensor):
            raise argument_error("x", f"x takes a tensor, not {type(x).__name__}")
        lead = tuple(x.shape[:-1])
        ids = _as_tensor(ids, "ids")
        if tuple(ids.shape) != lead and tuple(ids.shape[:-1]) != lead:
            raise argument_error("ids", f"ids have shape {tuple(ids.shape)}, and the queries {lead}")
        each = 1 if tuple(ids.shape) == lead else ids.shape[-1]
        if self._exact:
            logs = self(x).log_softmax(-1)
            return logs.gather(-1, _whole(ids, logs).reshape(*lead, each)).reshape(ids.shape)
        index, rows = self._ready(), self._rows(x)
        by = "full" if np.isnan(index.info["log_z_error"]) else "cells"
        scores = index.score(rows, ids.reshape(len(rows), each))
        return (scores - index.log_partition(rows, by=by, prior=False).unsqueeze(1)).reshape(ids.shape)

    def sample(
        self,
        x: Tensor,
        temperature: float = 1.0,
        top_p: float = 1.0,
        *,
        top_k: int = 0,
        k: int = 50,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draws a class for each query (..., d): ids (...), by exp(value / temperature) among the k best, of these the
        first top_k (0: all), and of these the fewest that have top_p of the probability.

        torch's random numbers decide: torch.manual_seed, or the generator. exact() draws from all classes.
        """
        seed = int(torch.randint(1 << 62, (), generator=generator))
        if self._exact:
            logits = self(x.reshape(-1, x.shape[-1])).detach().float().cpu()
            few = isinstance(top_k, int) and 0 < top_k < logits.shape[-1]
            values, ids = logits.topk(top_k if few else logits.shape[-1])
            drawn = _core.sample(ids, values, temperature, top_p, top_k, seed, 0)
        else:
            index, rows = self._ready(), self._rows(x)
            drawn = index.sample(rows, k=k, temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
        return drawn.reshape(x.shape[:-1])

    @contextlib.contextmanager
    def exact(self) -> Iterator["WideLinear"]:
        """Inside, topk, log_prob and sample are torch's own over all classes: to compare with, on any device, with
        gradients of topk and log_prob. For one thread at a time."""
        before, self._exact = self._exact, True
        try:
            yield self
        finally:
            self._exact = before

    # ---- The index ------------------------------------------------------------------------------------------------

    @property
    def index(self) -> Index:
        """The index: evaluate it, print it, save it, give it threads."""
        return self._ready()

    def _ready(self) -> Index:
        if self._index is None:
            raise argument_error(
                "index", "this layer has no index: from_linear, build, or a state dict with one gives it"
            )
        if self._is_stale():
            self._refuse_computed()
            raise argument_error(
                "index",
                "the weights have changed since the index was built, or share_memory() has moved them: call build again",
            )
        return self._index

    def _refuse_computed(self) -> None:
        """torch.nn.utils' prune, spectral_norm and the like take a parameter away, and compute it before each call."""
        parameters = self.__dict__["_parameters"]
        for name in ("weight", "bias"):
            if name not in parameters:
                raise argument_error(
                    "index",
                    f"the {name} is no parameter any more: it is computed before each call, by pruning or a norm, say. "
                    "Make that permanent (prune.remove, remove_spectral_norm, remove_parametrizations), then call build",
                )

    def _is_stale(self) -> bool:
        try:
            return self._stamp != self._stamp_now() and not self._only_moved()
        except KeyError:  # one of them is no parameter any more
            return True

    def _stamp_now(self) -> tuple[int, ...]:
        """How often the weights were changed in place, which torch counts, but for inference tensors, and where they
        are. They are asked for past __getattr__ of nn.Module, which takes 0.4 us for each."""
        parameters = self.__dict__["_parameters"]
        weight, bias = parameters["weight"], parameters["bias"]
        try:
            if bias is None:
                return weight._version, weight.data_ptr()
            return weight._version, weight.data_ptr(), bias._version, bias.data_ptr()
        except RuntimeError:
            return tuple(n for x in (weight, bias) if x is not None for n in (0, x.data_ptr()))

    def _only_moved(self) -> bool:
        """Whether the weights are the same numbers in another place, as after cuda() or cpu(). It is then noted."""
        now, parameters = self._stamp_now(), [x for x in (self.weight, self.bias) if x is not None]
        if now[::2] != self._stamp[::2] or [x.data_ptr() for x in self._of] != list(self._stamp[1::2]):
            return False
        for old, new in zip(self._of, parameters):
            if new.is_meta or old.dtype != new.dtype or not torch.equal(old.cpu(), new.detach().cpu()):
                return False
        self._note_weights()
        return True

    def _note_weights(self) -> None:
        """The storages are held, so that no others can have their addresses."""
        self._stamp = self._stamp_now()
        self._of = [x.detach() for x in (self.weight, self.bias) if x is not None]

    def _set_index(self, index: Index | None) -> None:
        self._index, self._stamp, self._of = index, (), []
        if index is not None:
            self._note_weights()

    def _layer(self, names: Any = None) -> Layer:
        self._refuse_computed()
        bias = None if self.bias is None else _floats(self.bias, "the bias")
        return Layer(_floats(self.weight, "the weight"), bias, names=names)

    def _rows(self, x: Any) -> Tensor:
        """Queries (..., d) as (n, d)."""
        if not isinstance(x, Tensor):
            raise argument_error("x", f"x takes a tensor, not {type(x).__name__}")
        _refuse_kind(x, "x")
        if x.dim() == 0 or x.shape[-1] != self.in_features:
            raise argument_error(
                "x", f"x has shape {tuple(x.shape)}, and the layer takes {self.in_features} numbers each"
            )
        return x.detach().float().reshape(-1, self.in_features)

    def extra_repr(self) -> str:
        method = "none" if self._index is None else "closed" if self._index.closed else self._index.info["method"]
        return f"{super().extra_repr()}, index={method}"

    def __prepare_scriptable__(self) -> Any:
        """torch.jit.script asks for this, of a model's parts too, and would fail later without a reason."""
        raise unsupported(
            "torch.jit.script does not take a WideLinear: TorchScript knows no index. Put an nn.Linear with the same "
            "weight and bias in its place, or torch.jit.trace the exact layer"
        )

    # ---- State dicts, copies, pickles: the index goes along as bytes -----------------------------------------------

    def _bytes(self) -> bytes:
        """Nothing where there is no index, or it was closed, or belongs to other weights."""
        if self._index is None or self._index.closed or self._is_stale():
            return b""
        return self._index.to_bytes()

    def _set_bytes(self, data: Any) -> None:
        """An index that does not fit the weights is left out: an error here would hide what torch says of them."""
        self._set_index(None)
        if not len(data):
            return
        try:
            self._set_index(Index.from_bytes(data, layer=self._layer()))
        except (ArgumentError, Unsupported) as error:
            warnings.warn(f"the index is left out, call build again: {error}", stacklevel=2)

    def get_extra_state(self) -> Tensor:
        data = bytearray(self._bytes())
        return torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        self._set_bytes(state.cpu().clone().numpy())

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: list, *rest: Any
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *rest)
        key = prefix + "_extra_state"
        if key not in state_dict:  # of a plain layer
            self._set_index(None)
            if key in missing:
                missing.remove(key)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_index": self._bytes(), "_stamp": (), "_of": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        data = state["_index"]
        super().__setstate__({**state, "_index": None})
        self._set_bytes(data)
