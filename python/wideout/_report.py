"""Tables for people: what an index is, what evaluation found. The words are the tool's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._index import Evaluation, Index
    from ._log import Log


def _bytes(n: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "bytes" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} GiB"


def _wrap(words: list[str], indent: str, width: int = 100) -> list[str]:
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) + 2 > width:
            lines[-1] += ","
            lines.append(indent + word)
        else:
            lines[-1] += f", {word}"
    return lines


def _figure(x: float, full: float) -> str:
    if math.isnan(x):
        return f"{'-':>8}{'':8}"
    if not full > 0:
        return f"{x:8.4f}{'':8}"
    share = 100 * x / full
    return f"{x:8.4f}" + (f" {share:6.2f}%" if share < 999.995 else f" {share:6.0f}%")


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what[:-1]}ies"


def _by_hits(tuning: dict[str, Any], row: Any, full: Any) -> bool:
    """Whether hits say what the goal is about: without any, on either side, FULL's own answers do."""
    if tuning["target_agree"] > 0 or (full is not None and math.isnan(full.p_at_1)):
        return False
    if not tuning["target_us"] > 0 or row is None:
        return True
    return row.p_at_1 > 0 or row.p_at_5 > 0 or (full is not None and full.p_at_5 > 0)


def doubtful_labels(log: Log | None, n: int, full_p_at_1: float) -> str:
    """What to say where FULL finds no label of n labelled queries of a log, or no more than who always answers the most
    frequent one, and not twice as many at the upper end of what may be by chance (95%, one-sided); "" where it does, or
    they are few: with a P@1 of 0.05 fewer than 50 are without a hit once in thirteen times."""
    if math.isnan(full_p_at_1) or n < 50:
        return ""
    on = f"on {_count(n, 'labelled query')} FULL's best answer is"
    if full_p_at_1 == 0:
        return f"{on} never a label: are they labels of this layer, and do they count from 0?"
    most, hits, z = log._most_frequent if log is not None else math.nan, n * full_p_at_1, 1.645
    upper = hits + z * z / 2 + z * math.sqrt(hits + z * z / 4)
    if not (full_p_at_1 <= most and upper < 2 * n * most):
        return ""
    return (
        f"{on} a label for {100 * full_p_at_1:.3g}%, and the most frequent label alone for {100 * most:.3g}%: are these "
        "the labels of these queries, in their order?"
    )


def unjudged(n: int) -> str:
    """What to say of an index of so short a log, no part of which can be spared to judge it."""
    return f"a log of {_count(n, 'query')} says nothing of the quality: give 1,000 or more, or judge it on others by evaluate"


def poor(info: dict[str, Any]) -> str:
    """What to say of an index that was built as it was named, and is much worse than FULL where it was judged."""
    if not info["held_n"]:
        return ""
    by_hits = info["held_full_p_at_1"] > 0
    share = info["held_p_at_1"] / info["held_full_p_at_1"] if by_hits else info["held_same_best"]
    if share >= 0.9 or info["method"] == "screen":
        return ""
    dials = {"evidence": "a smaller lambda_ or a longer log", "popular": "a larger popular"}
    return (
        f"the index has {100 * share:.0f}% of FULL's {'P@1' if by_hits else 'best answers'} on "
        f"{_count(info['held_n'], 'query')} of the log that it did not know: target=0.995 with tune_queries looks for "
        f"better options; {dials.get(info['method'], 'a smaller K or a larger L')} helps too"
    )


def far_log_z(info: dict[str, Any]) -> str:
    """What to say where the candidates lack most of Z, and the estimate is a guess: off by more than a factor of e."""
    if not info["log_z_error"] > 1:
        return ""
    return (
        f"log Z is off by {info['log_z_error']:.2g} nats, so that probabilities mean little: more classes in the cells, by a "
        "smaller lambda_, a larger cap or more probes, make that less"
    )


