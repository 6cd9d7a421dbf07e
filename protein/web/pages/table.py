"""`/api/table`: the trials of one or several sweeps, sorted and filtered here, a window of rows at a time.

`/api/table/groups` has them by the values of a column, and `/api/table/pinned` the recommended and the initial config.

A page that has shown a window before sends the version that it knows. Rows that have not changed since are then null,
and the description of the columns is left out, so that an update is small.
"""

import contextlib
import itertools
import math
import re
import zlib
import zoneinfo
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from starlette.responses import StreamingResponse
from starlette.routing import BaseRoute

from protein.analysis import filters
from protein.analysis.columns import Column, Indices, Kind, Mask, column_of
from protein.columns import GROUPS, HEADS, cell
from protein.errors import UsageError
from protein.run.lease import dead_owners
from protein.space import Categorical
from protein.spelling import nearest
from protein.types import Direction, SuggestionKind, TrialEnd, TrialState, told
from protein.view import text
from protein.web import findings
from protein.web.answers import Query, get, number_text
from protein.web.frame import Frame, Table
from protein.web.viewer import MAX_SWEEPS, Viewer

MAX_ROWS = 1_000  # in one answer
MAX_TRIALS = 10_000  # whose names are in one answer
MAX_COLUMNS = 300  # in one answer
MAX_KEYS = 4  # to sort by
MAX_GROUPS = 60  # in one answer
MAX_VALUES = 12  # different numbers up to which each is a group of its own
MAX_OFFERED = 20  # texts of a column that are offered while somebody types
MAX_OFFERED_LENGTH = 40  # characters of such a text
NUM_RANGES = 8  # into which more of them are put
MAX_PINNED = 3  # sweeps whose recommended and initial configs are told
MAX_LIVE = 60  # running trials whose curves are in one answer
LIVE_POINTS = 40  # of one of these curves
MAX_GOOD = 0.5  # of all trials: a range that holds more of them does not tell the best ones apart
MIN_SCALED = 10  # trials from which on the best tenth says something
DEFAULT_SORT = "-number"
_CSV_ROWS = 2_000  # that are written at once
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # with these a formula begins in spreadsheets
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def routes(viewer: Viewer) -> list[BaseRoute]:
    def table(query: Query) -> dict[str, Any]:
        offset = query.integer("offset", 0, least=0, most=10**9)
        limit = query.integer("limit", 200, least=0, most=MAX_ROWS)
        frames, found, version = _asked(viewer, query)
        order = order_of(viewer, query, frames, found, version)
        rows = order[offset : offset + limit]
        shown = chosen(found, query.texts("column", most=MAX_COLUMNS))
        about, schema = viewer.remembered(("columns", version), lambda: described(found.columns))
        values: list[Any] = list(zip(*(found.columns[key].listed(rows) for key in shown), strict=True))
        known = query.text("known")
        if known:
            new = changed(frames, known, viewer.epoch)[rows]
            values = [row if is_new else None for row, is_new in zip(values, new.tolist(), strict=True)]
        sweeps, keys = named(found, rows)
        known_scales = viewer.remembered(("scales", version), lambda: scales(frames, found))
        return {
            "version": version,
            "total": len(found),
            "matching": len(order),
            "offset": offset,
            "schema": schema,
            "columns": None if known and query.text("schema") == schema else about,
            "shown": shown,
            "sweeps": sweeps,
            "keys": keys,
            "rows": values,
            "curves": live(viewer, frames, found, rows),
            "scales": {key: scale for key, scale in known_scales.items() if key in shown},
        }

    def groups(query: Query) -> dict[str, Any]:
        frames, found, version = _asked(viewer, query)
        by = query.text("by", most=300)
        _check(by, found, "by")
        rows = order_of(viewer, query, frames, found, version, "number")
        made = viewer.remembered(
            ("groups", version, by, rows.tobytes()), lambda: grouped(frames, found, rows, by), most=4
        )
        return {"version": version, "matching": len(rows), "total": len(found), **made}

    def pinned(query: Query) -> dict[str, Any]:
        frames, found, version = _asked(viewer, query)
        shown = chosen(found, query.texts("column", most=MAX_COLUMNS))
        listed: list[tuple[str, int, str]] = []
        computing = False
        for frame in frames[:MAX_PINNED]:
            # A page that is left open asks for a new fit now and then, not after each trial.
            progress = None if query.flag("fresh") else viewer.background.known(("overview", frame.sweep.id))
            progress = progress or findings.finding(viewer, frame.sweep.spec.name, "overview")
            computing |= progress.state == "computing" and progress.value is None
            best = None if progress.value is None else progress.value.best
            listed += [
                (frame.sweep.spec.name, number, what)
                for number, what in special(frame, None if best is None else best.trial)
            ]
        pairs = list(zip(*(found.columns[key].listed() for key in ("sweep", "number")), strict=True))
        rows = np.array([pairs.index((sweep, number)) for sweep, number, _ in listed], np.int64)
        values = [list(row) for row in zip(*(found.columns[key].listed(rows) for key in shown), strict=True)]
        named_as = [{"sweep": sweep, "number": number, "what": what} for sweep, number, what in listed]
        return {
            "version": version,
            "state": "computing" if computing else "ready",
            "shown": shown,
            "rows": [{**name, "values": row} for name, row in zip(named_as, values, strict=True)],
        }

    def trials(query: Query) -> dict[str, Any]:
        offset = query.integer("offset", 0, least=0, most=10**9)
        limit = query.integer("limit", MAX_TRIALS, least=0, most=MAX_TRIALS)
        frames, found, version = _asked(viewer, query)
        order = order_of(viewer, query, frames, found, version)
        sweeps, keys = named(found, order[offset : offset + limit])
        return {"matching": len(order), "sweeps": sweeps, "keys": keys}

    def table_csv(query: Query) -> StreamingResponse:
        frames, found, version = _asked(viewer, query)
        order = order_of(viewer, query, frames, found, version)
        shown = chosen(found, query.texts("column", most=MAX_COLUMNS))
        headers = {"content-disposition": 'attachment; filename="trials.csv"', "cache-control": "no-store"}
        return StreamingResponse(csv_lines(found, order, shown), media_type="text/csv; charset=utf-8", headers=headers)

    return [
        get("/table", table),
        get("/table/groups", groups),
        get("/table/pinned", pinned),
        get("/trials", trials),
        get("/table.csv", table_csv),
    ]


