"""Reports on the cells: means, paired differences with intervals, and where a method is worse.

A mean is taken over seeds in each family first, then over the families of each source, then over sources. So all
sources have the same weight, and in a source all families, also where slow methods have fewer seeds.

A difference is that mean of the differences in the cells (family, seed) that both methods have. Its interval is the
central 90 % under resampling of the cells inside each family, each departure from the family's mean widened by
sqrt(n / (n - 1)) for its n cells. So it tells what other seeds of the same families would give; a family with a single
cell adds nothing to it.

`worse` is the share of sweeps, with an initial config, that hand over one which is truly worse than it, with its 90 %
interval (Wilson's, for as many sweeps as the weights are worth). `overtuned` is by how much the config handed over is
worse than the best that stood there before: 0 where the truth only rose. The incumbents are those of `trace`, so it is
a little too low. Source: Schneider, Bischl and Feurer, Overtuning in Hyperparameter Optimization (2025,
arXiv 2506.19540), definition of overtuning; `worse` is their relative overtuning above 1. They count the default
config's test error, and a cell the truth, in which everything below the median random config is 0.

`to90` is the median of the mean random-trial costs until the incumbent's truth reached .90, a cell that never did
counting as infinite ("-" where that is the median), with the share of cells that did.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from engine.cells import DEFAULT
from engine.tasks import FAMILIES, SOURCES
from numpy.typing import NDArray

Row = dict[str, Any]

METRICS = ("best", "volume", "area")
# Older cells lack these figures; then a mean is left out, because it would be one over other tasks.
DETAILS = ("measured", "recommended", "tried", "area_measured")
OURS, BASELINE = "protein", "random"
_NUM_RESAMPLED = 2000
_Z90 = 1.645  # of a 90 % interval
_SOURCE_OF = {family: source for source, families in SOURCES.items() for family in families}


def tables(rows: Sequence[Row]) -> list[str]:
    """Returns the whole report of one budget's cells: over sources, each source, by family, what is below random."""
    end = overtuning(rows)
    methods = _ranked([row for row in rows if not row["method"].startswith(f"{OURS}:")])
    rows = [row for row in rows if row["method"] in methods]
    sources = [source for source in SOURCES if any(_SOURCE_OF[row["family"]] == source for row in rows)]
    lines = ["", f"mean over sources: {', '.join(sources)}", *overall(rows, methods)]
    for source in sources if len(sources) > 1 else []:
        own = [row for row in rows if _SOURCE_OF[row["family"]] == source]
        families = [family for family in SOURCES[source] if any(row["family"] == family for row in own)]
        lines += ["", f"{source}: {', '.join(families)}", *overall(own, methods)]
    return [*lines, *by_family(rows, methods), "", *below_random(rows, methods), *end]


def ablations(rows: Sequence[Row]) -> list[str]:
    """Returns a table of the engine's changed settings against the engine as shipped."""
    variants = sorted({row["method"] for row in rows if row["method"].startswith(f"{OURS}:")})
    chosen = [row for row in rows if row["method"] == OURS or row["method"] in variants]
    return overall(chosen, [OURS, *variants]) + by_family(chosen, [OURS, *variants])


def overall(rows: Sequence[Row], methods: Sequence[str]) -> list[str]:
    """Returns one line for each method: means, differences to random and ours, costs to 90 and 95 %; and ours against
    the best peer."""
    present = [method for method in methods if any(row["method"] == method for row in rows)]
    width = max(len(method) for method in (*present, OURS + " - best peer"))
    metric_head = "".join(f"  {metric:>6} {f'minus {BASELINE}':<21} {'minus ours':<21}" for metric in METRICS)
    details = "".join(f"  {detail}" for detail in DETAILS)
    lines = [f"{'':<{width}} sources cells{metric_head}{details}  fail  to90          to95          trials  think s"]
    for method in present:
        own = [row for row in rows if row["method"] == method]
        line = f"{method:<{width}} {_num_sources(rows, method):>7} {len(own):>5}"
        for metric in METRICS:
            line += f"  {mean(own, metric):>6.3f}"
            for other in (BASELINE, OURS):
                gap = "" if method == other else _signed(difference(rows, method, other, metric))
                line += f" {gap:<21}"
        for detail in DETAILS:
            known = all(detail in row for row in own)
            line += f"  {f'{mean(own, detail):.3f}' if known else '-':>{len(detail)}}"
        line += f"  {mean(own, 'fail'):>4.2f}  {_reached(own, 'to90'):<12}  {_reached(own, 'to95'):<12}"
        lines.append(f"{line}  {mean(own, 'trials'):>6.0f}  {mean(own, 'think'):>7.3f}")
    line = f"{OURS + ' - best peer':<{width}} {'':>7} {'':>5}"
    for metric in METRICS:
        best = best_peer(rows, metric)
        if best is None or OURS not in present:
            return lines
        line += f"  {'':>6} {'':<21} {_signed(difference(rows, OURS, best, metric)):<21}"
    names = ", ".join(f"{metric} {best_peer(rows, metric)}" for metric in METRICS)
    return [*lines, f"{line}  (best peers: {names})"]


