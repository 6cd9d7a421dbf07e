"""`/api/table`: the trials of one or several sweeps, sorted and filtered here, a window of rows at a time.

A page that has shown a window before sends the version that it knows. Rows that have not changed since are then null,
and the description of the columns is left out, so that an update is small.
"""

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from starlette.responses import StreamingResponse
from starlette.routing import BaseRoute

from protein.analysis import filters
from protein.analysis.columns import Column, Indices, Mask
from protein.columns import GROUPS
from protein.errors import UsageError
from protein.spelling import nearest
from protein.web.answers import Query, get, number_text
from protein.web.frame import Frame, Table
from protein.web.viewer import MAX_SWEEPS, Viewer

MAX_ROWS = 1_000  # in one answer
MAX_TRIALS = 10_000  # whose names are in one answer
MAX_COLUMNS = 300  # in one answer
MAX_KEYS = 4  # to sort by
DEFAULT_SORT = "-number"
_CSV_ROWS = 2_000  # that are written at once
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # with these a formula begins in spreadsheets
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def routes(viewer: Viewer) -> list[BaseRoute]:
    def table(query: Query) -> dict[str, Any]:
        offset = query.integer("offset", 0, least=0, most=10**9)
        limit = query.integer("limit", 200, least=0, most=MAX_ROWS)
        frames, found, version = _asked(viewer, query)
        order = _order(viewer, query, found, version)
        rows = order[offset : offset + limit]
        shown = chosen(found, query.texts("column", most=MAX_COLUMNS))
        about, schema = viewer.remembered(("columns", version), lambda: described(found.columns))
        values: list[Any] = list(zip(*(found.columns[key].listed(rows) for key in shown), strict=True))
        known = query.text("known")
        if known:
            new = changed(frames, known, viewer.epoch)[rows]
            values = [row if is_new else None for row, is_new in zip(values, new.tolist(), strict=True)]
        sweeps, keys = named(found, rows)
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
        }

    def trials(query: Query) -> dict[str, Any]:
        offset = query.integer("offset", 0, least=0, most=10**9)
        limit = query.integer("limit", MAX_TRIALS, least=0, most=MAX_TRIALS)
        _, found, version = _asked(viewer, query)
        order = _order(viewer, query, found, version)
        sweeps, keys = named(found, order[offset : offset + limit])
        return {"matching": len(order), "sweeps": sweeps, "keys": keys}

    def table_csv(query: Query) -> StreamingResponse:
        _, found, version = _asked(viewer, query)
        order = _order(viewer, query, found, version)
        shown = chosen(found, query.texts("column", most=MAX_COLUMNS))
        headers = {"content-disposition": 'attachment; filename="trials.csv"', "cache-control": "no-store"}
        return StreamingResponse(csv_lines(found, order, shown), media_type="text/csv; charset=utf-8", headers=headers)

    return [get("/table", table), get("/trials", trials), get("/table.csv", table_csv)]


def _asked(viewer: Viewer, query: Query) -> tuple[list[Frame], Table, str]:
    frames = viewer.frames(query.texts("sweep", most=MAX_SWEEPS))
    found, version = viewer.together(frames)
    return frames, found, version


def _order(viewer: Viewer, query: Query, found: Table, version: str) -> Indices:
    asked = (query.text("filter"), query.text("sort", DEFAULT_SORT))
    order: Indices = viewer.remembered(("order", version, *asked), lambda: ordered(found, *asked))
    return order


def ordered(table: Table, filter_text: str, sort: str) -> Indices:
    """Returns which rows of a table match a filter, in the order that is asked for.

    Args:
        table: the trials.
        filter_text: an expression, see `protein.analysis.filters`; empty: all.
        sort: keys of columns between commas, the most important first, "-" before one that is sorted downwards.
            A comma within a key is written as "%2C", and "%" as "%25".

    Raises:
        UsageError: the filter cannot be understood, or there is no such column.
    """
    keys = [key for key in sort.split(",") if key]
    if len(keys) > MAX_KEYS:
        raise UsageError(f"sort has {len(keys)} columns; at most {MAX_KEYS} are allowed")
    rows: Indices = np.flatnonzero(filters.matching(filter_text, table.columns, len(table)))
    sorted_by: list[Any] = []
    for key in reversed(keys):
        name = key.removeprefix("-").replace("%2C", ",").replace("%25", "%")
        _check(name, table, "sort")
        sorted_by += table.columns[name].taken(rows).sort_keys(descending=key.startswith("-"))
    return rows[np.lexsort(sorted_by)] if sorted_by else rows


def chosen(table: Table, keys: Sequence[str]) -> list[str]:
    """Returns the keys of the columns to send; all of them where none is named."""
    for key in keys:
        _check(key, table, "column")
    return list(dict.fromkeys(keys or table.columns))[:MAX_COLUMNS]


def _check(key: str, table: Table, what: str) -> None:
    if key not in table.columns:
        raise UsageError(f"{what}: there is no column '{key[:80]}'{nearest(key, table.columns)}")


def described(columns: Mapping[str, Column]) -> tuple[list[dict[str, Any]], str]:
    """Returns each column's key, group, title, kind and name in filters, and a text that changes whenever they do.

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
                "title": rest if known else key,
                "name": name,
                "kind": str(column.kind),
                "empty": not len(present),
                "constant": 1 < len(column) == len(present) and bool((present == present[0]).all()),
            }
        )
    return found, f"{zlib.crc32(repr(found).encode()):08x}"


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
    """Yields rows as CSV with a header; scores are as shown, times in seconds since 1970, a missing value is empty.

    A text that a spreadsheet would take for a formula stands behind an apostrophe. Numbers stay numbers.
    """
    yield ",".join(_csv_cell(key) for key in keys) + "\r\n"
    for first in range(0, len(rows), _CSV_ROWS):
        part = rows[first : first + _CSV_ROWS]
        columns = [table.columns[key].listed(part) for key in keys]
        yield "".join(",".join(map(_csv_cell, row)) + "\r\n" for row in zip(*columns, strict=True))


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value) if np.isfinite(value) else number_text(value)
    text = " ".join(value) if isinstance(value, tuple) else str(value)
    if isinstance(value, str | tuple) and text.startswith(_FORMULA) and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if any(sign in text for sign in ',"\n\r') else text
