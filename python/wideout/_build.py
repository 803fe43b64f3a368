"""Building an index: exactly as asked, or tuned to a goal."""

from __future__ import annotations

import math
import os
import warnings
from typing import Any, Sequence

import numpy as np

from . import _core, _report
from ._errors import argument_error, shown
from ._index import Index
from ._layer import layer_of
from ._log import Log, log_of
from ._progress import Progress, reporting

#: where Python's word is not the library's: a keyword, and one that tuning needs
_WORDS = {"lambda_": "lambda", "learn_batch": "batch"}
#: with any of these the index is named exactly, and is tuned only where a goal is given too
_NAMING = ("method", "router", "K", "L", "lambda")


def _text(name: str, value: Any) -> str:
    """An option's value as the library reads it."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str):
        return value
    try:
        whole = int(value)
        return str(whole) if whole == value else repr(float(value))
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last is torch's, of its odder tensors
        raise argument_error(name, f"{name} takes a number or a word, not {shown(value)}") from None


def _texts(options: dict[str, Any]) -> dict[str, str]:
    known = _core.options()
    texts = {}
    for word, value in options.items():
        name = _WORDS.get(word, word)
        if name not in known or word in ("batch", "lambda"):
            raise TypeError(f"build() has no option '{word}': wideout.options() lists them")
        if value is not None:
            texts[name] = _text(name, value)
    return texts


def _number(name: str, value: Any) -> float:
    whole = name in ("k", "batch", "max_queries")
    try:
        number = float(value)
        if whole and number != int(number):
            raise ValueError
        return number
    except (TypeError, ValueError, OverflowError, RuntimeError):
        kind = "whole number" if whole else "number of seconds" if name == "max_time" else "number"
        raise argument_error(name, f"{name} takes a {kind}, not {shown(value)}") from None


def _refuse_unjudged(goals: dict[str, float], log: Log, tune_log: Log | None) -> None:
    """Labels to learn from, and none to judge by: they were forgotten."""
    if "target_agree" in goals:
        return
    if tune_log is not None and tune_log.has_labels is False and log.has_labels is not False:
        raise argument_error(
            "tune_labels",
            "tune_queries have no labels, and queries have: give tune_labels too, or say target_agree for a share of "
            "FULL's own answers",
        )


def _is_copy(log: Log, tune_log: Log) -> bool:
    """Whether a tune log is the log, or its beginning, again: by queries at the same places alone, as queries of one word,
    say, are in both. Nobody knows where all queries are the same."""
    if not 20 <= tune_log.n <= log.n or log.d != tune_log.d:
        return False
    places = np.arange(min(tune_log.n, 500)) * tune_log.n // min(tune_log.n, 500)
    rows = tune_log.queries[places]
    return log.queries[places].tobytes() == rows.tobytes() and bool((rows != rows[0]).any())


def _warn_of_labels(goals: dict[str, float], index: Index) -> None:
    """A share of FULL's P@1 cannot be told without labels: the library then takes FULL's own answers for the goal."""
    given = next((name for name in ("target", "target5") if name in goals), None)
    tuning = index.tuning
    if "target_agree" in goals or tuning is None or not tuning["target_agree"] > 0:
        return
    if given is None and (hint := _report.doubtful_labels(None, tuning["labelled"], 0.0)):
        warnings.warn(hint, stacklevel=3)
    if given is not None:
        why = "FULL finds no label of the queries" if tuning["labelled"] else "there are no labels"
        warnings.warn(
            f"{why} to judge by: {given} was taken for target_agree={tuning['target_agree']:.4g}, the share of FULL's own "
            "answers",
            stacklevel=3,
        )


def _warn_of_screen(index: Index) -> None:
    """A screen is meant to answer as FULL does. Where it was judged, its report has the figures."""
    five = index.info["same_five"]
    if index.info["method"] == "screen" and five < 0.99:
        warnings.warn(
            f"the screen has {100 * five:.1f}% of FULL's five best answers on these queries: int8 is too coarse for this "
            "layer, as it is where columns of the weights or of the queries have very different scales; method='full' is "
            "exact, and without a method the tuner finds what serves",
            stacklevel=3,
        )


def _warn_of_quality(index: Index, log: Log | None) -> None:
    """Of labels, by what FULL was judged on; of an index that was built as it was named; of its probabilities."""
    tuning, curve, info = index.tuning, index.curve, index.info
    hints = [_report.doubtful_labels(log, info["held_n"], info["held_full_p_at_1"]), _report.poor(info), _report.far_log_z(info)]
    if tuning is not None and curve is not None:
        full = next((row.p_at_1 for row in curve if row.method == 0), math.nan)
        if full > 0:  # that it has no hit, _warn_of_labels says
            hints.append(_report.doubtful_labels(log, tuning["labelled"], full))
    for hint in filter(None, hints):
        warnings.warn(hint, stacklevel=3)


def _goals(target: Any, target5: Any, target_agree: Any, target_us: Any) -> dict[str, float]:
    """The goal, one of three; empty: none was given."""
    best = target == "best"
    by_labels = (target is not None and not best) or target5 is not None
    if isinstance(target, str) and not best:
        raise argument_error("target", f"target takes a number from 0 to 2, or 'best', not {shown(target)}")
    if by_labels + (target_agree is not None) + (target_us is not None) > 1 or (best and target_agree is not None):
        raise argument_error("target", "target, target_agree and target_us are different goals: give one")
    goals: dict[str, float] = {}
    if target is not None and not best:
        goals["target"] = _number("target", target)
        goals["target5"] = min(0.99, goals["target"])  # less of one, no more of five
    if target5 is not None:
        goals["target5"] = _number("target5", target5)
    if target_agree is not None:
        goals["target_agree"] = _number("target_agree", target_agree)
    if best:
        goals["target_us"] = float("inf")
    if target_us is not None:
        goals["target_us"] = _number("target_us", target_us)
    for name, value in goals.items():
        if not value > 0 and name != "target5":
            raise argument_error(name, f"{name} takes a number above 0, not {value:g}")
    return goals


def build(
    W: Any,
    b: Any = None,
    queries: Any = None,
    labels: Any = None,
    *,
    target: float | str | None = None,
    target5: float | None = None,
    target_agree: float | None = None,
    target_us: float | None = None,
    tune_queries: Any = None,
    tune_labels: Any = None,
    k: int | None = None,
    batch: int | None = None,
    max_time: float | None = None,
    max_queries: int | None = None,
    names: Sequence[str] | None = None,
    threads: int = 0,
    progress: Progress = None,
    **options: Any,
) -> Index:
    """Learns an index from a wide layer and a log of its queries.

    W, b: the layer's weights (m, d) and biases (m,) or None; or a Layer, or the path of a file, alone.
    queries: (n, d), what reached the layer, best of examples that the network was not trained on; a Log; or a file.
    labels: of the queries: (n,) ids; (n, l) ids, -1 and -100 for none; a list of lists; a scipy.sparse or bool matrix
    (n, m); None: FULL's own answers are learned, and `target` is the share of them to give (0.99 at most), as
    target_agree is.

    Without method, router, K, L and lambda_ it tunes: it tries many on tune_queries, and keeps the fastest that has
    `target` (0.995) of FULL's P@1 and `target5` (0.99) of its P@5 there, with 95% confidence. target='best' asks for
    the best quality within target_us, or a tenth of FULL's time; target_agree for a share of FULL's own k best;
    target_us for the best within so many microseconds. Without tune_queries a seeded tenth of the queries is held out
    to judge on: queries that the network was trained on flatter every index. k: answers that will be asked for (5).
    batch: queries a call when timing (1). max_time: seconds (180).

    With any of these options it builds exactly that, and tunes the rest where a goal is given too. Every option of
    'wideout build' goes by its name: method, K, L, probes, source_k, weights, seed, ... (wideout.options() lists them);
    lambda is lambda_ here, and the learner's batch learn_batch. Where method='screen' has queries, a warning says if int8 is
    too coarse for the layer.

    The index keeps W and b, where they are not copied, for its rows. Ctrl-C stops with KeyboardInterrupt.

    >>> import wideout
    >>> W, b, queries, labels = wideout.example()
    >>> ix = wideout.build(W, b, queries, labels, max_time=2, progress=False)
    >>> scores, ids = ix.search(queries[0], k=3)
    >>> ids.shape
    (3,)
    """
    texts = _texts(options)
    goals = _goals(target, target5, target_agree, target_us)
    named = any(name in texts for name in _NAMING)
    given_limits = {"k": k, "batch": batch, "max_time": max_time, "max_queries": max_queries}
    limits = {name: _number(name, value) for name, value in given_limits.items() if value is not None}
    if named and not goals and (limits or tune_queries is not None):
        given = next(iter(limits), "tune_queries")
        raise argument_error(given, f"{given} is for tuning: give target too, or leave out {', '.join(_NAMING)}")
    layer = layer_of(W, b, names)
    log = log_of(queries, labels, layer.m, "labels")
    tune_log = log_of(tune_queries, tune_labels, layer.m, "tune_labels")
    if log is not None and tune_log is not None and (tune_queries is queries or _is_copy(log, tune_log)):
        raise argument_error(
            "tune_queries",
            "tune_queries are the queries that are learned from, which flatters every index: give others, or leave it "
            "out, and a tenth is held out",
        )
    tuned = not named or bool(goals)
    if tuned and log is None:
        raise argument_error("queries", "tuning needs queries to learn from; method='screen' and 'full' need none")
    if tuned and log is not None:
        _refuse_unjudged(goals, log, tune_log)
    if "target_agree" in goals and "source" not in texts and texts.get("method", "evidence") == "evidence":
        texts["source"] = "top"  # labels have no part in it
    with reporting(progress) as fn:
        index = Index._build(layer, log, tune_log, texts, {**limits, **goals} if tuned else None, threads, fn)
    if not tuned and log is not None and log.n < 1000 and index.info["method"] not in ("full", "screen"):
        index._unjudged = _report.unjudged(log.n)
    _warn_of_labels(goals, index)
    _warn_of_screen(index)
    _warn_of_quality(index, log if tune_log is None else tune_log)
    return index


def options() -> dict[str, str]:
    """The build options by name, and what each is.

    >>> import wideout
    >>> wideout.options()["probes"][:12]
    'cells opened'
    """
    words = {name: word for word, name in _WORDS.items()}
    found = {}
    for name, (help_, values, low, high) in _core.options().items():
        found[words.get(name, name)] = f"{help_} ({values})" if values else help_
    return found
