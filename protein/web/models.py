"""What the engine's models say of a sweep, computed once and kept: fits take seconds, and several pages ask.

An answer is kept as long as the finished trials are the same. Two requests that need the same fit wait for one of them.
While trials keep ending, a page would ask for a new fit every few seconds. So an answer of at most `PATIENCE_SECONDS`
is given again, and says how many trials it has seen.
"""

import dataclasses
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from protein.errors import UsageError
from protein.space import Space
from protein.types import Measurement, Observation, TrialEnd, TrialState
from protein.web.frame import Frame

PATIENCE_SECONDS = 20.0
MAX_OBSERVATIONS = 5_000  # of a larger sweep the best half of so many, and others at random
_MOST_KEPT = 64
_SEED = 1

T = TypeVar("T")


@dataclasses.dataclass(slots=True)
class _Kept:
    lock: threading.Lock
    version: Any = None
    made_at: float = -1e9
    value: Any = None


class Fits:
    """Answers of slow functions of a sweep's finished trials. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, _Kept] = OrderedDict()

    def of(self, key: Any, frame: Frame, make: Callable[[], T]) -> T:
        """Returns what `make` has returned for this key and the sweep's finished trials, or calls it.

        Errors are not kept.
        """
        key = (frame.sweep.id, key)
        with self._lock:
            kept = self._kept.setdefault(key, _Kept(threading.Lock()))
            self._kept.move_to_end(key)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        version = finished_version(frame)
        with kept.lock:
            # An exclusion is somebody's own act, who wants to see its effect: only new trials have to wait.
            fresh = time.monotonic() - kept.made_at < PATIENCE_SECONDS
            same = kept.version == version
            waits = fresh and kept.version is not None and kept.version[1] == version[1]
            if not (same or waits):
                kept.value = make()
                kept.version, kept.made_at = version, time.monotonic()
            value: T = kept.value
            return value


def finished_version(frame: Frame) -> tuple[int, int]:
    """Returns how many trials have finished, and a number that changes with what is excluded."""
    excluded = frame.columns["excluded"].values[_finished(frame)]
    return len(excluded), hash(np.flatnonzero(excluded).tobytes())


def space_of(frame: Frame) -> Space:
    """Returns the space of a sweep. Raises `SpaceError` where the store holds none."""
    return Space.from_dict(frame.sweep.spec.space)


def observations(frame: Frame) -> list[Observation]:
    """Returns a sweep's finished trials for the models, oldest first; excluded ones are left out.

    Their curves have one point, the last one: the models read from it how far a trial came that was stopped. Of a
    sweep of more than `MAX_OBSERVATIONS` trials, some are left out.
    """
    rows = _finished(frame)
    rows = rows[~frame.columns["excluded"].values[rows].astype(bool)]
    if len(rows) > MAX_OBSERVATIONS:
        scores = frame.stored_score()[rows]
        order = np.argsort(np.where(np.isnan(scores), np.inf, -scores), kind="stable")
        half = MAX_OBSERVATIONS // 2
        others = np.random.default_rng(_SEED).permutation(order[half:])[: MAX_OBSERVATIONS - half]
        rows = np.sort(rows[np.concatenate([order[:half], others])])
    params = frame.group("params")
    values: dict[str, list[Any]] = {name: column.listed(rows) for name, column in params.items()}
    fields: dict[str, list[Any]] = {
        key: frame.columns[key].listed(rows)
        for key in ("number", "state", "end", "cost_seconds", "steps", "continues", "continued_seconds")
    }
    scores = frame.stored_score()[rows].tolist()
    found = []
    for i in range(len(rows)):
        score = scores[i] if scores[i] == scores[i] else None
        seconds, steps = float(fields["cost_seconds"][i] or 0.0), int(fields["steps"][i] or 0)
        state, end = TrialState(fields["state"][i]), fields["end"][i]
        if state is TrialState.COMPLETE and score is None:
            continue
        found.append(
            Observation(
                params={name: column[i] for name, column in values.items() if column[i] is not None},
                state=state,
                end=None if end is None else TrialEnd(end),
                score=score,
                cost_seconds=seconds,
                curve=(Measurement(steps=steps, elapsed_seconds=seconds, score=score),) if steps > 0 else (),
                number=fields["number"][i],
                continues=fields["continues"][i],
                continued_seconds=float(fields["continued_seconds"][i] or 0.0),
            )
        )
    return found


def one_sweep(names: list[str]) -> str:
    """Returns the only name. Raises `UsageError` for none or several: models are of one sweep."""
    if len(names) != 1:
        raise UsageError(f"this is about one sweep, and {len(names)} are named; give one with sweep=NAME")
    return names[0]


def _finished(frame: Frame) -> Any:
    state = frame.columns["state"]
    running = state.words.index(TrialState.RUNNING.value) if TrialState.RUNNING.value in state.words else -1
    return np.flatnonzero(state.values != running)
