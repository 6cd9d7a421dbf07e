"""Reports on the cells: means, paired differences with intervals, and where a method is worse.

A mean is taken over seeds in each family first, then over families. So all families have the same weight, also where
slow methods have fewer seeds. A difference is the mean over the cells (family, seed) that both methods have; its
interval is the central 90 % of that mean under resampling of the cells.

`to90` is the median of the mean random-trial costs until the incumbent's truth reached .90, a cell that never did
counting as infinite ("-" where that is the median), with the share of cells that did.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from engine.tasks import FAMILIES, SOURCES

Row = dict[str, Any]

METRICS = ("best", "volume", "area")
OURS = "protein"
_NUM_RESAMPLED = 4000


def tables(rows: Sequence[Row]) -> list[str]:
    """Returns the whole report of one budget's cells: overall, by group, by family, and what is below random."""
    methods = _ranked([row for row in rows if not row["method"].startswith(f"{OURS}:")])
    rows = [row for row in rows if row["method"] in methods]
    lines = overall(rows, methods)
    for group, families in SOURCES.items():
        own = [row for row in rows if row["family"] in families]
        if own and len(own) < len(rows):
            lines += ["", f"{group}: {', '.join(f for f in families if any(r['family'] == f for r in own))}"]
            lines += overall(own, methods)
    return [*lines, *by_family(rows, methods), "", *below_random(rows, methods)]


def ablations(rows: Sequence[Row]) -> list[str]:
    """Returns a table of the engine's changed settings against the engine as shipped."""
    variants = sorted({row["method"] for row in rows if row["method"].startswith(f"{OURS}:")})
    chosen = [row for row in rows if row["method"] == OURS or row["method"] in variants]
    return overall(chosen, [OURS, *variants]) + by_family(chosen, [OURS, *variants])


def overall(rows: Sequence[Row], methods: Sequence[str]) -> list[str]:
    """Returns one line for each method: means, differences to ours, costs to 90 and 95 %; and ours against the best."""
    present = [method for method in methods if any(row["method"] == method for row in rows)]
    width = max(len(method) for method in (*present, OURS + " - best peer"))
    head = f"{'':<{width}} cells" + "".join(f"  {metric:>6} {'minus ours':<21}" for metric in METRICS)
    lines = [f"{head}  fail  to90          to95          trials  think s"]
    for method in present:
        own = [row for row in rows if row["method"] == method]
        line = f"{method:<{width}} {len(own):>5}"
        for metric in METRICS:
            gap = "" if method == OURS else _signed(difference(rows, method, OURS, metric))
            line += f"  {mean(own, metric):>6.3f} {gap:<21}"
        line += f"  {mean(own, 'fail'):>4.2f}  {_reached(own, 'to90'):<12}  {_reached(own, 'to95'):<12}"
        lines.append(f"{line}  {mean(own, 'trials'):>6.0f}  {mean(own, 'think'):>7.3f}")
    line = f"{OURS + ' - best peer':<{width}} {'':>5}"
    for metric in METRICS:
        best = best_peer(rows, metric)
        if best is None or OURS not in present:
            return lines
        line += f"  {'':>6} {_signed(difference(rows, OURS, best, metric)):<21}"
    names = ", ".join(f"{metric} {best_peer(rows, metric)}" for metric in METRICS)
    return [*lines, f"{line}  (best peers: {names})"]


def by_family(rows: Sequence[Row], methods: Sequence[str]) -> list[str]:
    """Returns one block of lines for each metric: the means of each method in each family."""
    families = [family for family in FAMILIES if any(row["family"] == family for row in rows)]
    width = max(len(method) for method in methods)
    lines = []
    for metric in METRICS:
        lines += ["", f"{metric:<{width}}" + "".join(f"{family:>{max(8, len(family) + 1)}}" for family in families)]
        for method in methods:
            line = f"{method:<{width}}"
            for family in families:
                own = [row[metric] for row in rows if row["method"] == method and row["family"] == family]
                line += f"{f'{np.mean(own):.3f}' if own else '-':>{max(8, len(family) + 1)}}"
            lines.append(line)
    return lines


def below_random(rows: Sequence[Row], methods: Sequence[str]) -> list[str]:
    """Returns for each method the families in which its mean is below random's, on the seeds that both have."""
    lines = []
    for method in methods:
        worse = []
        for family in FAMILIES:
            own = [row for row in rows if row["family"] == family]
            for metric in METRICS:
                gaps = paired(own, method, "random", metric)
                if len(gaps) and np.mean(gaps) < 0:
                    worse.append(f"{family} {metric} {np.mean(gaps):+.3f}")
        if method != "random":
            lines.append(f"{method} below random: {', '.join(worse) or 'nowhere'}")
    return lines


def best_peer(rows: Sequence[Row], metric: str) -> str | None:
    """Returns the method of highest mean that is not ours; None where there is none."""
    peers = {row["method"] for row in rows if row["method"].partition(":")[0] != OURS}
    return max(sorted(peers), key=lambda m: mean([r for r in rows if r["method"] == m], metric), default=None)


def mean(rows: Sequence[Row], metric: str) -> float:
    """Returns the mean over families of the mean over seeds."""
    families = {row["family"] for row in rows}
    return float(np.mean([np.mean([r[metric] for r in rows if r["family"] == family]) for family in families]))


def paired(rows: Sequence[Row], method: str, other: str, metric: str) -> list[float]:
    """Returns the differences of two methods in the cells that both have."""
    values = {(r["method"], r["family"], r["seed"]): r[metric] for r in rows if r["method"] in (method, other)}
    return [v - values[other, f, s] for (m, f, s), v in values.items() if m == method and (other, f, s) in values]


def difference(rows: Sequence[Row], method: str, other: str, metric: str) -> tuple[float, float, float] | None:
    """Returns the mean paired difference and its 90 % interval (low, high); None without common cells."""
    gaps = np.array(paired(rows, method, other, metric))
    if not len(gaps):
        return None
    drawn = np.random.default_rng(0).integers(0, len(gaps), (_NUM_RESAMPLED, len(gaps)))
    low, high = np.quantile(gaps[drawn].mean(axis=1), [0.05, 0.95])
    return float(gaps.mean()), float(low), float(high)


def _ranked(rows: Sequence[Row]) -> list[str]:
    """Methods, ours first, then by their mean over the three metrics."""
    methods = {row["method"] for row in rows}
    total = {m: sum(mean([r for r in rows if r["method"] == m], metric) for metric in METRICS) for m in methods}
    return sorted(methods, key=lambda m: (m != OURS, -total[m], m))


def _signed(gap: tuple[float, float, float] | None) -> str:
    return "" if gap is None else f"{gap[0]:+.3f} [{gap[1]:+.2f}, {gap[2]:+.2f}]"


def _reached(rows: Sequence[Row], name: str) -> str:
    costs = np.array([np.inf if row[name] is None else row[name] for row in rows])
    # The lower of the two middle values of an even number: the mean of a number and infinity would be useless.
    middle = float(np.sort(costs)[(len(costs) - 1) // 2])
    return f"{middle if np.isfinite(middle) else '-':>5} ({np.mean(np.isfinite(costs)):.0%})"