def _no_hits(tuning: dict[str, Any], row: Any, full: Any) -> list[str]:
    """Where FULL's own answers are the goal because hits cannot be: why."""
    if _by_hits(tuning, row, full):
        return []
    best = f"; the best has most of FULL's own {tuning['k']} best" if tuning["target_us"] > 0 else ""
    if not tuning["labelled"]:
        return [f"no hits to judge by: the queries have no labels{best}"]
    if full is None or full.p_at_1 != 0:
        return []
    return [f"no hits to judge by: on {_count(tuning['labelled'], 'labelled query')} FULL's best answer is never a label{best}: do labels count from 0?"]


def _estimate(tuning: dict[str, Any], row: Any, full: Any) -> list[str]:
    """What the choice of the best rests on: its hits, which are an estimate."""
    if not _by_hits(tuning, row, full) or not tuning["labelled"]:
        return []
    hits = round(tuning["labelled"] * row.p_at_1)
    rests = f"not proved: the best by {hits:,} hit{'' if hits == 1 else 's'} on {_count(tuning['labelled'], 'labelled query')}; "
    if full is None or full.p_at_1 == 0:
        return [rests + "FULL has none"]
    error = 100 * row.error_p_at_1
    return [rests + f"the standard error of its share of P@1 is {error:{'.2g' if error < 9.95 else '.0f'}}%"]


def _proof(tuning: dict[str, Any], row: Any, full: Any) -> list[str]:
    """What was shown, and by what."""
    met = row is not None and row.met == 1
    is_full = row is not None and row.method == 0
    needed = []
    if tuning["needed"] > tuning["labelled"]:
        needed = [f"about {_count(tuning['needed'], 'labelled query')} would show it by hits"]
    if tuning["target_us"] > 0:
        if row is None:
            return []
        if met:
            return ["nothing better was found: this is FULL itself"] if is_full else _estimate(tuning, row, full)
        return [f"nothing was as fast: this is {'FULL, the fastest' if is_full else 'the fastest'} that was found"]
    if is_full and met:
        return ["nothing else was shown to reach that, or was faster: this is FULL itself"] + needed
    if is_full:
        return ["nothing was shown to reach that: FULL itself is the best that was found"] + needed
    few = f"hits on {_count(tuning['labelled'], 'labelled query')} are too few to show it: shown by"
    lines = []
    if tuning["proof"] == "hits":
        line = f"shown by the hits on {_count(tuning['labelled'], 'labelled query')}: at least {100 * row.sure_p_at_1:.2f}% of FULL's P@1"
        lines = [line + (f" and {100 * row.sure_p_at_5:.2f}% of its P@5" if tuning["target5"] > 0 else "")]
    elif tuning["proof"] == "agreement" and tuning["target_agree"] > 0:
        lines = [f"shown by the answers themselves: at least {100 * row.sure_agreement:.2f}% of FULL's {tuning['k']} best"]
    elif tuning["proof"] == "agreement":
        lines = [f"{few} FULL's own answers, there and on"]
        lines.append(f"queries of the log that were held out; it has {100 * row.sure_agreement:.1f}% of its {tuning['k']} best for sure")
    elif tuning["proof"] == "held-out":
        lines = [f"{few} hits on {_count(tuning['held_out'], 'other query')} of the"]
        lines.append(f"log, held out from building; it has {100 * row.sure_agreement:.1f}% of FULL's {tuning['k']} best for sure")
    elif tuning["proof"] == "all-equal":
        few = f"{tuning['queries']:,} {'query is' if tuning['queries'] == 1 else 'queries are'} too few to show that"
        if tuning["target_agree"] >= 1 or max(tuning["target"], tuning["target5"]) == 1:
            few = "no number of queries shows that of cells that imitate FULL"
        elif tuning["provable"] not in ("all-equal", "none"):
            few = "no cells were shown to reach that"
        lines = [f"{few}; it looks through all classes, and here answered as FULL does"]
    elif row is not None and not met:
        lines = ["nothing was shown to reach that: this is the best that was found"]
    return lines + needed


