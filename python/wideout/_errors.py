"""Exceptions: the library's sentence, and its fields beside it."""

from __future__ import annotations

STATUSES = ("ok", "memory", "io", "format", "unsupported", "argument", "checksum", "cancelled")
ABOUTS = ("none", "option", "layer", "bias", "log", "tune_log", "index", "query", "output", "labels")


class Error(Exception):
    """What went wrong, in one sentence; every exception of the package is one.

    status: 'memory', 'io', 'format', 'unsupported', 'argument', 'checksum' or 'cancelled'.
    about: which of the things that were handed over it is about: 'option', 'layer', 'log', 'index', 'query', ...
    option: the argument that is wrong, or that would help; '' where there is none.
    offset: the byte of a file where reading failed, or None.
    path: the file, or None.

    >>> import wideout
    >>> try:
    ...     wideout.open("no such file")
    ... except wideout.Error as e:
    ...     print(e, "|", e.status, e.about, e.offset)
    no such file: the file cannot be opened: No such file or directory | io index None
    """

    status: str = "argument"
    about: str = "none"
    option: str = ""
    offset: int | None = None
    path: object = None


class OutOfMemory(Error, MemoryError):
    """An allocation failed."""


class FileError(Error, OSError):
    """The operating system refused to open, read, write or rename a file."""


class FormatError(Error, ValueError):
    """A file is not what it should be: malformed, truncated, out of range."""


class ChecksumError(FormatError):
    """The bytes of a file differ from those that were written."""


class Unsupported(Error, RuntimeError):
    """Well-formed, but not something that wideout, or this machine, can do; or a goal that cannot be reached."""


class ArgumentError(Error, ValueError):
    """Something was passed that cannot be right."""


class ClosedError(ArgumentError):
    """An index or a log was used after it was closed."""


class Cancelled(Error):
    """The progress callback asked to stop."""


_CLASSES = (Error, OutOfMemory, FileError, FormatError, Unsupported, ArgumentError, ChecksumError, Cancelled)


def make_error(status: int, about: int, option: str, text: str, offset: int | None, path: object) -> Error:
    """The exception for a failure of the library's; the extension calls it."""
    error = _CLASSES[status if status < len(_CLASSES) else 0](text if path is None else f"{path}: {text}")
    error.status = STATUSES[status] if status < len(STATUSES) else "unknown"
    error.about = ABOUTS[about] if about < len(ABOUTS) else "none"
    error.option, error.offset, error.path = option, offset, path
    return error


def shown(value: object, most: int = 40) -> str:
    """A value in a sentence: on one line, and not too much of it."""
    return " ".join(repr(value).split())[:most]


def argument_error(option: str, text: str) -> ArgumentError:
    """The caller's mistake, found before the library saw it."""
    error = ArgumentError(text)
    error.about, error.option = "option", option
    return error


def unsupported(text: str) -> Error:
    """What cannot be done with what is right in itself, found before the library saw it."""
    return make_error(STATUSES.index("unsupported"), 0, "", text, None, None)