def _asked(viewer: Viewer, query: Query) -> tuple[list[Frame], Table, str]:
    frames = viewer.frames(query.texts("sweep", most=MAX_SWEEPS))
    found, version = viewer.together(frames)
    return frames, found, version


def order_of(
    viewer: Viewer, query: Query, frames: Sequence[Frame], table: Table, version: str, sort: str | None = None
) -> Indices:
    """Returns which rows match the filter of a request, in the order `sort`; None: that of the request.

    Its filter takes what the table shows (`as_shown`), with times in the reader's `zone`.
    """
    sought = query.text("filter").strip()
    by = query.text("sort", DEFAULT_SORT) if sort is None else sort
    gone = _gone(viewer, frames) if sought else ()
    zone = query.text("zone", most=100) if sought else ""

    def found() -> Indices:
        if not sought:
            return ordered(table, "", by)
        shown = viewer.remembered(("shown", version, gone, zone), lambda: as_shown(frames, table, gone, zone), most=2)
        return ordered(table, sought, by, shown)

    order: Indices = viewer.remembered(("order", version, sought, by, gone, zone), found)
    return order


def _gone(viewer: Viewer, frames: Sequence[Frame]) -> tuple[tuple[str, int], ...]:
    """Returns the sweep and the number of each trial that is stored as running, and whose process has ended."""
    running = [frame.sweep for frame in frames if TrialState.RUNNING.value in frame.columns["state"].words]
    counted = viewer.store.summaries([sweep.id for sweep in running]) if running else {}
    owners = {
        (sweep.spec.name, number): owner
        for sweep in running
        if sweep.id in counted
        for number, owner in counted[sweep.id].running.items()
    }
    dead = set(dead_owners(owners.values()))
    return tuple(name for name, owner in owners.items() if owner in dead)