def _curve_lines(index: "Index") -> list[str]:
    curve, tuning = index.curve, index.tuning
    if curve is None or tuning is None:
        return []
    if tuning["target_us"] > 0:
        goal = f"the best within {tuning['target_us']:.3g} us a query"
    elif tuning["target_agree"] > 0:
        goal = f"{tuning['target_agree']:g} of FULL's own {tuning['k']} best"
    else:
        goal = f"{tuning['target']:g} of FULL's P@1 and {tuning['target5']:g} of its P@5"
    lines = [f"tuned to {goal}, on {tuning['queries']:,} queries, batch {tuning['batch']:,}"]
    chosen = tuning["chosen"] if tuning["chosen"] < len(curve) else None
    row = curve[chosen] if chosen is not None else None
    full = next((r for r in curve if r.method == 0), None)
    if tuning["changed"]:
        n = tuning["changed"]
        lines.append(f"{n:,} class{'' if n == 1 else 'es'} added, replaced or removed since: these figures are of before")
    lines += _no_hits(tuning, row, full) + _proof(tuning, row, full)
    if tuning["built_from"]:
        lines.append(f"there was no time to build from all of the log: built from {tuning['built_from']:,} queries of it")
    nan = math.nan
    lines.append(f"{len(curve):,} tried; the exact layer and this index:")
    lines.append(f"{'P@1':>8}{'of FULL':>8}{'P@5':>8}{'of FULL':>8}{'agree':>8}{'classes':>10}{'us/query':>10}{'x FULL':>8}")
    for r in (full, row):
        if r is None or (r is row and full is not None and row.method == 0):
            continue
        times = (full.us if full is not None else nan) / r.us if r.us > 0 else nan
        lines.append(
            _figure(r.p_at_1, full.p_at_1 if full is not None else nan)
            + _figure(r.p_at_5, full.p_at_5 if full is not None else nan)
            + f"{r.agreement:8.4f}{r.classes:10.1f}{r.us:10.3g}"
            + (f"{times:8.3g}" if times < 1000 else f"{times:8.0f}")
            + f"  {r.settings}"
        )
    return lines


def index_text(index: "Index") -> str:
    """What print(index) shows."""
    info, options = index.info, index.options
    words = [f"method {info['method']}"]
    for name, value in options.items():
        if name not in ("method", "weights", "seed"):
            shown = int(value) if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else value
            words.append(f"{name} {shown}")
    kind = {"full": ": this is FULL, the exact layer", "screen": ": a screen: all classes in int8, and the best few exactly"}
    names = "with" if info["has_names"] else "without"
    lines = [f"index of {info['m']:,} classes and {info['d']:,} dimensions, {names} names{kind.get(info['method'], '')}"]
    lines += _wrap(words, "  ")
    lines.append(f"rows in the file: {options['weights']}; seed {options['seed']}")
    if info["full_from"]:
        which = f"to {info['full_to']:,} queries" if info["full_to"] else "queries and more"
        lines.append(f"batches of {info['full_from']:,} {which} are answered by FULL, which is faster there")
    if info["method"] == "screen":
        lines.append(f"all classes in int8; {_bytes(info['index_bytes'])}")
    elif info["method"] != "full":
        hold = "cell holds" if info["cells"] == 1 else "cells hold"
        lines.append(
            f"{info['cells']:,} {hold} {info['entries']:,} classes, the largest {info['largest_cell']:,}; "
            f"{info['empty_cells']:,} empty; {_bytes(info['index_bytes'])}"
        )
    if info["held_n"]:
        hits = f"P@1 {info['held_p_at_1']:.4f}, FULL's {info['held_full_p_at_1']:.4f}; "
        lines.append(
            f"on {_count(info['held_n'], 'query')} of the log that it did not know: "
            f"{'' if math.isnan(info['held_p_at_1']) else hits}FULL's best answer for {100 * info['held_same_best']:.1f}%"
        )
    if index._unjudged:
        lines.append(index._unjudged)
    if not math.isnan(info["same_best"]):
        lines.append(
            f"beside f32 rows, on logged queries: the same best answer for {100 * info['same_best']:.2f}%, "
            f"of the five best {100 * info['same_five']:.2f}%"
        )
    if not math.isnan(info["log_z_error"]):
        lines.append(
            f"log Z, on logged queries that it was not fitted to: error {info['log_z_error']:.4f} nats, "
            f"bias {info['log_z_bias']:+.4f}"
        )
    lines += _curve_lines(index)
    return "\n".join(lines)


