"""What is written of a sweep and of a trial, under the same names in every tracker.

    parameters    the trial's params by their dotted names
    points        of the learning curve: steps, seconds since the trial began, score, other metrics
    results       numbers of the trial as a whole: score, cost, steps, predictions, final metrics, timings
    facts         texts of the trial: how it ended and why, why it was suggested, where it ran

A number that is not finite is no number in most tools. `split` takes those out, so that a tracker keeps them as text.
"""

import dataclasses
import hashlib
import math
from collections.abc import Mapping

from protein.columns import FIELDS, OTHERS, cells
from protein.types import Measurement, SweepRecord, TrialRecord

SCORE = "score"
COST = "cost_seconds"
ELAPSED = "elapsed_seconds"
STEPS = "steps"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of a trial's curve. `position` counts from 0; `at` is in seconds since 1970."""

    position: int
    steps: int
    at: float
    values: Mapping[str, float]


def trial_name(sweep: SweepRecord, trial: TrialRecord) -> str:
    """Returns a trial's name within the sweep, as in "pong 17"."""
    return f"{sweep.spec.name} {trial.number}"


def trial_key(sweep: SweepRecord, trial: TrialRecord) -> str:
    """Returns 16 hexadecimal digits that only this trial has, in whichever store it is."""
    return key(sweep, str(trial.number))


def key(sweep: SweepRecord, part: str = "") -> str:
    """Returns 16 hexadecimal digits for a part of a sweep, the same each time."""
    whole = "\n".join([sweep.spec.name, sweep.created_at.isoformat(), str(sweep.id), part])
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def started_at(trial: TrialRecord) -> float:
    """Returns when a trial began, in seconds since 1970."""
    return trial.started_at.timestamp()


def ended_at(trial: TrialRecord) -> float:
    """Returns when a trial ended, in seconds since 1970; while it runs, its last measurement."""
    if trial.finished_at is not None:
        return trial.finished_at.timestamp()
    return started_at(trial) + trial.cost_seconds


def point(trial: TrialRecord, position: int) -> Point:
    """Returns a point of a trial's curve."""
    measured: Measurement = trial.curve[position]
    values = {ELAPSED: measured.elapsed_seconds, **measured.metrics}
    if measured.score is not None:
        values[SCORE] = measured.score
    return Point(
        position=position, steps=measured.steps, at=started_at(trial) + measured.elapsed_seconds, values=values
    )


def parameters(trial: TrialRecord) -> dict[str, bool | int | float | str]:
    """Returns the params that are active; None, a list and a table as their JSON, since few trackers hold them."""
    return cells(trial.params)


def results(trial: TrialRecord) -> dict[str, float]:
    """Returns the numbers of a trial as a whole. A score that it lacks is left out: it has none."""
    found: dict[str, float] = {"number": trial.number, COST: trial.cost_seconds, STEPS: trial.steps}
    found |= {"run_seconds": trial.run_seconds, "suggest_seconds": trial.suggest_seconds}
    found |= {name: getattr(trial, name) for name in OTHERS if FIELDS[name] in (int, float)}
    if trial.score is not None:
        found[SCORE] = trial.score
    for name, estimate in (("score", trial.predicted_score), ("cost_seconds", trial.predicted_cost_seconds)):
        if estimate is not None:
            found |= {
                f"predicted_{name}": estimate.value,
                f"predicted_{name}_low": estimate.low,
                f"predicted_{name}_high": estimate.high,
            }
    if trial.continues is not None:
        found["continues"] = trial.continues
    found |= {f"metrics.{name}": value for name, value in trial.metrics.items()}
    return found | {f"timings.{name}": value for name, value in trial.timings.items()}


def facts(sweep: SweepRecord, trial: TrialRecord) -> dict[str, str]:
    """Returns the texts of a trial."""
    provenance = trial.provenance
    found = {
        "sweep": sweep.spec.name,
        "env": sweep.spec.env,
        "method": sweep.spec.method,
        "direction": str(sweep.spec.direction),
        "state": str(trial.state),
        "end": "" if trial.end is None else str(trial.end),
        "reason": trial.reason,
        "kind": str(trial.kind),
        "origin": trial.origin,
        "seed": str(trial.seed),
        "version": provenance.version,
        "git_commit": provenance.git_commit,
        "machine": provenance.machine,
        "config_hash": provenance.config_hash,
        "note": trial.note,
        "excluded": "true" if trial.excluded else "",
    }
    found |= {f"artifact.{artifact.kind}": artifact.path for artifact in trial.artifacts}
    return {name: value for name, value in found.items() if value != ""}


def tags(sweep: SweepRecord, trial: TrialRecord) -> list[str]:
    """Returns the words by which a person filters trials: sweep, environment, how it ended, their own tags."""
    end = str(trial.state if trial.end is None else trial.end)
    found = [sweep.spec.name, sweep.spec.env, end, *trial.tags, *(["excluded"] if trial.excluded else [])]
    return list(dict.fromkeys(word for word in found if word))


def split(values: Mapping[str, float]) -> tuple[dict[str, float], dict[str, str]]:
    """Returns the finite numbers, and the others as the texts "nan", "inf" and "-inf"."""
    finite = {name: float(value) for name, value in values.items() if math.isfinite(value)}
    return finite, {name: str(float(value)) for name, value in values.items() if name not in finite}