def overtuning(rows: Sequence[Row]) -> list[str]:
    """Returns one line for each method and source, `worse` and `overtuned`, and `worse` by family; no line where no
    sweep had an initial config."""
    rows = [row | _overtuned(row) for row in rows if row.get("initial") is not None and row["start"] == DEFAULT]
    if not rows:
        return []
    methods = _ranked(rows)
    width = max(len(method) for method in methods)
    lines = ["", "worse than the initial config (with 90 % interval), and overtuned; in brackets the sweeps"]
    lines.append(f"{'':<{width}}" + "".join(f"  {source:<30}" for source in ("all sources", *SOURCES)))
    for method in methods:
        line = f"{method:<{width}}"
        for source in (None, *SOURCES):
            own = [r for r in rows if r["method"] == method and source in (None, _SOURCE_OF[r["family"]])]
            text = "-"
            if own:
                share, low, high = worse(own)
                text = f"{share:4.0%} [{low:3.0%}, {high:4.0%}] {mean(own, 'overtuned'):.3f} ({len(own)})"
            line += f"  {text:<30}"
        lines.append(line)
    return [*lines, *by_family(rows, methods, ("worse",))]


def worse(rows: Sequence[Row]) -> tuple[float, float, float]:
    """Returns the weighted mean of `worse` and its 90 % interval (low, high)."""
    weights = cell_weights(rows)
    share, n = float(weights @ np.array([row["worse"] for row in rows])), 1.0 / float(weights @ weights)
    scale = 1.0 + _Z90**2 / n
    middle = (share + _Z90**2 / (2.0 * n)) / scale
    half = _Z90 * np.sqrt(max(share * (1.0 - share), 0.0) / n + _Z90**2 / (4.0 * n * n)) / scale
    return share, float(max(middle - half, 0.0)), float(min(middle + half, 1.0))


def _overtuned(row: Row) -> Row:
    best = row["best"]
    return {"worse": float(best < row["initial"]), "overtuned": max(max(row["trace"]) / 1000.0 - best, 0.0)}


def by_family(rows: Sequence[Row], methods: Sequence[str], metrics: Sequence[str] = METRICS) -> list[str]:
    """Returns one block of lines for each metric: the means of each method in each family."""
    families = [family for family in FAMILIES if any(row["family"] == family for row in rows)]
    width = max(len(method) for method in methods)
    lines = []
    for metric in metrics:
        lines += ["", f"{metric:<{width}}" + "".join(f"{family:>{max(8, len(family) + 1)}}" for family in families)]
        for method in methods:
            line = f"{method:<{width}}"
            for family in families:
                own = [row[metric] for row in rows if row["method"] == method and row["family"] == family]
                line += f"{f'{np.mean(own):.3f}' if own else '-':>{max(8, len(family) + 1)}}"
            lines.append(line)
    return lines


def below_random(rows: Sequence[Row], methods: Sequence[str]) -> list[str]:
    """Returns for each method the families in which its mean is below random's, on the seeds that both have.

    "!" marks a difference whose interval, from two cells or more, leaves out 0.
    """
    lines = []
    for method in methods:
        worse = []
        for family in FAMILIES:
            own = [row for row in rows if row["family"] == family]
            for metric in METRICS:
                gap, cells = difference(own, method, BASELINE, metric), len(paired(own, method, BASELINE, metric))
                if gap is not None and gap[0] < 0:
                    worse.append(f"{family} {metric} {gap[0]:+.3f}{'!' if gap[2] < 0 and cells > 1 else ''}")
        if method != BASELINE:
            lines.append(f"{method} below {BASELINE}: {', '.join(worse) or 'nowhere'}")
    return lines


