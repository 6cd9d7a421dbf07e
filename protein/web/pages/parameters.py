"""The page of parameters: what matters, parallel coordinates, what the model expects, scatter of any two fields.

`/api/parallel`     one row a trial, and the axes
`/api/scatter`      two or three fields of many trials
`/api/matters`      what matters, with best values and laws (`protein.api.answers`)
`/api/importance`   three other methods (`protein.analysis.importance`)
`/api/slices`       the engine's model along each parameter (`protein.analysis.model_maps`), and parameters whose best
                    values lie on the end of their range (`protein.analysis.range_ends`)
`/api/map`          the model over two parameters

Models are fitted to one sweep, in a thread, once for the same finished trials (`protein.web.findings`). While a model
of newer trials is computed, answers come from the last one, and `fitting` is true. That there is no model yet, because
a sweep has just begun, is no error: such an answer has a `problem`, a line for people.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from starlette.routing import BaseRoute

from protein.analysis import importance
from protein.analysis.columns import Column, Indices, Kind
from protein.analysis.matters import TARGETS, Target
from protein.analysis.model_maps import Axis, SweepModel
from protein.api.recommended import score_range
from protein.columns import cell, cells, value_of
from protein.direction import shown_estimate
from protein.engine.gp import Array
from protein.engine.history import readable
from protein.engine.results import MEANING, RangeEnd
from protein.errors import UsageError
from protein.space import Categorical, Space
from protein.spelling import nearest
from protein.types import Estimate, Observation, ParamValue
from protein.view.text import Range, best_values, within
from protein.web.answers import NotFound, Query, StillComputing, get
from protein.web.findings import answers, fitted, one_sweep, space_of
from protein.web.frame import Frame, Table, quality, rounded
from protein.web.pages.table import order_of
from protein.web.viewer import MAX_SWEEPS, Viewer

MAX_LINES = 3_000  # of parallel coordinates
DEFAULT_LINES = 1_000
MAX_DOTS = 20_000  # of a scatter
MAX_MODEL_DOTS = 1_000  # trials beside a slice or a map
_RESULTS = ("cost_seconds", "score")  # the last axes of parallel coordinates


def routes(viewer: Viewer) -> list[BaseRoute]:
    pages = {"parallel": _parallel, "scatter": _scatter, "matters": _matters, "importance": _importance}
    pages |= {"slices": _slices, "map": _map}
    return [get(f"/{path}", functools.partial(answer, viewer)) for path, answer in pages.items()]


def _parallel(viewer: Viewer, query: Query) -> dict[str, Any]:
    names = query.texts("sweep", most=MAX_SWEEPS)
    limit = query.integer("limit", DEFAULT_LINES, least=1, most=MAX_LINES)
    frames = viewer.frames(names)
    table, version = viewer.together(frames)
    rows = order_of(viewer, query, frames, table, version, "number")
    rows = rows[~np.isnan(table.columns["score"].floats()[rows])]
    shown = some(rows, quality(frames), limit)
    keys = [*(f"params.{name}" for name in table.group("params")), *_RESULTS]
    spaces = _spaces(frames)
    return {
        "version": version,
        "total": len(rows),
        "trials": _names(table, shown),
        "axes": [
            {**axis(key, table.columns[key], rows, spaces), "values": _values(table.columns[key], shown)}
            for key in keys
        ],
    }


def _scatter(viewer: Viewer, query: Query) -> dict[str, Any]:
    names = query.texts("sweep", most=MAX_SWEEPS)
    limit = query.integer("limit", 5_000, least=1, most=MAX_DOTS)
    frames = viewer.frames(names)
    table, version = viewer.together(frames)
    keys = {name: query.text(name, default) for name, default in (("x", "cost_seconds"), ("y", "score"), ("color", ""))}
    for name, key in keys.items():
        if key and key not in table.columns:
            raise UsageError(f"{name}: there is no column '{key[:80]}'{nearest(key, table.columns)}")
    rows = order_of(viewer, query, frames, table, version, "number")
    for name in ("x", "y"):
        rows = rows[~table.columns[keys[name]].missing[rows]]
    shown = some(rows, quality(frames), limit)
    spaces = _spaces(frames)
    return {
        "version": version,
        "total": len(rows),
        "trials": _names(table, shown),
        "state": table.columns["state"].listed(shown),
        **{
            name: {**axis(key, table.columns[key], rows, spaces), "values": _values(table.columns[key], shown)}
            for name, key in keys.items()
            if key
        },
    }


def _matters(viewer: Viewer, query: Query) -> dict[str, Any]:
    frame = viewer.frame(one_sweep(query.texts("sweep", most=MAX_SWEEPS)))
    target = _target(query)
    try:
        space_of(frame)
    except UsageError as error:
        return {"problem": str(error)}
    found, fitting = fitted(viewer, frame, ("matters", target), lambda: answers(viewer, frame).matters(target))
    if found.problem:
        return {"fitting": fitting, "problem": found.problem}
    return {
        "fitting": fitting,
        "meaning": MEANING,
        "num_trials": found.num_trials,
        "best_seconds": found.best_seconds,
        "parameters": [
            {
                **{name: dataclasses.asdict(getattr(one, name)) for name in ("share", "whole", "alone")},
                **{name: getattr(one, name) for name in ("name", "verdict", "is_cost", "active", "law")},
                "best": best_values(one),
            }
            for one in found.parameters
        ],
        "pairs": [
            {"names": one.names, "share": dataclasses.asdict(one.share), "verdict": one.share.verdict}
            for one in found.pairs
        ],
    }


def _target(query: Query) -> Target:
    return "cost" if query.choice("target", TARGETS, "score") == "cost" else "score"


def _importance(viewer: Viewer, query: Query) -> dict[str, Any]:
    frame = viewer.frame(one_sweep(query.texts("sweep", most=MAX_SWEEPS)))
    target = _target(query)
    try:
        space = space_of(frame)
    except UsageError as error:
        return {"problem": str(error)}

    def make() -> list[importance.Importance]:
        seen = [one for one in answers(viewer, frame).finished if not one.excluded]
        return viewer.compute(len(frame), _importances, space, seen, target)

    found, fitting = fitted(viewer, frame, ("importance", target), make)
    return {
        "fitting": fitting,
        "names": space.names,
        "methods": [{field.name: getattr(one, field.name) for field in dataclasses.fields(one)} for one in found],
    }


def _slices(viewer: Viewer, query: Query) -> dict[str, Any]:
    frame = viewer.frame(one_sweep(query.texts("sweep", most=MAX_SWEEPS)))
    try:
        found, ends, fitting = _model(viewer, frame)
    except StillComputing:  # the page asks again
        raise
    except UsageError as error:
        return {"problem": str(error)}
    anchor, seconds, about = _anchor(query, frame, found)
    points = query.integer("points", 41, least=2, most=101)
    dots = _Dots.of(frame, found)
    flip, possible = frame.sweep.spec.direction, score_range(frame.sweep.spec)
    listed = []
    here = found.space.from_unit(anchor)
    for name in here:  # one that is not active there has no slice
        one = found.slice(name, anchor, seconds=seconds, num_points=points)
        listed.append(
            {
                "name": name,
                "axis": _axis(one.axis),
                "here": cell(here[name]),
                "estimates": _estimates([shown_estimate(score, flip) for score in one.scores], possible),
                "cost_seconds": rounded(one.cost_seconds),
                "valid": one.valid,
                "reach": one.reach,
                "closeness": np.round(found.closeness(dots.x_unit, anchor, [name]), 3),
            }
        )
    return {
        "fitting": fitting,
        "anchor": about,
        "seconds": seconds,
        "cost_parameter": found.space.cost_parameter,
        "basis": found.basis,
        "num_scores": found.num_scores,
        "inactive": [name for name in found.space.names if name not in here],
        "slices": listed,
        "trials": dots.answer(),
        "range_ends": [
            {
                "name": end.name,
                "end": end.end,
                "bound": end.bound,
                "best_value": end.best_value,
                "probability": end.probability,
                "natural": end.natural,
                "text": end.text(),
            }
            for end in ends
        ],
    }


def _map(viewer: Viewer, query: Query) -> dict[str, Any]:
    frame = viewer.frame(one_sweep(query.texts("sweep", most=MAX_SWEEPS)))
    try:
        found, _, fitting = _model(viewer, frame)
    except StillComputing:  # the page asks again
        raise
    except UsageError as error:
        return {"problem": str(error)}
    anchor, seconds, about = _anchor(query, frame, found)
    name_x, name_y = query.text("x"), query.text("y")
    here = found.space.from_unit(anchor)
    points = query.integer("points", 31, least=2, most=61)
    one = found.map(name_x, name_y, anchor, seconds=seconds, num_points=points)
    dots = _Dots.of(frame, found)
    flips = frame.sweep.spec.direction.value == "minimize"
    sign = -1.0 if flips else 1.0
    low, high = (one.high, one.low) if flips else (one.low, one.high)
    possible = score_range(frame.sweep.spec) or (-math.inf, math.inf)
    return {
        "fitting": fitting,
        "anchor": about,
        "seconds": seconds,
        "x": {**_axis(one.x), "here": cell(here[name_x])},
        "y": {**_axis(one.y), "here": cell(here[name_y])},
        "value": rounded(np.clip(sign * one.value, *possible)),
        "low": rounded(np.clip(sign * low, *possible)),
        "high": rounded(np.clip(sign * high, *possible)),
        "cost_seconds": rounded(one.cost_seconds),
        "valid": one.valid,
        "trials": {
            **dots.answer(),
            "closeness": np.round(found.closeness(dots.x_unit, anchor, [name_x, name_y]), 3),
        },
    }


def _model(viewer: Viewer, frame: Frame) -> tuple[SweepModel, list[RangeEnd], bool]:
    """Returns the model, the ends of ranges by it, and whether a newer one is being fitted. Raises as `fitted`."""
    space_of(frame)

    def make() -> tuple[SweepModel, list[RangeEnd]]:
        known = answers(viewer, frame)
        return known.model(), list(known.range_ends())

    (found, ends), fitting = fitted(viewer, frame, "model", make)
    return found, ends, fitting


def _importances(space: Space, seen: Sequence[Observation], target: Target) -> list[importance.Importance]:
    return importance.importances(space, seen, target=target)


def some(rows: Indices, quality_of: Array, limit: int) -> Indices:
    """Returns at most `limit` of some rows, in their order: a quarter of them the best, the others spread evenly."""
    if len(rows) <= limit:
        return rows
    best_first = rows[np.argsort(-np.nan_to_num(quality_of[rows], nan=-1.0), kind="stable")]
    num_best = max(limit // 4, 1)
    rest = best_first[num_best:]
    spread = rest[np.linspace(0, len(rest) - 1, limit - num_best).round().astype(np.int64)]
    return np.sort(np.concatenate([best_first[:num_best], spread]).astype(np.int64))


def axis(key: str, column: Column, rows: Indices, spaces: Sequence[Space]) -> dict[str, Any]:
    """Returns how a field is drawn along an axis.

    `scale` is "linear", "log", "pow2" or "choices"; `choices` lists the values of the last. `low` and `high` are the
    ends of the range that was searched, for a parameter, or those of the values. `absent`: some trials have no value.
    """
    about: dict[str, Any] = {"key": key, "kind": str(column.kind)}
    absent = bool(column.missing[rows].any())
    name = key.removeprefix("params.") if key.startswith("params.") else ""
    if column.kind.coded or column.kind is Kind.BOOLEAN:
        found = sorted({str(v): v for v in column.listed(rows) if v is not None}.values(), key=_order)
        own = [space.parameter(name) for space in spaces if name in space.names]
        if own and all(isinstance(one, Categorical) and one == own[0] for one in own):
            assert isinstance(own[0], Categorical)
            found = [cell(choice) for choice in own[0].choices]
        return {**about, "scale": "choices", "choices": found[:200], "absent": absent}
    values = column.floats()[rows]
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    scale = "linear"
    for space in spaces:
        if name not in space.names:
            continue
        parameter = space.parameter(name)
        if isinstance(parameter, Categorical):
            continue
        low, high = min(low, float(parameter.low)), max(high, float(parameter.high))
        scale = parameter.scale if parameter.scale in ("log", "pow2") else scale
        about["searched"] = [float(parameter.low), float(parameter.high)]
    if key.endswith("_seconds") and low > 0 and high > 20 * low:
        scale = "log"
    if scale in ("log", "pow2") and low <= 0:
        scale = "linear"
    return {**about, "scale": scale, "low": low, "high": high, "absent": absent}


class _Dots:
    """The trials that are shown beside a slice or a map: those with a score that the space can read."""

    def __init__(self, numbers: list[int], x_unit: Array, scores: list[float], values: dict[str, list[Any]]) -> None:
        self.numbers, self.x_unit, self.scores, self.values = numbers, x_unit, scores, values

    @classmethod
    def of(cls, frame: Frame, model: SweepModel) -> "_Dots":
        scores = frame.columns["score"].floats()
        usable = np.flatnonzero(np.isfinite(scores) & ~frame.columns["excluded"].values.astype(bool))
        rows = some(usable, quality([frame]), MAX_MODEL_DOTS)
        columns: dict[str, list[Any]] = {name: column.listed(rows) for name, column in frame.group("params").items()}
        names = list(columns)
        params = [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        kept, x_unit = readable(model.space, list(range(len(rows))), [_params(one) for one in params])
        return cls(
            numbers=[int(frame.numbers[rows[i]]) for i in kept],
            x_unit=x_unit,
            scores=scores[rows[kept]].tolist() if kept else [],
            values={name: [columns[name][i] for i in kept] for name in model.space.names if name in columns},
        )

    def answer(self) -> dict[str, Any]:
        return {"number": self.numbers, "score": self.scores, "params": self.values}


def _params(cells: Mapping[str, Any]) -> dict[str, ParamValue]:
    """Returns a trial's params of its cells; one that is not active is no param."""
    return {name: value_of(one) for name, one in cells.items() if one is not None}


