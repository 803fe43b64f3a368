"""wideout: cheap inference for wide output layers on CPUs.

    ix = wideout.build(W, b, queries, labels, target=0.995)
    scores, ids = ix.search(q, k=10)
    print(ix.evaluate(test_queries, test_labels))
    ix.save("words.safetensors")
    ix = wideout.open("words.safetensors")

W (m, d) and b (m,) are the layer, queries (n, d) what reached it, labels what was true of them. docs/PYTHON.md has the
rest.
"""

from __future__ import annotations

import importlib.util as _util

try:
    from . import _core
except ImportError:
    if _util.find_spec("wideout._core") is not None:
        raise  # it is there, and says what is wrong
    raise ImportError(
        f"wideout's extension is not there for this Python in {__path__[0]}: build it (make python), or install the package"
    ) from None
from ._build import build, options
from ._collect import collect
from ._errors import (
    ArgumentError,
    Cancelled,
    ChecksumError,
    ClosedError,
    Error,
    FileError,
    FormatError,
    OutOfMemory,
    Unsupported,
)
from ._example import example
from ._index import Evaluation, Index
from ._index import open_index as open
from ._layer import Layer
from ._log import Log, LogWriter

__version__ = "0.1.0"

if _core.version.rsplit(".", 1)[0] != __version__.rsplit(".", 1)[0]:
    raise ImportError(
        f"wideout's Python files are of version {__version__}, and its extension is of {_core.version}: install it anew"
    )

open_log = Log.open
open_layer = Layer.open


def cpu() -> dict[str, object]:
    """Which instruction set runs here, and why: level, best, reason, model, features, kernels.

    >>> import wideout
    >>> sorted(wideout.cpu())
    ['best', 'features', 'kernels', 'level', 'model', 'reason']
    """
    return _core.cpu()


__all__ = [
    "ArgumentError",
    "Cancelled",
    "ChecksumError",
    "ClosedError",
    "Error",
    "Evaluation",
    "FileError",
    "FormatError",
    "Index",
    "Layer",
    "Log",
    "LogWriter",
    "OutOfMemory",
    "Unsupported",
    "build",
    "collect",
    "cpu",
    "example",
    "open",
    "open_layer",
    "open_log",
    "options",
]

for _name in __all__:  # as users see them: wideout.ClosedError
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = "wideout"
del _name