def as_shown(
    frames: Sequence[Frame], table: Table, gone: Collection[tuple[str, int]] = (), zone: str = ""
) -> filters.Shown:
    """Returns what a filter has to know of how the pages show trials.

    Args:
        frames: the sweeps, in the order of the table.
        table: their trials.
        gone: running trials whose processes have ended, by sweep and number.
        zone: the reader's time zone by its name; UTC where it is not known here.
    """
    states = [
        told(TrialState.FAILED, TrialEnd.INTERRUPTED)
        if (sweep, number) in gone
        else told(TrialState(str(state)), None if end is None else TrialEnd(str(end)), str(reason or ""))
        for sweep, number, state, end, reason in zip(
            *(table.columns[key].listed() for key in ("sweep", "number", "state", "end", "reason")), strict=True
        )
    ]
    without = table.columns["score"].missing & _is(table.columns["state"], TrialState.FAILED)
    failures = [word if gone else None for word, gone in zip(states, without.tolist(), strict=True)]
    none = [None] * len(table)
    words = {
        "state": column_of(states, Kind.TEXT, [*map(str, TrialState), *_ENDS, "queued"]),
        "end": column_of(none, Kind.TEXT, _ENDS),
        "kind": column_of(none, Kind.TEXT, map(str, SuggestionKind)),
        "score": column_of(failures, Kind.TEXT),
    }
    for frame in frames:
        with contextlib.suppress(UsageError):  # it has no space that can be read
            for parameter in findings.space_of(frame).parameters:
                if isinstance(parameter, Categorical):
                    words[f"params.{parameter.name}"] = column_of(none, Kind.MIXED, map(cell, parameter.choices))
    with contextlib.suppress(ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return filters.Shown(number=text.table_number, words=words, zone=zoneinfo.ZoneInfo(zone))
    return filters.Shown(number=text.table_number, words=words)


_ENDS = [told(end.state, end) for end in TrialEnd]


def ordered(table: Table, filter_text: str, sort: str, shown: filters.Shown | None = None) -> Indices:
    """Returns which rows of a table match a filter, in the order that is asked for.

    Args:
        table: the trials.
        filter_text: an expression, see `protein.analysis.filters`; empty: all.
        sort: keys of columns between commas, the most important first, "-" before one that is sorted downwards.
            A comma within a key is written as "%2C", and "%" as "%25".
        shown: how pages show the trials; None: a filter compares the values as they are.

    Raises:
        UsageError: the filter cannot be understood, or there is no such column.
    """
    keys = [key for key in sort.split(",") if key]
    if len(keys) > MAX_KEYS:
        raise UsageError(f"sort has {len(keys)} columns; at most {MAX_KEYS} are allowed")
    rows: Indices = np.flatnonzero(filters.matching(filter_text, table.columns, len(table), shown))
    sorted_by: list[Any] = []
    for key in reversed(keys):
        name = key.removeprefix("-").replace("%2C", ",").replace("%25", "%")
        _check(name, table, "sort")
        sorted_by += table.columns[name].taken(rows).sort_keys(descending=key.startswith("-"))
    return rows[np.lexsort(sorted_by)] if sorted_by else rows


def grouped(frames: Sequence[Frame], table: Table, rows: Indices, by: str) -> dict[str, Any]:
    """Returns some trials of a table by the values of a column: how many there are, and how their scores are.

    Many different numbers or times are put into ranges with about as many trials each. A trial with several tags is in
    several groups. `best`, `mean` and `spread` (the standard deviation) are those of complete trials that are not
    excluded; None where there are none, or one. Each group has a `filter` that finds its trials.
    """
    column = as_shown(frames, table).words["state"] if by == "state" else table.columns[by]
    name = filters.Names(table.columns).offered(by)
    lower = _lower_is_better(frames)
    parts = _parts(column, rows, name)
    complete = _is(table.columns["state"], TrialState.COMPLETE)
    scores = np.where(complete & (table.columns["excluded"].values == 0), table.columns["score"].floats(), np.nan)
    failed = _is(table.columns["state"], TrialState.FAILED)
    found = []
    for values, rule, mine in parts[:MAX_GROUPS]:
        known = mine[np.isfinite(scores[mine])]
        best = int(known[np.argmin(scores[known]) if lower else np.argmax(scores[known])]) if len(known) else None
        found.append(
            {
                "values": values,
                "filter": rule,
                "count": len(mine),
                "failed": int(np.count_nonzero(failed[mine])),
                "best": None if best is None else float(scores[best]),
                "trial": None if best is None else [table.columns[key].value(best) for key in ("sweep", "number")],
                "mean": float(np.mean(scores[known])) if len(known) else None,
                "spread": float(np.std(scores[known], ddof=1)) if len(known) > 1 else None,
                "cost_seconds": float(np.mean(table.columns["cost_seconds"].values[mine])) if len(mine) else None,
            }
        )
    return {"by": by, "groups": found, "left_out": max(len(parts) - MAX_GROUPS, 0), "lower": lower}


def _parts(column: Column, rows: Indices, name: str) -> list[tuple[list[Any], str, Indices]]:
    """Returns the groups of rows by a column, the largest first or in rising order.

    Each has its value, or the lowest and the highest one, a filter that finds it, and its rows.
    """
    found: list[tuple[list[Any], str, Indices]] = []
    present = rows[~column.missing[rows]]
    if column.kind is Kind.TAGS:
        tags = [word if isinstance(word, tuple) else () for word in column.words]
        for tag in sorted({one for word in tags for one in word}):
            has = np.array([tag in word for word in tags], np.bool_)
            found.append(([tag], f"{name} == {_quoted(tag)}", present[has[column.values[present]]]))
        found.sort(key=lambda part: -len(part[2]))
    else:
        distinct = np.unique(column.values[present])
        if column.kind.coded or len(distinct) <= MAX_VALUES:
            # One sort: a look at all rows for each text takes minutes where most trials have a text of their own.
            by_value = present[np.argsort(column.values[present], kind="stable")]
            for mine in np.split(by_value, np.searchsorted(column.values[by_value], distinct[1:])):
                if not len(mine):
                    continue
                value = column.value(int(mine[0]))
                found.append(([value], f"{name} == {_quoted(value)}", mine))
            if column.kind is Kind.TEXT:
                found.sort(key=lambda part: -len(part[2]))
        else:
            inner = np.quantile(column.values[present], np.arange(1, NUM_RANGES) / NUM_RANGES).tolist()
            digits = 15 if column.kind is Kind.TIME else 6
            edges = sorted({float(f"{edge:.{digits}g}") for edge in inner})  # short ones, as they stand in filters
            for low, high in itertools.pairwise([-math.inf, *edges, math.inf]):
                mine = present[(column.values[present] >= low) & (column.values[present] < high)]
                if len(mine):
                    rule = [f"{name} >= {low!r}"] * bool(math.isfinite(low)) + [f"{name} < {high!r}"] * bool(
                        math.isfinite(high)
                    )
                    ends = [column.values[mine].min().item(), column.values[mine].max().item()]
                    found.append((ends, " and ".join(rule), mine))
    found = [part for part in found if len(part[2])]
    gone = rows[column.missing[rows]]
    return found + ([([], f"{name} == none", gone)] if len(gone) else [])


def _quoted(value: Any) -> str:
    """Returns a value as a filter takes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return repr(value)
    written = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{written}"'


def scales(frames: Sequence[Frame], table: Table) -> dict[str, Any]:
    """Returns for each column of numbers the range of its values, and the range in which the best trials lie.

    The best are a tenth of the complete trials that are not excluded, three at least; of sweeps with different
    directions, there are none. A range in which most trials lie says nothing, and is left out. The scale of scores
    begins at the worst tenth, as one score may be far off.
    """
    scores = table.columns["score"].floats()
    complete = _is(table.columns["state"], TrialState.COMPLETE)
    able = np.flatnonzero(complete & (table.columns["excluded"].values == 0) & np.isfinite(scores))
    sign = -1.0 if _lower_is_better(frames) else 1.0
    order = able[np.argsort(-sign * scores[able], kind="stable")]
    comparable = len({frame.sweep.spec.direction for frame in frames}) == 1 and len(able) >= MIN_SCALED
    best = order[: max(len(able) // 10, 3)] if comparable else order[:0]
    found = {}
    for key, column in table.columns.items():
        if column.kind not in (Kind.NUMBER, Kind.INTEGER) or key in ("number", "continues"):
            continue
        values = column.floats()
        finite = values[np.isfinite(values)]
        good = values[best][np.isfinite(values[best])]
        if len(good) and np.mean((finite >= good.min()) & (finite <= good.max())) > MAX_GOOD:
            good = good[:0]
        if not len(finite) or finite.min() == finite.max():
            continue
        low, high = float(finite.min()), float(finite.max())
        if key == "score" and len(finite) >= MIN_SCALED:
            worst = float(np.quantile(finite, 0.1 if sign > 0 else 0.9))
            low, high = (worst, high) if sign > 0 else (low, worst)
        found[key] = {
            "low": low,
            "high": high,
            "log": low > 0 and high / low > 30,
            "good": [float(good.min()), float(good.max())] if len(good) else None,
        }
    return found


def _is(column: Column, word: str) -> Mask:
    found: Mask = (
        np.array([one == word for one in column.words] or [False])[column.values.astype(np.intp)] & ~column.missing
    )
    return found


def _lower_is_better(frames: Sequence[Frame]) -> bool:
    return all(frame.sweep.spec.direction is Direction.MINIMIZE for frame in frames)


def special(frame: Frame, recommended: Any) -> list[tuple[int, str]]:
    """Returns the trials of the recommended and the initial config, with what they are."""
    first = frame.numbers[_is(frame.columns["kind"], SuggestionKind.INITIAL_CONFIG)].tolist()[:1]
    initial = [(number, "initial") for number in first]
    if recommended is None or recommended not in frame.numbers:
        return initial
    if recommended in first:
        return [(recommended, "recommended and initial")]
    return [(recommended, "recommended"), *initial]


def live(viewer: Viewer, frames: Sequence[Frame], table: Table, rows: Indices) -> list[tuple[int, list[float]]]:
    """Returns the scores so far, as they are shown, of the rows that run: the place of each, and its curve."""
    sweep = table.columns["sweep"]
    running = np.flatnonzero(_is(table.columns["state"].taken(rows), TrialState.RUNNING)).tolist()[:MAX_LIVE]
    found: list[tuple[int, list[float]]] = []
    for frame in frames:
        mine = [place for place in running if sweep.value(int(rows[place])) == frame.sweep.spec.name]
        numbers = table.columns["number"].values[rows[mine]].tolist() if mine else []
        curves = viewer.store.curves(frame.sweep.id, numbers, LIVE_POINTS) if numbers else {}
        for place, number in zip(mine, numbers, strict=True):
            if number in curves and len(curves[number].value):
                sign = 1.0 if frame.sweep.spec.direction is Direction.MAXIMIZE else -1.0
                found.append((place, [findings.short(sign * one) for one in curves[number].value.tolist()]))
    return found


def chosen(table: Table, keys: Sequence[str]) -> list[str]:
    """Returns the keys of the columns to send; all of them where none is named."""
    for key in keys:
        _check(key, table, "column")
    return list(dict.fromkeys(keys or table.columns))[:MAX_COLUMNS]


def _check(key: str, table: Table, what: str) -> None:
    if key not in table.columns:
        raise UsageError(f"{what}: there is no column '{key[:80]}'{nearest(key, table.columns)}")


def described(columns: Mapping[str, Column]) -> tuple[list[dict[str, Any]], str]:
    """Returns each column's key, group, head, kind and name in filters, and a text that changes whenever they do.

    `words` are the texts of a column of few short ones, to be offered for filters.
    `empty` columns have no value, and `constant` ones have the same in all trials, of which there are several.
    """
    found = []
    for (key, column), name in zip(columns.items(), filters.names(columns), strict=True):
        group, _, rest = key.partition(".")
        known = group in GROUPS and bool(rest)
        present = column.values[~column.missing]
        found.append(
            {
                "key": key,
                "group": group if known else "trial",
                "title": HEADS.get(key, rest if known else key),
                "name": name,
                "kind": str(column.kind),
                "words": _few([column, *([columns["end"]] if key == "state" and "end" in columns else [])]),
                "empty": not len(present),
                "constant": 1 < len(column) == len(present) and bool((present == present[0]).all()),
            }
        )
    return found, f"{zlib.crc32(repr(found).encode()):08x}"


def _few(columns: Sequence[Column]) -> list[str]:
    """Returns the texts of columns; none where they are many, or long."""
    texts = {one for column in columns if column.kind is Kind.TEXT for one in map(str, column.words) if one}
    return sorted(texts) if len(texts) <= MAX_OFFERED and max(map(len, texts), default=0) <= MAX_OFFERED_LENGTH else []


def changed(frames: Sequence[Frame], known: str, epoch: str) -> Mask:
    """Returns which rows of the frames' table have changed since the version `known`; all if it is none of ours."""
    parts = known.split("-")
    versions: dict[int, int] = {}
    if parts[0] == epoch:
        for part in parts[1:]:
            sweep, _, version = part.partition(".")
            if sweep.isdecimal() and version.isdecimal():
                versions[int(sweep)] = int(version)
    return np.concatenate([frame.revisions > versions.get(frame.sweep.id, -1) for frame in frames])


def named(table: Table, rows: Indices) -> tuple[list[str], list[list[int]]]:
    """Returns the names of sweeps, and each row as the place of its sweep among them with the trial's number."""
    sweep = table.columns["sweep"]
    numbers = table.columns["number"].values[rows]
    pairs = np.stack([sweep.values[rows].astype(np.int64), numbers], axis=1)
    return [str(word) for word in sweep.words], pairs.tolist()


def csv_lines(table: Table, rows: Indices, keys: Sequence[str]) -> Iterator[str]:
    """Yields rows as CSV with a header; scores are as shown, times are dates in UTC, a missing value is empty.

    A text that a spreadsheet would take for a formula stands behind an apostrophe. Numbers stay numbers.
    """
    yield ",".join(_csv_cell(key) for key in keys) + "\r\n"
    for first in range(0, len(rows), _CSV_ROWS):
        part = rows[first : first + _CSV_ROWS]
        columns = [_dates(table.columns[key], part) for key in keys]
        yield "".join(",".join(map(_csv_cell, row)) + "\r\n" for row in zip(*columns, strict=True))


def _dates(column: Column, rows: Indices) -> list[Any]:
    """Returns the values of rows; times as texts that spreadsheets and data frames read as times."""
    values: list[Any] = column.listed(rows)
    if column.kind is not Kind.TIME:
        return values
    return [
        None if one is None else datetime.fromtimestamp(one, UTC).isoformat(" ", "milliseconds")[:23] for one in values
    ]


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value) if np.isfinite(value) else number_text(value)
    text = " ".join(value) if isinstance(value, tuple) else str(value)
    if isinstance(value, str | tuple) and text.startswith(_FORMULA) and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if any(sign in text for sign in ',"\n\r') else text
