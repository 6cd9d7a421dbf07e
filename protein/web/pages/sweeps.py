"""`/api/sweeps`: what the store holds, in one line a sweep. `/api/home`: the same as a table, with how each went.

No trials are read, as the store counts them, and no model is fitted: of a sweep whose recommended config is kept (see
`protein.api.answers`), the table has its expected score with an interval, of the others the best measured one.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from starlette.routing import BaseRoute

from protein.analysis import filters
from protein.analysis.columns import Column, Kind, column_of
from protein.columns import SweepSummary
from protein.direction import shown_score
from protein.run.lease import dead_owners
from protein.sweep.ownership import Alive, Life, alive, life_lines
from protein.types import ARCHIVED, Request, SuggestionKind, SweepRecord, TrialEnd, TrialState
from protein.view import data, text
from protein.web.answers import Query, get
from protein.web.frame import Frame, Table
from protein.web.pages.table import chosen, ordered
from protein.web.pages.table import described as described_columns
from protein.web.viewer import Viewer

MAX_SUMMARIES = 100  # sweeps whose trials are counted; of older ones the names are listed
MAX_ROWS = 1_000  # in one answer
# The columns of the table of sweeps. Where a trial has the same, the word is the same.
HOME: Mapping[str, Kind] = {
    "sweep": Kind.TEXT,
    "state": Kind.TEXT,
    "process": Kind.TEXT,
    "env": Kind.TEXT,
    "method": Kind.TEXT,
    "score": Kind.NUMBER,
    "score_low": Kind.NUMBER,
    "score_high": Kind.NUMBER,
    "best": Kind.INTEGER,
    "spent_seconds": Kind.NUMBER,
    "budget_seconds": Kind.NUMBER,
    "trials": Kind.INTEGER,
    "failed_trials": Kind.INTEGER,
    "interrupted_trials": Kind.INTEGER,
    "running_trials": Kind.INTEGER,
    "created_at": Kind.TIME,
    "tags": Kind.TAGS,
    "archived": Kind.BOOLEAN,
    "direction": Kind.TEXT,
    "why": Kind.TEXT,
}
_STATES = {
    Life.RUNS: "running",
    Life.ENDED: "ended",
    Life.GONE: "killed",
    Life.NONE: "new",
    Life.UNKNOWN: "unknown",
}


# Of the recommended config: the interval and the expected score, as the user knows scores, and a trial of it.
_Best = tuple[float, float, float, int]
_FindBest = Callable[[SweepRecord, data.Counts, SweepSummary], _Best | None]


def routes(viewer: Viewer) -> list[BaseRoute]:
    def sweeps(query: Query) -> dict[str, Any]:
        found = list(viewer.sweeps().values())[::-1]
        summaries = viewer.store.summaries([sweep.id for sweep in found[:MAX_SUMMARIES]])
        listed = [described(sweep, summaries.get(sweep.id)) for sweep in found]
        return {"store": shown_store(viewer.url), "epoch": viewer.epoch, "sweeps": listed}

    kept: dict[int, tuple[tuple[int, ...], _Best]] = {}  # by the sweep's id, with what changes where they may

    def best(sweep: SweepRecord, counts: data.Counts, counted: SweepSummary) -> _Best | None:
        version = (counts.finished, counted.excluded, counted.confirmations)
        if sweep.id in kept and kept[sweep.id][0] == version:
            return kept[sweep.id][1]
        found = _kept(viewer, sweep) if counts.finished else None
        if found is not None:
            kept[sweep.id] = version, found
        return found

    resting: dict[int, tuple[tuple[int, int], Alive]] = {}  # lives that only another trial can change

    def life(sweep: SweepRecord, counted: SweepSummary) -> Alive:
        version = (counted.total, len(counted.waiting))
        if not sweep.ended and not counted.running and resting.get(sweep.id, (None,))[0] == version:
            return resting[sweep.id][1]
        now = alive(viewer.store, sweep, counted)
        if now.life is not Life.RUNS:
            resting[sweep.id] = version, now
        return now

    def home(query: Query) -> dict[str, Any]:
        records = list(viewer.sweeps().values())[::-1]
        counted = viewer.store.summaries()
        rows = [
            _row(sweep, counted[sweep.id], life(sweep, counted[sweep.id]), best)
            for sweep in records
            if sweep.id in counted
        ]
        table = table_of(rows)
        words = column_of([None] * len(table), Kind.TEXT, [*_STATES.values(), "paused", "stopping", "failed"])
        shown_as = filters.Shown(number=text.table_number, words={"state": words})
        order = ordered(table, query.text("filter"), query.text("sort", "-created_at"), shown_as)
        archived = table.columns["archived"].values == 1
        hidden = 0 if query.flag("archived") else int(np.count_nonzero(archived[order]))
        order = order[~archived[order]] if hidden else order
        shown = order[: query.integer("limit", MAX_ROWS, least=0, most=MAX_ROWS)]
        return {
            "total": len(rows),
            "matching": len(order),
            "archived": hidden,
            "columns": described_columns(table.columns)[0],
            "shown": list(HOME),
            "rows": list(zip(*(table.columns[key].listed(shown) for key in chosen(table, list(HOME))), strict=True)),
        }

    return [get("/sweeps", sweeps), get("/home", home)]


def table_of(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Returns sweeps as a table that can be filtered and sorted as one of trials."""
    columns: dict[str, Column] = {key: column_of([row[key] for row in rows], kind) for key, kind in HOME.items()}
    return Table(columns=columns, revisions=np.zeros(len(rows), np.int64))