def best_peer(rows: Sequence[Row], metric: str) -> str | None:
    """Returns the method of highest mean that is not ours; None where there is none.

    Methods that were not run on every source are left out, if any other was: their means are over other tasks.
    """
    peers = {row["method"] for row in rows if row["method"].partition(":")[0] != OURS}
    most = max((_num_sources(rows, peer) for peer in peers), default=0)
    peers = {peer for peer in peers if _num_sources(rows, peer) == most}
    return max(sorted(peers), key=lambda m: mean([r for r in rows if r["method"] == m], metric), default=None)


def cell_weights(rows: Sequence[Row]) -> NDArray[np.float64]:
    """Returns the weight of each cell of one method in the mean over sources, their families and their seeds, `n`."""
    families = [row["family"] for row in rows]
    sources = {family: _SOURCE_OF[family] for family in families}
    num_families = [sum(own == sources[family] for own in sources.values()) for family in families]
    return np.array(
        [
            1.0 / (len(set(sources.values())) * n * families.count(f))
            for f, n in zip(families, num_families, strict=True)
        ]
    )


def mean(rows: Sequence[Row], metric: str) -> float:
    """Returns the mean over sources of the mean over their families of the mean over seeds."""
    return float(cell_weights(rows) @ np.array([row[metric] for row in rows]))


def paired(rows: Sequence[Row], method: str, other: str, metric: str) -> dict[tuple[str, int], float]:
    """Returns the differences of two methods in the cells (family, seed) that both have."""
    values = {(r["method"], r["family"], r["seed"]): r[metric] for r in rows if r["method"] in (method, other)}
    return {
        (f, s): v - values[other, f, s] for (m, f, s), v in values.items() if m == method and (other, f, s) in values
    }


def difference(rows: Sequence[Row], method: str, other: str, metric: str) -> tuple[float, float, float] | None:
    """Returns the mean paired difference and its 90 % interval (low, high); None without common cells."""
    gaps = paired(rows, method, other, metric)
    if not gaps:
        return None
    rng = np.random.default_rng(0)
    weight = dict(zip(gaps, cell_weights([{"family": family} for family, _ in gaps]), strict=True))
    total, drawn = 0.0, np.zeros(_NUM_RESAMPLED)
    for family in sorted({family for family, _ in gaps}):
        own = np.array([gap for (f, _), gap in gaps.items() if f == family])
        share = sum(weight[cell] for cell in gaps if cell[0] == family)
        widened = own.mean() + (own - own.mean()) * np.sqrt(len(own) / max(len(own) - 1, 1))
        total += share * own.mean()
        drawn += share * widened[rng.integers(0, len(own), (_NUM_RESAMPLED, len(own)))].mean(axis=1)
    low, high = np.quantile(drawn, [0.05, 0.95])
    return float(total), float(low), float(high)


def _ranked(rows: Sequence[Row]) -> list[str]:
    """Methods, ours first, then those with the most sources, by their mean over the three metrics."""
    methods = {row["method"] for row in rows}
    total = {m: sum(mean([r for r in rows if r["method"] == m], metric) for metric in METRICS) for m in methods}
    return sorted(methods, key=lambda m: (m != OURS, -_num_sources(rows, m), -total[m], m))


def _num_sources(rows: Sequence[Row], method: str) -> int:
    return len({_SOURCE_OF[row["family"]] for row in rows if row["method"] == method})


def _signed(gap: tuple[float, float, float] | None) -> str:
    return "" if gap is None else f"{gap[0]:+.3f} [{gap[1]:+.2f}, {gap[2]:+.2f}]"


def _reached(rows: Sequence[Row], name: str) -> str:
    costs = np.array([np.inf if row[name] is None else row[name] for row in rows])
    # The lower of the two middle values of an even number: the mean of a number and infinity would be useless.
    middle = float(np.sort(costs)[(len(costs) - 1) // 2])
    return f"{middle if np.isfinite(middle) else '-':>5} ({np.mean(np.isfinite(costs)):.0%})"
