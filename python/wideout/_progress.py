"""Progress bars: tqdm's where it is installed, a plain line otherwise."""

from __future__ import annotations

import sys
from typing import Any, Callable, Optional, Union

#: False: none; True: a bar; None: a bar where standard error is a terminal; or a function of (stage, done, total),
#: total 0 where it is not known, that may return True to stop the work
Progress = Union[None, bool, Callable[[str, int, int], Any]]


class _Plain:
    """`tuning  45%`, drawn over itself on a terminal; elsewhere a line at each tenth."""

    def __init__(self) -> None:
        self.drawn = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        terminal = sys.stderr.isatty()
        step = 1 if terminal else 10
        part = f"{step * int(100 * min(done, total) / total / step):3d}%" if total else f"{done:,}"
        line = f"{stage} {part}"
        if line != self.drawn:
            self.drawn = line
            sys.stderr.write(f"\r{line}\033[K" if terminal else f"wideout: {line}\n")
            sys.stderr.flush()

    def close(self) -> None:
        if self.drawn and sys.stderr.isatty():
            sys.stderr.write("\r\033[K")


class _Tqdm:
    """One bar of tqdm's a stage."""

    def __init__(self, tqdm: Any) -> None:
        self.tqdm = tqdm
        self.bar: Any = None
        self.stage: Optional[str] = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != self.stage:
            self.close()
            self.stage = stage
            self.bar = self.tqdm(total=total or None, desc=stage, leave=False, file=sys.stderr)
        self.bar.total = total or None
        self.bar.n = min(done, total) if total else done
        self.bar.refresh()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


class reporting:
    """What a long call reports to: `with reporting(progress) as fn: ...`."""

    def __init__(self, progress: Progress) -> None:
        self.fn: Any = None
        self.bar: Any = None
        if callable(progress):
            self.fn = progress
        elif progress or (progress is None and sys.stderr is not None and sys.stderr.isatty()):
            try:
                from tqdm.auto import tqdm  # a notebook's bar in a notebook

                self.bar = _Tqdm(tqdm)
            except ImportError:
                self.bar = _Plain()
            self.fn = self.bar

    def __enter__(self) -> Any:
        return self.fn

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            self.bar.close()
