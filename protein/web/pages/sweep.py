"""`/api/sweep`: how a sweep went, as a whole, for the lower part of the page Overview."""

import dataclasses
import heapq
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from starlette.routing import BaseRoute

from protein.analysis.dominated import spending_of
from protein.direction import shown_score
from protein.engine.gp import Array
from protein.errors import UsageError
from protein.sweep.ownership import alive
from protein.types import SuggestionKind, SweepRecord, TrialEnd, TrialState, runs_trainer
from protein.view import commands
from protein.web import findings
from protein.web.answers import Query, get
from protein.web.frame import Frame
from protein.web.pages.front import thinned
from protein.web.pages.sweeps import interrupted, summary
from protein.web.viewer import Viewer

MAX_BARS = 2_000  # of the time line
MAX_LANES = 64  # of the time line; trials in further lanes are counted
MAX_DOTS = 3_000  # of scores by number
MAX_STEPS = 1_000  # of the lines over time
MAX_REASONS = 3  # of each end
MAX_NUMBERS = 20  # of trials that are named
MANY = 20_000  # trials, of which the processes are not told, and which grow on the page less often
GROWS_SECONDS = 3.0  # how old the length of running trials may be
_FIGURE = re.compile(r"(?<![\w.])\d+(\.\d+)?(?!\w)")
_GAP_SHARE, _GAP_SECONDS = 0.04, 5.0  # a time without trials is left out if it is longer than both


def routes(viewer: Viewer) -> list[BaseRoute]:
    def sweep(query: Query) -> dict[str, Any]:
        name = _name(query)
        frame, record = viewer.frame(name), viewer.sweep(name)
        running = _states(frame) == TrialState.RUNNING
        # What runs grows with time; everything else only with the frame.
        every = GROWS_SECONDS if len(frame) <= MANY else 10 * GROWS_SECONDS
        key = ("sweep", viewer.version([frame]), int(time.time() / every) if running.any() else 0)
        found = viewer.remembered(key, lambda: whole(viewer, frame, record))
        # A process may end while its trials stay as they are.
        return {**found, "life": str(alive(viewer.store, record).life)}

    def calibration(query: Query) -> dict[str, Any]:
        frame = viewer.frame(_name(query))
        found = viewer.background.ask(
            ("calibration", frame.sweep.id), findings.version(frame), lambda: findings.calibrations(frame)
        )
        return findings.asked(found)

    def outlook(query: Query) -> dict[str, Any]:
        return findings.asked(findings.finding(viewer, _name(query), "outlook"))

    return [
        get("/sweep", sweep),
        get("/sweep/calibration", calibration),
        get("/sweep/outlook", outlook),
    ]


def whole(viewer: Viewer, frame: Frame, sweep: SweepRecord) -> dict[str, Any]:
    """Returns what a sweep's trials tell about it without any model."""
    states = _states(frame)
    running = states == TrialState.RUNNING
    started, ended = frame.columns["started_at"].floats(), frame.columns["finished_at"].floats()
    own, run = frame.columns["cost_seconds"].floats(), frame.columns["run_seconds"].floats()
    gone = interrupted(_running(viewer, frame, running))
    stopped = (states == TrialState.WAITING) | np.isin(frame.numbers, gone)
    ended = np.where(stopped, started + np.nan_to_num(own), ended)  # it ran for about that long
    ended = np.where(np.isnan(ended), time.time(), ended)
    ended = np.maximum(ended, started)
    excluded = frame.columns["excluded"].values == 1
    lost = np.nan_to_num(frame.columns["lost_seconds"].floats())
    costs = np.nan_to_num(own), np.nan_to_num(run)
    spent = spending_of(states.tolist(), frame.stored_score(), *costs, excluded, lost)
    spec = sweep.spec
    return {
        **summary(frame),
        "seed": spec.seed,
        "provenance": dataclasses.asdict(spec.provenance),
        "trains": runs_trainer(spec.config),
        "warm_start": warm_start(spec.warm_start),
        "parameters": len(spec.space.get("parameters", ())),
        "excluded": int(frame.columns["excluded"].values.sum()),
        "engine_seconds": float(np.nansum(frame.columns["suggest_seconds"].floats())),
        "wall_seconds": float(ended.max() - started.min()) if len(frame) else 0.0,
        "timeline": time_line(
            frame, np.where(running & stopped, "interrupted", states), started, ended, _processes(viewer, sweep)
        ),
        "progress": progress(frame, states, ended, own + lost),
        "history": history(frame, states),
        "ends": ends(frame, own),
        "kinds": dict(Counter(frame.columns["kind"].listed())),
        "spending": {**dataclasses.asdict(spent), "total": spent.total, "share": spent.share},
        "command": commands.command("status", spec.name, *findings.store_words(viewer)),
    }


