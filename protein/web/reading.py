"""What the page's server reads from a store: a sweep's trials as plain columns, whole or since a cursor."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from protein.ports import Store
from protein.types import TrialRecord


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some trials of a sweep as columns of plain values, None where one is missing; scores as they are stored."""

    cursor: str
    numbers: Sequence[int]
    fields: Mapping[str, Any]
    params: Mapping[str, Any]
    metrics: Mapping[str, Any]
    timings: Mapping[str, Any]


def read(store: Store, sweep_id: int, since: str | None) -> Rows:
    """Returns the trials that changed since a cursor; all of them where there is none."""
    trials = store.trials(sweep_id)
    return Rows(
        cursor=str(len(trials)),
        numbers=[trial.number for trial in trials],
        fields={
            **{
                name: [getattr(trial, name) for trial in trials]
                for name in ("score", "cost_seconds", "steps", "origin", "reason", "continues", "continued_seconds")
            },
            **{name: [_text(getattr(trial, name)) for trial in trials] for name in ("state", "end", "kind")},
            **{
                name + end: [_part(getattr(trial, name), part) for trial in trials]
                for name in ("predicted_score", "predicted_cost_seconds")
                for end, part in (("", "value"), ("_low", "low"), ("_high", "high"))
            },
            "suggest_seconds": [trial.suggest_seconds for trial in trials],
            "started_at": [trial.started_at.timestamp() for trial in trials],
            "finished_at": [None if t.finished_at is None else t.finished_at.timestamp() for t in trials],
            "tags": [() for _ in trials],
            "note": ["" for _ in trials],
            "excluded": [False for _ in trials],
        },
        params=_group(trials, "params"),
        metrics=_group(trials, "metrics"),
        timings=_group(trials, "timings"),
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _part(estimate: Any, part: str) -> float | None:
    return None if estimate is None else float(getattr(estimate, part))


def _group(trials: Sequence[TrialRecord], group: str) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for trial in trials for name in getattr(trial, group))
    return {name: [getattr(trial, group).get(name) for trial in trials] for name in names}
