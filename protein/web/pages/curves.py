"""`/api/curves`: learning curves, thinned for the width at which they are drawn.

Which curves: those of the selected trials, or of the best, the newest, or trials spread from the best to the worst.
Long curves are thinned by the store to two points for each pixel, the lowest and the highest value of its stretch
(`protein.storage.reading`). Where very many curves are asked for, they share `MAX_POINTS`.
"""

import functools
import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from starlette.responses import Response
from starlette.routing import BaseRoute

from protein.analysis.columns import Column, Indices
from protein.columns import MAX_CURVE_POINTS, CurveColumns
from protein.errors import UsageError
from protein.ports import Store
from protein.spelling import nearest
from protein.trainer.kinds import kind_of
from protein.types import Direction, TrialState
from protein.web.answers import MAX_LENGTH, Query, get, plain, selected
from protein.web.frame import Floats, Frame, Table, quality, rounded
from protein.web.pages.table import order_of
from protein.web.viewer import MAX_SWEEPS, Viewer

PICKS = ("selected", "best", "newest", "spread")
MAX_CURVES = 500
DEFAULT_CURVES = 12
MAX_POINTS = 200_000  # of all curves together
MAX_KEPT_POINTS = 1_000_000  # 24 MB


def routes(viewer: Viewer) -> list[BaseRoute]:
    kept = _Kept()

    def curves(query: Query) -> Response:
        names = query.texts("sweep", most=MAX_SWEEPS)
        limit = query.integer("limit", DEFAULT_CURVES, least=1, most=MAX_CURVES)
        points = query.integer("points", 1200, least=4, most=MAX_CURVE_POINTS)
        metric = query.text("metric", most=300) or None
        group = query.text("group", most=300) or None
        pick = query.choice("pick", PICKS, "best")
        chosen = selected(query.text("sel", most=MAX_LENGTH), most=100_000)
        frames = viewer.frames(names)
        table, version = viewer.together(frames)
        metrics = curve_metrics(viewer, names)
        if metric is not None and metric not in metrics:
            raise UsageError(f"no curve has a metric '{metric[:80]}'{nearest(metric, metrics)}")
        if group is not None and group not in table.columns:
            raise UsageError(f"group: there is no column '{group[:80]}'{nearest(group, table.columns)}")
        matching = order_of(viewer, query, frames, table, version, "number")
        rows = picked(table, quality(frames), matching, pick, chosen)
        shown = rows[:limit]
        found = _read(viewer, kept, table, shown, metric, min(points, max(MAX_POINTS // max(len(shown), 1), 50)))
        return Response(
            json.dumps(
                {
                    "version": version,
                    "total": len(rows),
                    "metrics": metrics,
                    "group": None if group is None else plain(_group(table.columns[group], shown, group)),
                    "curves": found,
                },
                allow_nan=False,
                separators=(",", ":"),
            ).encode("utf-8", "replace"),
            media_type="application/json",
        )

    return [get("/curves", curves)]


def picked(table: Table, quality: Floats, matching: Indices, pick: str, chosen: dict[str, list[int]]) -> Indices:
    """Returns the rows of a table whose curves are shown, the most wanted first.

    Args:
        table: the trials, `n`.
        quality: `n`, see `quality`.
        matching: rows to choose from.
        pick: of `PICKS`. Excluded trials and such without a score are not among the best, nor spread.
        chosen: the selected numbers by sweep.
    """
    number, sweep = table.columns["number"].values, table.columns["sweep"]
    if pick == "selected":
        parts = []
        for name, numbers in chosen.items():
            if name in sweep.words:
                mine = matching[sweep.values[matching] == sweep.words.index(name)]
                place = {n: i for i, n in enumerate(numbers)}
                own = mine[np.isin(number[mine], numbers)]
                parts.append(own[np.argsort([place[int(n)] for n in number[own]], kind="stable")])
        return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)
    started = table.columns["started_at"].values
    if pick == "newest":
        newest: Indices = matching[np.lexsort((-number[matching], -started[matching]))]
        return newest
    usable = ~np.isnan(quality[matching]) & ~table.columns["excluded"].values[matching].astype(bool)
    rows = matching[usable]
    best_first: Indices = rows[np.lexsort((number[rows], -quality[rows]))]
    if pick == "best" or len(best_first) <= 2:
        return best_first
    # Spread: each further one halves the largest gap, so that any first few are spread.
    return best_first[spread_order(len(best_first))]


def spread_order(count: int) -> Indices:
    """Returns the positions 0 to `count` - 1 in an order whose first few are spread evenly, for every first few."""
    size = 1 << max(count - 1, 1).bit_length()
    bits = size.bit_length() - 1
    reversed_bits = np.zeros(size, np.int64)
    for bit in range(bits):
        reversed_bits |= ((np.arange(size) >> bit) & 1) << (bits - 1 - bit)
    rest = reversed_bits[reversed_bits < count]
    ends = [0, count - 1] if count > 1 else [0]
    return np.array([*ends, *(one for one in rest.tolist() if one not in ends)], np.int64)


def _read(
    viewer: Viewer, kept: "_Kept", table: Table, rows: Indices, metric: str | None, points: int
) -> list[dict[str, Any]]:
    sweeps, numbers = table.columns["sweep"].listed(rows), table.columns["number"].listed(rows)
    behind = table.columns["continued_seconds"].floats()[rows]
    state, score = table.columns["state"].listed(rows), table.columns["score"].listed(rows)
    cost = table.columns["cost_seconds"].listed(rows)
    by_sweep: dict[str, dict[int, CurveColumns]] = {}
    units: dict[str, str] = {}
    for name in dict.fromkeys(str(name) for name in sweeps):
        own = {int(str(n)): state[i] for i, (n, of) in enumerate(zip(numbers, sweeps, strict=True)) if of == name}
        finished = [number for number, one in own.items() if one not in (TrialState.RUNNING, TrialState.WAITING)]
        units[name] = kind_of(viewer.sweep(name).spec.config).unit
        by_sweep[name] = kept.curves(viewer.store, viewer.sweep(name).id, list(own), finished, points, metric)
    found = []
    for i, (of, number) in enumerate(zip(sweeps, numbers, strict=True)):
        curve = by_sweep[str(of)].get(int(str(number)))
        if curve is None:
            continue
        flips = metric is None and viewer.sweep(str(of)).spec.direction is Direction.MINIMIZE
        value = -curve.value + 0.0 if flips else curve.value
        usable = np.isfinite(value)
        own_seconds = rounded(curve.elapsed_seconds[usable])
        seconds = rounded(curve.elapsed_seconds[usable] + behind[i]) if behind[i] > 0 else own_seconds
        found.append(
            {
                "sweep": of,
                "number": number,
                "state": state[i],
                "score": plain(score[i]),
                "cost_seconds": plain(cost[i]),
                "points": curve.num_points,
                "steps": curve.steps[usable].tolist(),
                "unit": units[str(of)],
                "seconds": seconds.tolist(),
                **({"own_seconds": own_seconds.tolist()} if behind[i] > 0 else {}),
                "value": rounded(value[usable]).tolist(),
            }
        )
    return found


class _Kept:
    """Thinned curves of finished trials, which never change: thinning two million points takes seconds."""

    def __init__(self) -> None:
        self._curves: OrderedDict[tuple[int, int, int, str | None], CurveColumns] = OrderedDict()
        self._num_points = 0
        self._lock = threading.Lock()

    def curves(
        self,
        store: Store,
        sweep_id: int,
        numbers: Sequence[int],
        finished: Sequence[int],
        points: int,
        metric: str | None,
    ) -> dict[int, CurveColumns]:
        """Returns what `Store.curves` does; `finished` are the numbers whose curves may be kept."""
        found: dict[int, CurveColumns] = {}
        with self._lock:
            for number in numbers:
                key = (sweep_id, number, points, metric)
                if key in self._curves:
                    self._curves.move_to_end(key)
                    found[number] = self._curves[key]
        missing = [number for number in numbers if number not in found]
        if missing:
            read = store.curves(sweep_id, missing, points, metric=metric)
            found |= read
            with self._lock:
                for number in finished:
                    key = (sweep_id, number, points, metric)
                    if number in read and key not in self._curves:
                        self._curves[key] = read[number]
                        self._num_points += len(read[number].value)
                while self._num_points > MAX_KEPT_POINTS:
                    _, dropped = self._curves.popitem(last=False)
                    self._num_points -= len(dropped.value)
        return found


def _group(column: Column, rows: Indices, key: str) -> dict[str, Any]:
    """Returns what curves are coloured by: a value for each of some rows."""
    return {"key": key, "kind": str(column.kind), "values": column.listed(rows)}


def curve_metrics(viewer: Viewer, names: Sequence[str]) -> list[str]:
    """Returns the names of what the curves of these sweeps have beside the score, sorted.

    All trials of a sweep report the same, so one of each is looked at: the shortest that was trained to its end.
    """
    found: set[str] = set()
    for frame in viewer.frames(names):
        steps = frame.columns["steps"].values
        cost = frame.columns["cost_seconds"].floats()
        complete = ~np.isnan(frame.stored_score())
        with_curve = (
            np.flatnonzero((steps > 0) & complete) if (steps[complete] > 0).any() else np.flatnonzero(steps > 0)
        )
        if len(with_curve):
            row = with_curve[int(np.argmin(cost[with_curve]))]
            number = int(frame.numbers[row])
            key = ("curve-metrics", frame.sweep.id, number, int(frame.revisions[row]))
            found |= viewer.remembered(key, functools.partial(_metrics_of, viewer, frame, number))
    return sorted(found)


def _metrics_of(viewer: Viewer, frame: Frame, number: int) -> set[str]:
    return {name for point in viewer.store.trial(frame.sweep.id, number).curve for name in point.metrics}