def _row(sweep: SweepRecord, counted: SweepSummary, now: Alive, best: _FindBest) -> dict[str, Any]:
    spec = sweep.spec
    counts = data.counts_of(counted.ends, len(counted.waiting))
    state = _STATES[now.life]
    if now.life is Life.ENDED and (sweep.ended.startswith("error: ") or (counts.failed and not counts.complete)):
        state = "failed"
    if now.life is Life.RUNS and sweep.requested is not Request.RUN:
        state = "paused" if sweep.requested is Request.PAUSE else "stopping"
    gone = len(interrupted(counted.running))
    lines = [_without_name(line, spec.name) for line in life_lines(sweep, now, num_running=counts.running - gone)]
    measured = (None, None, shown_score(counted.best_score, spec.direction), counted.best)
    low, high, expected, number = best(sweep, counts, counted) or measured
    return {
        "sweep": spec.name,
        "state": state,
        "process": now.process() if now.life is Life.RUNS else None,
        "env": spec.env,
        "method": spec.method,
        "score": expected,
        "score_low": low,
        "score_high": high,
        "best": number,
        "spent_seconds": counted.spent_seconds,
        "budget_seconds": sweep.max_cost_seconds,
        "trials": counts.finished,
        "failed_trials": counts.failed,
        "interrupted_trials": counts.interrupted + gone,
        "running_trials": counts.running - gone,
        "created_at": sweep.created_at.timestamp(),
        "tags": tuple(tag for tag in spec.tags if tag != ARCHIVED),
        "archived": ARCHIVED in spec.tags,
        "direction": str(spec.direction),
        "why": "; ".join(lines) or None,
    }


def _without_name(line: str, name: str) -> str:
    """Returns a line about a sweep as it is read beside the sweep's name."""
    return line.removeprefix(f"'{name}'").removeprefix(":").strip().removeprefix("ended: ")


def _kept(viewer: Viewer, sweep: SweepRecord) -> _Best | None:
    from protein.api.answers import kept_recommendation  # late: the list of sweeps does not wait for it

    found = kept_recommendation(viewer.store, sweep)
    if found is None:
        return None
    score = found.best.contender.score
    return min(score.low, score.high), max(score.low, score.high), score.value, found.best.trial.number


def shown_store(url: str) -> str:
    """Returns what the page calls the store: the name of its file or database, without folders, user and password."""
    return url.partition("?")[0].replace("\\", "/").rstrip("/").rpartition("/")[2]


def described(sweep: SweepRecord, counted: SweepSummary | None) -> dict[str, Any]:
    """Returns what a sweep is, and how it is getting on where its trials were counted."""
    found = {
        "name": sweep.spec.name,
        "env": sweep.spec.env,
        "method": sweep.spec.method,
        "direction": str(sweep.spec.direction),
        "requested": str(sweep.requested),
        "created_at": sweep.created_at.timestamp(),
        "archived": ARCHIVED in sweep.spec.tags,
        "max_cost_seconds": sweep.max_cost_seconds,
    }
    if counted is None:
        return found
    counts = _states(counted.ends, len(counted.waiting))
    return {
        **found,
        "spent_seconds": counted.spent_seconds,
        "trials": sum(counted.ends.values()),
        "confirmations": counted.confirmations,
        "confirming_seconds": counted.confirming_seconds,
        "states": counts,
        "excluded": counted.excluded,
        "interrupted": interrupted(counted.running),
    }


def interrupted(running: Mapping[int, str]) -> list[int]:
    """Returns which running trials (number -> owner) were processes of this machine and have ended."""
    gone = set(dead_owners(running.values()))
    return [number for number, owner in running.items() if owner in gone]


def summary(frame: Frame) -> dict[str, Any]:
    """Returns the same as `described`, from a frame."""
    confirms = np.array(frame.columns["kind"].listed()) == SuggestionKind.REEVALUATION.value
    confirmed = confirms & np.array([end is not None for end in frame.columns["end"].listed()], dtype=bool)
    listed = zip(frame.columns["end"].listed(), confirmed, strict=True)
    ends = Counter(None if end is None else TrialEnd(str(end)) for end, apart in listed if not apart)
    costs = np.stack([np.nan_to_num(frame.columns[name].floats()) for name in ("cost_seconds", "lost_seconds")])
    found = SweepSummary(
        ends=ends,
        excluded=int(np.count_nonzero(frame.columns["excluded"].values)),
        spent_seconds=math.fsum(costs[:, ~confirms].ravel()),
        confirmations=int(confirmed.sum()),
        confirming_seconds=math.fsum(costs[:, confirms].ravel()),
        best=None,
        cut_short=None,
        running={},
        waiting=tuple(frame.numbers[np.array(frame.columns["state"].listed()) == TrialState.WAITING.value].tolist()),
    )
    return described(frame.sweep, found)


def _states(ends: Mapping[TrialEnd | None, int], waiting: int) -> dict[str, int]:
    """Returns how many trials are in each state; those that people have stopped are apart from the failed ones."""
    found = data.counts_of(ends, waiting)
    return {**{state.value: getattr(found, state.value) for state in TrialState}, "interrupted": found.interrupted}
