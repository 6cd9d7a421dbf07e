"""Sweeps and trials as plain data with stable keys: what `--json` prints. Times are ISO 8601, in UTC."""

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import numpy as np

from protein.columns import OTHERS, Dot, TrialColumns
from protein.direction import shown_trial
from protein.engine import pareto
from protein.types import Estimate, SuggestionKind, SweepRecord, TrialEnd, TrialRecord, TrialState, spent_seconds
from protein.view import text

_FIELDS = (  # of a trial, in the order in which they are printed, behind what `point` gives
    "seed",
    "state",
    "end",
    "reason",
    "kind",
    "origin",
    "continues",
    "predicted_score",
    "predicted_cost_seconds",
    "suggest_seconds",
    "lost_seconds",
    *OTHERS,
    "timings",
    "metrics",
    "artifacts",
    "tags",
    "note",
    "excluded",
    "provenance",
    "started_at",
    "finished_at",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many trials of a sweep ended how, without confirmations that have finished."""

    running: int
    waiting: int  # interrupted, and taken up again when the sweep runs
    complete: int
    pruned: int
    stopped_early: int  # of those
    capped: int  # of those
    out_of_budget: int  # of those
    failed: int
    interrupted: int  # not among `failed`

    @property
    def total(self) -> int:
        return self.running + self.waiting + self.finished

    @property
    def finished(self) -> int:
        return self.complete + self.pruned + self.failed + self.interrupted

    def ends(self) -> list[str]:
        """Returns how many trials ended how, in words, as in "12 complete" and "1 failed"."""
        numbers = {
            "waiting": self.waiting,
            "complete": self.complete,
            "stopped early": self.stopped_early,
            "capped": self.capped,
            "out of budget": self.out_of_budget,
            "failed": self.failed,
            "interrupted": self.interrupted,
        }
        return [f"{number} {word}" for word, number in numbers.items() if number]


def counts(trials: Sequence[TrialRecord | Dot]) -> Counts:
    waiting = sum(trial.state is TrialState.WAITING for trial in trials)
    return counts_of(collections.Counter(trial.end for trial in trials if not _confirmed(trial)), waiting)


def _confirmed(trial: TrialRecord | Dot) -> bool:
    return trial.confirms and trial.end is not None


def counts_of(ends: Mapping[TrialEnd | None, int], waiting: int) -> Counts:
    """Returns the same from how many trials ended how (None: how many have not finished), and how many wait."""
    of = dict.fromkeys(TrialState, 0)
    for end, number in ends.items():
        of[TrialState.RUNNING if end is None else end.state] += number
    interrupted = ends.get(TrialEnd.INTERRUPTED, 0)
    return Counts(
        running=of[TrialState.RUNNING] - waiting,
        waiting=waiting,
        complete=of[TrialState.COMPLETE],
        pruned=of[TrialState.PRUNED],
        stopped_early=ends.get(TrialEnd.STOPPED_EARLY, 0),
        capped=ends.get(TrialEnd.CAPPED, 0),
        out_of_budget=ends.get(TrialEnd.OUT_OF_BUDGET, 0),
        failed=of[TrialState.FAILED] - interrupted,
        interrupted=interrupted,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a sweep is: `best` is the best measured trial as it is stored, if any was trained to its end.

    Confirmations, which are no trials of the search, are counted apart; see `protein.columns.SweepSummary`.
    """

    counts: Counts
    spent_seconds: float
    best: TrialRecord | None
    confirmations: int = 0
    confirming_seconds: float = 0.0

    @classmethod
    def of(
        cls, trials: Sequence[TrialRecord | Dot], *, best: TrialRecord | None, num_interrupted: int = 0
    ) -> "Progress":
        """Returns it from all trials; `num_interrupted` are stored as running, but their processes are gone."""
        searched = [trial for trial in trials if not trial.confirms]
        waiting = sum(trial.state is TrialState.WAITING for trial in trials) + num_interrupted
        return cls(
            counts=counts_of(collections.Counter(trial.end for trial in trials if not _confirmed(trial)), waiting),
            spent_seconds=spent_seconds(searched),
            best=best,
            confirmations=sum(map(_confirmed, trials)),
            confirming_seconds=spent_seconds(trial for trial in trials if trial.confirms),
        )

    @classmethod
    def of_columns(cls, trials: TrialColumns, *, best: TrialRecord | None) -> "Progress":
        """Returns it from columns with `DOT_FIELDS`: for many trials much faster."""
        confirms = np.array([kind is SuggestionKind.REEVALUATION for kind in trials.kind], dtype=bool)
        done = np.array([end is not None for end in trials.end], dtype=bool) & confirms
        ended = collections.Counter(end for end, apart in zip(trials.end, done.tolist(), strict=True) if not apart)
        costs = np.stack([trials.cost_seconds, trials.lost_seconds])
        return cls(
            counts=counts_of(ended, sum(state is TrialState.WAITING for state in trials.state)),
            spent_seconds=math.fsum(costs[:, ~confirms].ravel()),
            best=best,
            confirmations=int(done.sum()),
            confirming_seconds=math.fsum(costs[:, confirms].ravel()),
        )

    def confirmed(self) -> str:
        """Returns what confirmations took, to follow what was spent; "" where there are none."""
        return text.confirmed(self.confirmations, self.confirming_seconds)


def progress(known: Sequence[TrialRecord] | Progress) -> Progress:
    """Returns how far a sweep is, from its trials as they are stored."""
    if isinstance(known, Progress):
        return known
    return Progress.of(known, best=pareto.best_under(known))


def sweep(record: SweepRecord, known: Sequence[TrialRecord] | Progress) -> dict[str, Any]:
    """Returns how a sweep is getting on, from its trials as they are stored; the best one's score as it is shown."""
    direction, known = record.spec.direction, progress(known)
    best = known.best
    return {
        "name": record.spec.name,
        "env": record.spec.env,
        "method": record.spec.method,
        "seed": record.spec.seed,
        "direction": str(direction),
        "created_at": record.created_at.isoformat(),
        "max_cost_seconds": record.max_cost_seconds,
        "requested": str(record.requested),
        "ended": record.ended,
        "spent_seconds": known.spent_seconds,
        "trials": dataclasses.asdict(known.counts),
        "confirmations": known.confirmations,
        "confirming_seconds": known.confirming_seconds,
        "best": None if best is None else point(shown_trial(best, direction)),
    }


def point(record: TrialRecord) -> dict[str, Any]:
    """Returns what places a trial on the front, and its params."""
    return {
        "number": record.number,
        "score": record.score,
        "cost_seconds": record.cost_seconds,
        "run_seconds": record.run_seconds,
        "steps": record.steps,
        "params": dict(record.params),
    }


def trial(record: TrialRecord, *, curve: bool) -> dict[str, Any]:
    """Returns everything about a trial; its learning curve only when asked."""
    values = {**point(record), **{name: _plain(getattr(record, name)) for name in _FIELDS}}
    if curve:
        values["curve"] = _plain(record.curve)
    return values


def _plain(value: Any) -> Any:
    """Returns a field's value as JSON has it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, StrEnum) else value


def annotation(record: TrialRecord) -> dict[str, Any]:
    """Returns what people have written about a trial."""
    return {"tags": list(record.tags), "note": record.note, "excluded": record.excluded}


def estimate(value: Estimate | None) -> dict[str, float] | None:
    return None if value is None else dataclasses.asdict(value)
