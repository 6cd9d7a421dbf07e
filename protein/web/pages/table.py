"""`/api/table`: the trials of one or several sweeps, sorted and filtered here, a window of rows at a time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from starlette.routing import BaseRoute

from protein.analysis.columns import Column, Indices
from protein.errors import UsageError
from protein.spelling import nearest
from protein.web.answers import Query, get
from protein.web.frame import GROUPS, Table
from protein.web.viewer import MAX_SWEEPS, Viewer

MAX_ROWS = 1_000  # in one answer
MAX_COLUMNS = 300  # in one answer
MAX_KEYS = 4  # to sort by
DEFAULT_SORT = "-number"


def routes(viewer: Viewer) -> list[BaseRoute]:
    def table(query: Query) -> dict[str, Any]:
        names = query.texts("sweep", most=MAX_SWEEPS)
        offset = query.integer("offset", 0, least=0, most=10**9)
        limit = query.integer("limit", 200, least=0, most=MAX_ROWS)
        found, version = viewer.table(names)
        order = viewer.remembered(
            ("order", version, query.text("filter"), query.text("sort", DEFAULT_SORT)),
            lambda: ordered(found, query.text("filter"), query.text("sort", DEFAULT_SORT)),
        )
        shown = chosen(found, query.text("columns", most=20_000))
        rows = order[offset : offset + limit]
        return {
            "version": version,
            "total": len(found),
            "matching": len(order),
            "offset": offset,
            "columns": described(found.columns),
            "shown": shown,
            "rows": list(zip(*(found.columns[key].listed(rows) for key in shown), strict=True)),
        }

    return [get("/table", table)]


def described(columns: Mapping[str, Column]) -> list[dict[str, Any]]:
    """Returns each column's key, group, title and kind."""
    found = []
    for key, column in columns.items():
        group, _, rest = key.partition(".")
        known = group in GROUPS and bool(rest)
        found.append(
            {
                "key": key,
                "group": group if known else "trial",
                "title": rest if known else key,
                "kind": str(column.kind),
                "empty": bool(column.missing.all()),
            }
        )
    return found


def chosen(table: Table, keys: str) -> list[str]:
    """Returns the keys of the columns to send; all of them where none is named."""
    wanted = keys.split(",") if keys else list(table.columns)
    for key in wanted:
        if key not in table.columns:
            raise UsageError(f"columns: there is no column '{key[:80]}'{nearest(key, table.columns)}")
    return list(dict.fromkeys(wanted))[:MAX_COLUMNS]


def ordered(table: Table, filter_text: str, sort: str) -> Indices:
    """Returns which rows of a table match a filter, in the order that is asked for.

    Args:
        table: the trials.
        filter_text: an expression, see `protein.analysis.filters`; empty: all.
        sort: keys of columns between commas, the most important first, "-" before one that is sorted downwards.
    """
    keys = [key for key in sort.split(",") if key]
    if len(keys) > MAX_KEYS:
        raise UsageError(f"sort has {len(keys)} columns; at most {MAX_KEYS} are allowed")
    sorted_by: list[Any] = []
    for key in reversed(keys):
        name = key.removeprefix("-")
        if name not in table.columns:
            raise UsageError(f"sort: there is no column '{name[:80]}'{nearest(name, table.columns)}")
        sorted_by += table.columns[name].sort_keys(descending=key.startswith("-"))
    order: Indices = np.lexsort(sorted_by) if sorted_by else np.arange(len(table))
    return order


def keys_of(table: Table, rows: Indices) -> Sequence[tuple[Any, Any]]:
    """Returns sweep and number of some rows."""
    return list(zip(table.columns["sweep"].listed(rows), table.columns["number"].listed(rows), strict=True))
