"""`/api/sweeps`: what the store holds, in one line a sweep. It reads no trials: the store counts them."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from starlette.routing import BaseRoute

from protein.columns import SweepSummary
from protein.run.lease import dead_owners
from protein.types import SweepRecord, TrialEnd, TrialState
from protein.web.answers import Query, get
from protein.web.frame import Frame
from protein.web.viewer import Viewer

MAX_SUMMARIES = 100  # sweeps whose trials are counted; of older ones the names are listed


def routes(viewer: Viewer) -> list[BaseRoute]:
    def sweeps(query: Query) -> dict[str, Any]:
        found = list(viewer.sweeps().values())[::-1]
        summaries = viewer.store.summaries([sweep.id for sweep in found[:MAX_SUMMARIES]])
        listed = [described(sweep, summaries.get(sweep.id)) for sweep in found]
        return {"store": shown_store(viewer.url), "epoch": viewer.epoch, "sweeps": listed}

    return [get("/sweeps", sweeps)]


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
        "max_cost_seconds": sweep.max_cost_seconds,
    }
    if counted is None:
        return found
    counts = _states(counted.ends, len(counted.waiting))
    return {
        **found,
        "spent_seconds": counted.spent_seconds,
        "trials": sum(counts.values()),
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
    ends = Counter(None if end is None else TrialEnd(str(end)) for end in frame.columns["end"].listed())
    costs = [frame.columns[name].floats() for name in ("cost_seconds", "lost_seconds")]
    found = SweepSummary(
        ends=ends,
        excluded=int(np.count_nonzero(frame.columns["excluded"].values)),
        spent_seconds=math.fsum(np.concatenate(costs)),
        best=None,
        cut_short=None,
        running={},
        waiting=tuple(frame.numbers[np.array(frame.columns["state"].listed()) == TrialState.WAITING.value].tolist()),
    )
    return described(frame.sweep, found)


def _states(ends: Mapping[TrialEnd | None, int], waiting: int) -> dict[str, int]:
    counts = {state.value: 0 for state in TrialState}
    for end, count in ends.items():
        counts[(TrialState.RUNNING if end is None else end.state).value] += count
    counts[TrialState.RUNNING.value] -= waiting
    counts[TrialState.WAITING.value] += waiting
    return counts
