"""The wide layer: logits = W q + b."""

from __future__ import annotations

import os
from typing import Any, Sequence, Union

from . import _core
from ._arrays import from_tensor, held, is_tensor
from ._errors import argument_error
from ._progress import Progress, reporting


#: names of files
FilePath = Union[str, bytes, "os.PathLike[Any]"]


class Layer(_core.Layer):
    """A wide layer, from arrays or from a file: weights (m, d), and biases (m,) or None.

    Arrays of float32 in C order are not copied: they are the layer, and must stay as they are while it is in use. Torch
    and numpy refuse to resize what a layer has; ndarray.resize(refcheck=False) does not ask, and may crash the process.

    >>> import numpy as np, wideout
    >>> wideout.Layer(np.eye(3, dtype=np.float32), names=["a", "b", "c"])
    <wideout.Layer of 3 classes and 3 dimensions, without a bias, with names>
    """

    path: str | None
    _opened: dict[str, Any]

    def __new__(cls, weight: Any, bias: Any = None, *, names: Sequence[str] | None = None) -> "Layer":
        if isinstance(weight, (str, bytes, os.PathLike)):
            raise argument_error("weight", "weight takes an array: Layer.open opens a file")
        if hasattr(weight, "weight") and hasattr(weight, "forward"):
            kind = type(weight).__name__
            raise argument_error("weight", f"W takes an array, not a module: give .weight and .bias of this {kind}")
        rows = from_tensor(weight, "the layer's weights") if is_tensor(weight) else weight
        biases = from_tensor(bias, "the layer's bias") if is_tensor(bias) else bias
        self = cls._wrap(held(weight, rows), held(bias, biases), names)
        self.path = None
        return self

    @classmethod
    def open(
        cls,
        path: FilePath,
        *,
        weight_name: str | None = None,
        bias_name: str | None = None,
        bias_path: FilePath | None = None,
        names: Sequence[str] | None = None,
        verify: str = "all",
        progress: Progress = None,
    ) -> "Layer":
        """Opens a layer, an index, a network or a model in safetensors (its shards too), GGUF, fastText's .bin, or W
        as .npy.

        weight_name, bias_name: tensors of a model ('lm_head.weight'). bias_path: beside W as .npy, that of b.
        verify: 'all', 'used' or 'none': how much of a file of ours is compared with its checksums.
        """
        with reporting(progress) as fn:
            self = cls._open(path, weight_name, bias_name, bias_path, verify, names, fn)
        self.path = os.path.abspath(os.fsdecode(path))
        self._opened = {
            "weight_name": weight_name,
            "bias_name": bias_name,
            "bias_path": bias_path,
            "names": names,
            "verify": verify,
        }
        return self

    @property
    def info(self) -> dict[str, Any]:
        """m, d, has_bias, has_names, and of a safetensors file the tensors: weight_name, bias_name, unused_bias."""
        return self._describe()

    def __repr__(self) -> str:
        info = self._describe()
        return (
            f"<wideout.Layer of {info['m']:,} classes and {info['d']:,} dimensions, "
            f"{'with' if info['has_bias'] else 'without'} a bias, {'with' if info['has_names'] else 'without'} names>"
        )

    def __reduce__(self) -> Any:
        if self.path is None:
            raise argument_error("layer", "a layer of arrays is not pickled: pickle the arrays, or save it to a file")
        return _open_again, (self.path, self._opened)


def _open_again(path: str, how: dict[str, Any]) -> Layer:
    return Layer.open(path, **how)


def layer_of(weight: Any, bias: Any, names: Sequence[str] | None) -> Layer:
    """A layer from what build was given: arrays, a Layer or the path of a file."""
    is_path = isinstance(weight, (str, bytes, os.PathLike))
    if not is_path and not isinstance(weight, Layer):
        return Layer(weight, bias, names=names)
    if bias is not None:
        raise argument_error("b", "a layer from a file has its own biases: give None for b, or use Layer.open")
    if is_path:
        return Layer.open(weight, names=names)
    if names is not None:
        raise argument_error("names", "names go with a layer's arrays: give them to Layer")
    return weight