def _anchor(query: Query, frame: Frame, model: SweepModel) -> tuple[Array, float | None, dict[str, Any]]:
    """Returns the config that slices go through, the cost that they are held at, and what the page says of both."""
    seconds = query.number("seconds")
    if seconds is not None and seconds <= 0:
        raise UsageError(f"seconds {seconds:g} must be above 0")
    number = query.optional_integer("at", least=0, most=10**9)
    if number is None:
        anchor = model.anchor(math.inf if seconds is None else seconds)
        best = model.space.from_unit(anchor)
        key = model.space.key
        runs = next((c.runs for c in model.contenders if key(c.params) == key(best)), 0)
        return anchor, seconds, {"number": None, "params": cells(best), "runs": runs}
    rows = frame.rows([number])
    if not len(rows):
        raise NotFound(f"sweep '{frame.sweep.spec.name}' has no trial {number}")
    params = _params({name: column.value(int(rows[0])) for name, column in frame.group("params").items()})
    return model.at(params), seconds, {"number": number, "params": cells(params), "runs": 1}


def _estimates(found: Sequence[Estimate | None], possible: Range | None) -> dict[str, Any]:
    listed = [within(one, possible) for one in found if one is not None]
    return {name: rounded(np.array([getattr(one, name) for one in listed])) for name in ("value", "low", "high")}


def _axis(axis_of: Axis) -> dict[str, Any]:
    return {"name": axis_of.name, "scale": axis_of.scale, "values": list(map(cell, axis_of.values))}


def _names(table: Table, rows: Indices) -> dict[str, Any]:
    return {"sweep": _coded(table.columns["sweep"], rows), "number": table.columns["number"].values[rows]}


def _coded(column: Column, rows: Indices) -> dict[str, Any]:
    """Returns texts as positions in a list of words: most trials have the same few."""
    return {"words": list(column.words), "codes": column.values[rows]}


def _values(column: Column, rows: Indices) -> list[Any]:
    if column.kind is Kind.NUMBER:  # not a moment: its first digits are those of the decade
        listed = rounded(column.floats()[rows]).tolist()
        return [None if gone else one for one, gone in zip(listed, column.missing[rows].tolist(), strict=True)]
    return column.listed(rows)


def _order(value: Any) -> tuple[int, Any]:
    return (1, str(value)) if isinstance(value, str | tuple) else (0, float(value))


def _spaces(frames: Sequence[Frame]) -> list[Space]:
    found = []
    for frame in frames:
        try:
            found.append(space_of(frame))
        except UsageError:  # the page still shows the values, along axes of their own
            continue
    return found