def _cell(x: float, decimals: int) -> str:
    if math.isnan(x):
        return f"{'-':>12}"
    return f"{x:12,.0f}" if decimals == 0 else f"{x:12.{decimals}f}"


def _decimals(us: float) -> int:
    return 2 if us < 10 else 1 if us < 1000 else 0


def evaluation_text(e: "Evaluation", index: dict[str, Any]) -> str:
    """What print(evaluation) shows."""
    nan = math.nan
    lines = []

    def row(what: str, own: float, full: float, decimals: int, full_decimals: int, end: str = "") -> None:
        lines.append(f"{what:<34}{_cell(own, decimals)}{_cell(full, full_decimals)}{end}")

    def share(what: str, own: float, full: float) -> None:
        row(what, own, full, 4, 4, f"{100 * own / full:9.2f}%" if full > 0 else "")

    def time(what: str, own: float, full: float) -> None:
        times = full / own if own > 0 else nan
        end = f"{times:8.{1 if times < 100 else 0}f} x" if math.isfinite(times) else ""
        row(what, own, full, _decimals(own), _decimals(full), end)

    head = f"{e.n:,} queries"
    if e.without_label == e.n:
        head += ", no labels"
    elif e.without_label:
        head += f", {e.without_label:,} without a label not in P@k"
    if e.not_finite:
        head += f"; {e.not_finite:,} with numbers or scores that are not finite left out"
    lines.append(f"{head:<34}{index['method']:>12}{'FULL':>12}")
    first, last = index["full_from"], index["full_to"]
    if e.exact_share == 1 and first and e.batch >= first and (not last or e.batch <= last):
        other = 1 if first > 1 else last + 1  # 1: every batch is FULL's
        cells = f": batch={other} judges the cells" if first > 1 or last else ""
        lines.append(f"quality is that of batches of {e.batch:,}, which FULL answers{cells}")
    if not math.isnan(e.p_at_1):
        for k in (1, 3, 5):
            share(f"P@{k}", e[f"p_at_{k}"], e[f"full_p_at_{k}"])
    for k, agreement in e.agreement.items():
        row(f"share of FULL's best {k}", agreement, nan if math.isnan(agreement) else 1, 4, 0)
    row("classes a query", e.sample_size, index["m"], 1 if e.sample_size < 1000 else 0, 0, f"{100 * e.sample_size / index['m']:9.2f}%")
    row("queries without a class", e.empty_share, 0, 4, 0)
    if e.wider_share > 0:
        row("queries that knew little", e.wider_share, nan, 4, 0)
    if e.exact_share > 0:
        row("queries that FULL answered", e.exact_share, 1, 4, 0)
    if not math.isnan(e.label_recall):
        row("labels retrieved", e.label_recall, 1, 4, 0)
        row("mean rank of those", e.label_rank_retrieved, e.label_rank, 1, 1)
    if not math.isnan(e.perplexity):
        share("perplexity of the labels", e.perplexity, e.full_perplexity)
    if not math.isnan(e.log_z_error):
        row("log Z, error in nats", e.log_z_error, 0, 4, 0)
        row("probabilities sum to", e.probability_sum, 1, 4, 0)
    for t in e.timings:
        time(f"us/query, batch {t['batch']}, {t['threads']} thread{'s' if t['threads'] != 1 else ''}", t["us"], t["full_us"])
        row("  99th percentile", t["us_p99"], t["full_us_p99"], _decimals(t["us_p99"]), _decimals(t["full_us_p99"]))
    if e.timings:
        time("us, cold caches, batch 1", e.cold_us, e.full_cold_us)
        t = e.headline_timing
        row(f"CPU s per 1,000, batch {t['batch']}", t["cpu_s_per_1000"], t["full_cpu_s_per_1000"], 6, 6)
        if not math.isnan(e.energy_j_per_1000):
            row(f"J per 1,000, batch {t['batch']}", e.energy_j_per_1000, e.full_energy_j_per_1000, 4, 4)
    return "\n".join(lines)
