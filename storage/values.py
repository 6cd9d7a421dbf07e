"""Between the types that flow and the columns: checks on the way in, records on the way out.

In: no NaN, no infinity, no integer beyond 64 bits, no text that UTF-8 or PostgreSQL cannot hold (a NUL, half a
surrogate pair). A value that cannot be stored is a `StoreError` that names it, never something else in its place; only
free text (`readable`), which may quote a broken process's output, has such characters replaced.
"""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from protein.errors import StoreError
from protein.storage.rows import SweepRow, TrialRow
from protein.types import (
    Artifact,
    Estimate,
    Measurement,
    Outcome,
    Params,
    Provenance,
    SweepRecord,
    SweepSpec,
    TrialRecord,
    TrialState,
)

MAX_INTEGER = 2**63 - 1  # of both databases
MAX_LEASE_SECONDS = 366 * 86_400.0


def text(what: str, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise StoreError(f"{what} {value!r} is not valid Unicode and cannot be stored; give another") from None
    if "\0" in value:
        raise StoreError(f"{what} {value!r} has a NUL character and cannot be stored; give another")
    return value


def readable(value: str) -> str:
    """Returns free text with what cannot be stored replaced by U+FFFD."""
    return value.replace("\0", "\ufffd").encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def integer(what: str, value: int, low: int = -MAX_INTEGER - 1) -> int:
    if not low <= value <= MAX_INTEGER:
        raise StoreError(f"{what} {_shown(value)} cannot be stored: an integer from {low} to 2**63 - 1 is needed")
    return int(value)


def number(what: str, value: float) -> float:
    """Returns a finite float."""
    if isinstance(value, int | float):
        try:
            if math.isfinite(value):
                return float(value)
        except OverflowError:
            pass
    raise StoreError(f"{what} {_shown(value)} cannot be stored: a finite number is needed")


def optional_number(what: str, value: float | None) -> float | None:
    return None if value is None else number(what, value)


def seconds(what: str, value: float) -> float:
    if (value := number(what, value)) < 0:
        raise StoreError(f"{what} {value:g} cannot be stored: seconds must be 0 or more")
    return value


def budget(value: float | None) -> float | None:
    return None if value is None else seconds("budget", value)


def lease(value: float) -> timedelta:
    if not 0 < number("lease_seconds", value) <= MAX_LEASE_SECONDS:
        raise StoreError(f"lease_seconds {value:g} must be above 0 and at most {MAX_LEASE_SECONDS:g}")
    return timedelta(seconds=value)


def numbers(what: str, values: Mapping[str, float]) -> dict[str, float]:
    """Returns named finite numbers as they are: an integer stays one."""
    for name, value in values.items():
        number(f"{what} {name!r}", value)
    return dict(values)


def params(values: Params) -> dict[str, Any]:
    for name, value in values.items():
        if not isinstance(value, bool | int | float | str):
            raise StoreError(
                f"parameter {name!r}: a {type(value).__name__} cannot be stored, only bool, int, float, str"
            )
        if isinstance(value, float):
            number(f"parameter {name!r}", value)
    return dict(values)


def json_object(what: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy made of plain JSON values (tuples become lists)."""
    try:
        copy: dict[str, Any] = json.loads(json.dumps(values, allow_nan=False, default=_plain))
    except (TypeError, ValueError) as error:
        raise StoreError(f"{what} cannot be stored: {error}; it must be plain JSON without NaN and infinity") from error
    return copy


def _shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 64:
        return f"of {value.bit_length()} bits"
    return f"{value!r:.80}"


def _plain(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r:.80} of type {type(value).__name__} is not JSON")


def check_outcome(outcome: Outcome) -> None:
    """Raises `StoreError` where state, score and reason contradict each other."""
    state, score = outcome.state, outcome.score
    if not state.finished:
        raise StoreError(f"a trial cannot end in state {state}; an outcome needs complete, pruned or failed")
    if state is TrialState.COMPLETE and score is None:
        raise StoreError("a complete trial needs a score; without one it is failed, with a reason")
    if state is TrialState.FAILED and (score is not None or not outcome.reason):
        raise StoreError(f"a failed trial has no score and a reason, got score {score}, reason {outcome.reason!r:.80}")


def estimate_columns(column: str, estimate: Estimate | None) -> dict[str, float | None]:
    if estimate is None:
        return {column: None, f"{column}_low": None, f"{column}_high": None}
    return {
        column: number(column, estimate.value),
        f"{column}_low": number(f"{column}'s low end", estimate.low),
        f"{column}_high": number(f"{column}'s high end", estimate.high),
    }


def provenance_columns(provenance: Provenance) -> dict[str, str]:
    return {
        "version": text("version", provenance.version),
        "git_commit": text("git commit", provenance.git_commit),
        "machine": readable(provenance.machine),
        "config_hash": text("config hash", provenance.config_hash),
    }


def sweep_record(row: SweepRow) -> SweepRecord:
    return SweepRecord(
        id=row.id,
        spec=SweepSpec(
            name=row.name,
            env=row.env,
            method=row.method,
            seed=row.seed,
            space=row.space,
            config=row.config,
            prior=row.prior,
            provenance=_provenance(row),
        ),
        max_cost_seconds=row.max_cost_seconds,
        created_at=row.created_at,
    )


def trial_record(row: TrialRow, curve: Sequence[Measurement], artifacts: Sequence[Artifact]) -> TrialRecord:
    return TrialRecord(
        id=row.id,
        sweep_id=row.sweep_id,
        number=row.number,
        params=row.params,
        seed=row.seed,
        state=TrialState(row.state),
        owner=row.owner,
        origin=row.origin,
        predicted_score=_estimate(row.predicted_score, row.predicted_score_low, row.predicted_score_high),
        predicted_cost_seconds=_estimate(
            row.predicted_cost_seconds, row.predicted_cost_seconds_low, row.predicted_cost_seconds_high
        ),
        suggest_seconds=row.suggest_seconds,
        score=row.score,
        cost_seconds=row.cost_seconds,
        steps=row.steps,
        reason=row.reason,
        timings=row.timings,
        metrics=row.metrics,
        curve=tuple(curve),
        artifacts=tuple(artifacts),
        provenance=_provenance(row),
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


def _provenance(row: SweepRow | TrialRow) -> Provenance:
    return Provenance(version=row.version, git_commit=row.git_commit, machine=row.machine, config_hash=row.config_hash)


def _estimate(value: float | None, low: float | None, high: float | None) -> Estimate | None:
    if value is None or low is None or high is None:
        return None
    return Estimate(value=value, low=low, high=high)
