"""What callers have, as the library wants it: float32 or int32, in C order, in this machine's memory.

The extension takes such arrays as they are, and asks here for all others.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ._errors import argument_error

#: of each query, with stats=True: wo_query_stats
STATS = np.dtype(
    {
        "names": ["status", "cells", "candidates", "wider", "exact"],
        "formats": [np.int32, np.uint32, np.uint32, np.bool_, np.bool_],
        "offsets": [0, 4, 8, 12, 13],
        "itemsize": 16,
    }
)


def is_tensor(x: Any) -> bool:
    """Whether it is a torch tensor. Torch is not imported for it: who has a tensor has imported it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def refuse_kind(x: Any, what: str, anywhere: bool = False) -> None:
    """Refuses a tensor that is more, or less, than numbers in this machine's memory. anywhere: on other devices too."""
    torch = sys.modules["torch"]
    if getattr(x, "is_nested", False):
        raise argument_error(what, f"{what} is a nested tensor: give a padded one, or its parts one by one")
    if x.is_quantized:
        raise argument_error(what, f"{what} is a quantised tensor: call .dequantize() first")
    if x.device.type == "meta":
        raise argument_error(what, f"{what} is a tensor on meta, which has a shape and no numbers")
    if x.device.type != "cpu" and not anywhere:
        raise argument_error(what, f"{what} is a tensor on {x.device}: wideout runs on the CPU, so call .cpu() first")
    if x.layout != torch.strided:
        kind = "sparse" if "sparse" in str(x.layout) else str(x.layout).replace("torch.", "").lstrip("_")
        raise argument_error(what, f"{what} is a {kind} tensor: call .to_dense() first")


def refuse_short(x: Any, what: str) -> None:
    """Refuses a tensor on the CPU whose storage was freed or made shorter, which torch and numpy do not notice."""
    if x.device.type != "cpu" or x.layout != sys.modules["torch"].strided or not x.numel():
        return
    bytes_ = (x.untyped_storage() if hasattr(x, "untyped_storage") else x._storage()).nbytes()
    last = x.storage_offset() + sum((n - 1) * step for n, step in zip(x.shape, x.stride()))
    if (last + 1) * x.element_size() > bytes_:
        raise argument_error(
            what, f"{what} is a tensor of shape {tuple(x.shape)} whose storage has {bytes_:,} bytes: too few for it"
        )


def _plain(x: Any) -> Any:
    """The tensor as torch itself sees it: a subclass may say what it likes of its shape."""
    torch = sys.modules["torch"]
    if type(x) in (torch.Tensor, torch.nn.Parameter):
        return x
    with torch._C.DisableTorchFunction():
        return torch.Tensor.as_subclass(x, torch.Tensor)


def from_tensor(x: Any, what: str) -> np.ndarray:
    """A CPU tensor as an array, without a copy; bfloat16, which numpy lacks, becomes float32."""
    torch = sys.modules["torch"]
    x = _plain(x)
    refuse_kind(x, what)
    refuse_short(x, what)
    try:
        return x.numpy()  # the common case: 0.5 us
    except (TypeError, RuntimeError):
        pass
    x = x.detach()
    return (x.float() if x.dtype == torch.bfloat16 else x).resolve_conj().resolve_neg().numpy()


def held(x: Any, array: Any) -> Any:
    """What the extension is to hold of x, of which `array` was made: the tensor, where its memory is the array's. The
    extension then notices when torch moves it. Torch refuses to make it shorter, for numpy has seen it."""
    tensor = x.base if isinstance(x, np.ndarray) else x  # as Tensor.numpy() makes them
    if is_tensor(tensor):
        tensor = _plain(tensor).detach()
        if tensor.shape == array.shape and tensor.data_ptr() == array.ctypes.data:
            return tensor
    return array


def has_tensors(x: Any) -> bool:
    """Whether it is a list of tensors, going by its first."""
    return isinstance(x, (list, tuple)) and len(x) > 0 and is_tensor(x[0])


def _stacked(tensors: Any, what: str) -> Any:
    """A list of tensors as one tensor."""
    for x in tensors:
        if not is_tensor(x):
            raise argument_error(what, f"{what} is a list in which some entries are tensors and others are not")
        refuse_kind(x, what)
        refuse_short(x, what)
        if x.shape != tensors[0].shape or x.dtype != tensors[0].dtype:
            kinds = [f"{str(t.dtype).replace('torch.', '')} of shape {tuple(t.shape)}" for t in (tensors[0], x)]
            raise argument_error(what, f"{what} is a list of tensors that differ: {kinds[0]} and {kinds[1]}")
    return sys.modules["torch"].stack([x.detach() for x in tensors])


def as_array(x: Any, what: str) -> np.ndarray:
    """Whatever it is, as an array, of no subclass."""
    if isinstance(x, np.ndarray):
        if np.ma.is_masked(x):
            raise argument_error(what, f"{what} is a masked array: wideout knows no masks, so call .filled() first")
        return np.asarray(x)
    if is_tensor(x):
        return from_tensor(x, what)
    if has_tensors(x):
        return from_tensor(_stacked(x, what), what)
    if hasattr(x, "tocsr"):
        raise argument_error(what, f"{what} is a sparse matrix: call .toarray() first")
    try:
        return np.asarray(x)
    except ValueError:  # numpy's sentence speaks of inhomogeneous shapes
        raise argument_error(what, f"{what} is a list of lists that differ in length") from None


def to_floats(x: Any, what: str) -> tuple[np.ndarray, bool]:
    """float32 in C order, one or two dimensions, and whether it was a torch tensor, or a list of them.

    Copied: other floats (float64, float16, bfloat16, other byte orders), and strided views. Refused: everything else.
    """
    a = as_array(x, what)
    if a.dtype.kind != "f":
        raise argument_error(what, f"{what} must be floats, float32 at best, not {a.dtype}")
    if a.ndim not in (1, 2):
        raise argument_error(what, f"{what} must have one or two dimensions, not {a.ndim}: shape {a.shape}")
    with np.errstate(over="ignore"):  # a float64 beyond float32 is infinite, which the library refuses by itself
        return np.require(a, np.float32, ["C", "A"]), is_tensor(x) or has_tensors(x)


def to_ids(x: Any, what: str) -> tuple[np.ndarray, bool]:
    """int32 in C order, one or two dimensions. Other whole numbers are copied; lists, sets and ranges too."""
    if isinstance(x, (set, frozenset)):
        x = sorted(x)
    a = as_array(x, what)
    if a.size == 0 and not isinstance(x, np.ndarray):
        a = a.astype(np.int32)
    if a.dtype.kind not in "iu":
        raise argument_error(what, f"{what} must be whole numbers, ids of classes, not {a.dtype}")
    if a.ndim == 0:
        a = a.reshape(1)
    if a.ndim > 2:
        raise argument_error(what, f"{what} must have one or two dimensions, not {a.ndim}")
    if a.size and a.dtype.itemsize >= 4 and a.dtype != np.int32:
        low, high = int(a.min()), int(a.max())
        if low < -(2**31) or high >= 2**31:
            raise argument_error(what, f"{what} has {low if low < 0 else high}, which is no id of a class")
    return np.require(a, np.int32, ["C", "A"]), is_tensor(x)
