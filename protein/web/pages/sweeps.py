"""`/api/sweeps`: what the store holds, in one line a sweep."""

from typing import Any

import numpy as np
from starlette.routing import BaseRoute

from protein.types import TrialState
from protein.web.answers import Query, get
from protein.web.frame import Frame
from protein.web.viewer import Viewer

MAX_SUMMARIES = 50  # sweeps whose trials are counted; of older ones the names are listed


def routes(viewer: Viewer) -> list[BaseRoute]:
    def sweeps(query: Query) -> dict[str, Any]:
        found = list(viewer.sweeps())[::-1]
        return {
            "store": shown_store(viewer.url),
            "epoch": viewer.epoch,
            "sweeps": [
                summary(viewer.frame(name)) if place < MAX_SUMMARIES else {"name": name}
                for place, name in enumerate(found)
            ],
        }

    return [get("/sweeps", sweeps)]


def shown_store(url: str) -> str:
    """Returns what the page calls the store: the name of its file or database, without folders, user and password."""
    return url.partition("?")[0].replace("\\", "/").rstrip("/").rpartition("/")[2]


def summary(frame: Frame) -> dict[str, Any]:
    """Returns how a sweep is getting on."""
    sweep = frame.sweep
    state = frame.columns["state"]
    counts = {}
    for one in TrialState:
        code = state.words.index(one.value) if one.value in state.words else -1
        counts[one.value] = int(np.sum(state.values == code)) if len(frame) and code >= 0 else 0
    return {
        "name": sweep.spec.name,
        "env": sweep.spec.env,
        "method": sweep.spec.method,
        "direction": str(sweep.spec.direction),
        "created_at": sweep.created_at.timestamp(),
        "max_cost_seconds": sweep.max_cost_seconds,
        "spent_seconds": float(np.sum(frame.columns["cost_seconds"].values)),
        "trials": len(frame),
        "states": counts,
    }