def time_line(frame: Frame, states: Any, started: Array, ended: Array, owners: Mapping[int, str]) -> dict[str, Any]:
    """Returns the trials as bars in lanes, and the spans in which nothing ran; `owners` by the trial's number."""
    lane = lanes(started, ended)
    shown = np.flatnonzero(lane < MAX_LANES)
    made = bars(started[shown], ended[shown], lane[shown], MAX_BARS)
    busy = float(np.sum(ended - started))
    listed = []
    for bar in made:
        rows = shown[list(bar.rows)]
        first = int(rows[0])
        of = {str(state) for state in states[rows]}
        listed.append(
            {
                "lane": bar.lane,
                "start": bar.start,
                "end": bar.end,
                "count": len(rows),
                "number": int(frame.numbers[first]),
                "state": of.pop() if len(of) == 1 else "several",
                "process": owners.get(int(frame.numbers[first])),
                "score": frame.columns["score"].value(first) if len(rows) == 1 else None,
            }
        )
    num_lanes = int(lane.max()) + 1 if len(lane) else 0
    least = max(_GAP_SECONDS, _GAP_SHARE * busy / max(1, num_lanes))
    return {
        "bars": listed,
        "lanes": min(num_lanes, MAX_LANES),
        "hidden": len(frame) - len(shown),
        "gaps": [list(gap) for gap in gaps(started, ended, least)],
    }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Trials that stand together in one lane, mostly one. `rows` are their places among the n."""

    lane: int
    start: float
    end: float
    rows: tuple[int, ...]


def lanes(start: Array, end: Array) -> npt.NDArray[np.intp]:
    """Returns the lane of each of `n` trials, from 0: the lowest that was free when it started.

    Args:
        start: `n`.
        end: `n`; of running trials the present time.
    """
    found = np.zeros(len(start), dtype=np.intp)
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    number = 0
    for row in np.lexsort((end, start)):
        while busy and busy[0][0] <= start[row]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, number = number, number + 1
        found[row] = lane
        heapq.heappush(busy, (float(end[row]), lane))
    return found


def bars(start: Array, end: Array, lane: npt.NDArray[np.intp], most: int) -> list[Bar]:
    """Returns the trials as bars, at most about `most`: where they are more, narrow neighbours of a lane are joined.

    Args:
        start: `n`.
        end: `n`.
        lane: `n`, of `lanes`.
        most: number of bars, at least 1; the number of lanes is the least.
    """
    if not len(start):
        return []
    num_lanes = int(lane.max()) + 1
    width = 0.0 if len(start) <= most else float(end.max() - start.min()) / max(1, most // num_lanes)
    found: list[Bar] = []
    for one in range(num_lanes):
        rows = np.flatnonzero(lane == one)
        rows = rows[np.argsort(start[rows], kind="stable")]
        group: list[int] = []
        for row in rows.tolist():
            if group and end[row] - start[group[0]] > width:
                found.append(_bar(one, group, start, end))
                group = []
            group.append(row)
        found.append(_bar(one, group, start, end))
    return found


def gaps(start: Array, end: Array, least: float) -> list[tuple[float, float]]:
    """Returns the spans in which no trial ran, those that are longer than `least` seconds, the earliest first."""
    if not len(start):
        return []
    order = np.argsort(start, kind="stable")
    until = np.maximum.accumulate(end[order])[:-1]
    following = start[order][1:]
    return [(float(until[place]), float(following[place])) for place in np.flatnonzero(following - until > least)]


def progress(frame: Frame, states: Any, ended: Array, own: Array) -> dict[str, Any]:
    """Returns cost spent, trials finished and best measured score so far, as the trials ended.

    `own` is what each trial took of the budget: its own cost, and what interruptions have undone.
    """
    done = _done(states)
    order = done[np.argsort(ended[done], kind="stable")]
    scores = _able_scores(frame, states)[order]
    best = np.fmax.accumulate(scores) if len(scores) else scores
    searched = np.array(frame.columns["kind"].listed(), dtype=object)[order] != SuggestionKind.REEVALUATION.value
    spent = np.cumsum(np.where(searched, np.nan_to_num(own[order]), 0.0))  # confirmations are told apart
    step = max(1, -(-len(order) // MAX_STEPS))
    shown = np.unique(np.append(np.arange(0, len(order), step), max(len(order) - 1, 0)))[: len(order)]
    direction = frame.sweep.spec.direction
    return {
        "at": ended[order][shown].tolist(),
        "spent": spent[shown].tolist(),
        "best": [None if np.isnan(one) else shown_score(float(one), direction) for one in best[shown]],
        "trials": np.cumsum(searched)[shown].tolist(),
    }


def history(frame: Frame, states: Any) -> dict[str, Any]:
    """Returns the scores of the trials that have ended by their numbers, at most about `MAX_DOTS`, and the best so far.

    The trials that were better than all before them are all there.
    """
    done = _done(states)
    scores = frame.columns["score"].floats()[done]
    best = np.fmax.accumulate(_able_scores(frame, states)[done]) if len(done) else scores
    known = np.nan_to_num(best, nan=-np.inf)
    better = np.flatnonzero(known > np.concatenate([[-np.inf], known[:-1]])[: len(known)])
    shown = thinned(frame.numbers[done].astype(np.float64), np.nan_to_num(scores), MAX_DOTS, better)
    rows = done[shown]
    return {
        "number": frame.numbers[rows].tolist(),
        "state": [str(state) for state in states[rows]],
        "score": [None if np.isnan(one) else findings.short(one) for one in scores[shown].tolist()],
        "excluded": (frame.columns["excluded"].values[rows] == 1).tolist(),
        "best": {"number": frame.numbers[done[better]].tolist(), "score": scores[better].tolist()},
    }


def _done(states: Any) -> Any:
    return np.flatnonzero((states != TrialState.RUNNING) & (states != TrialState.WAITING))


def _able_scores(frame: Frame, states: Any) -> Array:
    """Returns the stored scores of n trials that can be the best, `n`; NaN for the others."""
    able = (states == TrialState.COMPLETE) & (frame.columns["excluded"].values != 1) & frame.within_limits()
    return np.where(able, frame.stored_score(), np.nan)


def ends(frame: Frame, own: Array) -> list[dict[str, Any]]:
    """Returns for each way to end how many trials ended so, what they cost, and the usual reasons."""
    column, reasons = frame.columns["end"], frame.columns["reason"]
    found = []
    for end in TrialEnd:
        if end.value not in column.words:
            continue
        rows = np.flatnonzero(~column.missing & (column.values == column.words.index(end.value)))
        if not len(rows):
            continue
        found.append(
            {
                "end": end.value,
                "state": end.state.value,
                "count": len(rows),
                "seconds": float(np.nansum(own[rows])),
                "teaches": end.teaches,
                "reasons": usual_reasons([str(reason) for reason in reasons.listed(rows) if reason], end),
                "numbers": frame.numbers[rows].tolist()[-MAX_NUMBERS:],
            }
        )
    return found


def usual_reasons(given: Sequence[str], end: TrialEnd) -> list[tuple[str, int]]:
    """Returns the most frequent reasons of one end, and how many trials gave each.

    Reasons that differ in their figures only count as one, with ".." for a figure. The end's own name before a reason
    is left out.
    """
    groups: dict[str, list[str]] = {}
    for reason in given:
        text = reason.removeprefix(f"{end.text}: ") if end.text else reason
        groups.setdefault(_FIGURE.sub("..", text), []).append(text)
    most = sorted(groups.items(), key=lambda one: -len(one[1]))[:MAX_REASONS]
    return [(texts[0] if len(set(texts)) == 1 else like, len(texts)) for like, texts in most]


def warm_start(snapshot: Mapping[str, Any]) -> list[str]:
    """Returns the names of the sweeps that a sweep learns from."""
    sources = snapshot.get("sources", [snapshot] if snapshot else [])
    return [str(source["sweep"]) for source in sources if isinstance(source, Mapping) and "sweep" in source]


def _bar(lane: int, rows: list[int], start: Array, end: Array) -> Bar:
    return Bar(lane=lane, start=float(start[rows[0]]), end=float(max(end[row] for row in rows)), rows=tuple(rows))


def _states(frame: Frame) -> Any:
    return np.array(frame.columns["state"].listed(), dtype=np.str_)


def _running(viewer: Viewer, frame: Frame, running: Any) -> dict[int, str]:
    """Returns the owners of running trials by number."""
    numbers = frame.numbers[running].tolist()
    found = viewer.store.trials(frame.sweep.id, curves=False, numbers=numbers) if numbers else []
    return {trial.number: trial.owner for trial in found if trial.state is TrialState.RUNNING}


def _processes(viewer: Viewer, sweep: SweepRecord) -> dict[int, str]:
    """Returns which process ran each trial, its machine and its number there; nothing for a very large sweep."""
    frame = viewer.frame(sweep.spec.name)
    if len(frame) > MANY:
        return {}

    def read() -> dict[int, str]:
        found = viewer.store.columns(sweep.id, fields=("owner",))
        # An owner is host:pid:time; the time only tells processes of the same number apart.
        owners = zip(found.number.tolist(), found.owner, strict=True)
        return {number: " ".join(owner.rsplit(":", 2)[:2]) for number, owner in owners}

    owners: dict[int, str] = viewer.remembered(("owners", sweep.id, len(frame)), read)
    return owners


def _name(query: Query) -> str:
    names = query.texts("sweep", most=1)
    if not names:
        raise UsageError("name the sweep with sweep=NAME")
    return names[0]
