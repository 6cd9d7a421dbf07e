"""What models of a sweep learn from, out of its frame, and what they have found: computed once, in the background.

An answer that needs a fit waits for it a little: no thread of the server is held for long. Then it takes an earlier
fit, or says that the first one is being computed. In both cases the page asks again. A fit is kept as long as the
finished trials are the same (`protein.web.background`).
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from protein.errors import SpaceError, UsageError
from protein.space import Space
from protein.types import Measurement, Observation, TrialEnd, TrialState
from protein.web import findings
from protein.web.answers import StillComputing
from protein.web.frame import Frame
from protein.web.viewer import Viewer

PATIENCE_SECONDS = 2.0  # of an answer to a page
MAX_WAIT_SECONDS = 120.0  # of one to a report, which asks once
MAX_OBSERVATIONS = 5_000  # of a larger sweep: half of them the best trials, half drawn at random
_SEED = 1

T = TypeVar("T")


def fitted(viewer: Viewer, frame: Frame, name: Any, make: Callable[[], T]) -> tuple[T, bool]:
    """Returns what `make` gives for a sweep's finished trials; of the same trials it is computed once for each name.

    While it is computed, a page gets an earlier one, and True: it should ask again. Trials may end faster than a fit
    takes, so a page that waits for the newest fit would never show one.

    Raises:
        StillComputing: there is none yet; the page asks again.
        UsageError: it cannot be computed, or takes too long for a report.
    """
    key = ("models", name, frame.sweep.id)
    found = viewer.background.ask(
        key, findings.version(frame), make, patience=PATIENCE_SECONDS if viewer.is_served else MAX_WAIT_SECONDS
    )
    if found.state == "failed":
        raise UsageError(found.error)
    if found.value is None and viewer.is_served:
        raise StillComputing("the model is being fitted")
    if found.value is None:
        raise UsageError(f"the model has not been fitted within {MAX_WAIT_SECONDS:.0f} s; try again")
    value: T = found.value
    return value, found.state == "computing"


def space_of(frame: Frame) -> Space:
    """Returns the space of a sweep. Raises `UsageError` where the store holds none that can be read."""
    try:
        return Space.from_dict(frame.sweep.spec.space)
    except SpaceError as error:
        name = frame.sweep.spec.name
        raise UsageError(f"the store holds no search space of sweep '{name}', so there is no model of it") from error


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
    unfinished = [state.words.index(one.value) for one in TrialState if not one.finished and one.value in state.words]
    return np.flatnonzero(~np.isin(state.values, unfinished))
