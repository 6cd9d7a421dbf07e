"""When trials ran: in lanes, one for each trial that runs at a time, with the times in which nothing ran.

Notation: `n` is the number of trials. Times are seconds since 1970.
"""

import dataclasses
import heapq

import numpy as np
import numpy.typing as npt

from protein.engine.gp import Array


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


def _bar(lane: int, rows: list[int], start: Array, end: Array) -> Bar:
    return Bar(lane=lane, start=float(start[rows[0]]), end=float(max(end[row] for row in rows)), rows=tuple(rows))
