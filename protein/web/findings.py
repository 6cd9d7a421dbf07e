"""What the engine's models say of a sweep, for pages: made in the background, one result for each number of trials.

expected      the expected front, the recommended config and the knee
outlook       what more training is expected to change
overview      what the page Overview says (`protein.api.overview`)
calibration   how well the predictions held

All but the last are `protein.api.answers`, as every command gets them. An answer that needs a fit waits for it a
little: no thread of the server is held for long. Then the page gets an earlier one, or is told that the first one is
being computed. In both cases it asks again.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from protein.api import overview, stores
from protein.api.answers import Answers
from protein.api.recommended import Choice, Recommendation, base_layers, config_changes, duration_above, initial_params
from protein.columns import cells
from protein.config.resolve import file_name
from protein.engine.forecasts import ForecastQuality, Quantity, forecast_quality
from protein.errors import ProteinError, SpaceError, UsageError
from protein.space import Space
from protein.types import Estimate, SweepRecord, TrialState, runs_trainer
from protein.units import format_duration, format_probability
from protein.urls import hidden
from protein.view import commands, data
from protein.web.answers import StillComputing
from protein.web.background import Progress
from protein.web.frame import Frame
from protein.web.viewer import Viewer

DIGITS = 7  # of numbers in charts
MAX_COMPARED = 20_000  # trials whose predictions are compared; of more, evenly spread ones
MAX_FORECASTS = 1_000  # of these that are sent

PATIENCE_SECONDS = 2.0  # of an answer to a page
MAX_WAIT_SECONDS = 120.0  # of one to a report, which asks once

_Make = Callable[[Answers, SweepRecord, list[str]], Any]  # given the words that name the store
T = TypeVar("T")


def version(frame: Frame) -> tuple[int, ...]:
    """Returns what changes whenever a model would: how many trials have finished, and which are excluded."""
    finished = ~frame.columns["finished_at"].missing
    excluded = np.flatnonzero(frame.columns["excluded"].values)
    return (int(finished.sum()), *frame.numbers[excluded].tolist())


def asked(progress: Progress) -> dict[str, Any]:
    """Returns a piece of background work as pages get it."""
    return {"state": progress.state, "error": progress.error, "value": progress.value}


def answers(viewer: Viewer, frame: Frame) -> Answers:
    """Returns the answers about a sweep; for the same finished trials they share one fit. Ask in the background."""
    sweep = frame.sweep
    key = ("answers", sweep.id, version(frame))
    found: Answers = viewer.remembered(key, lambda: Answers(viewer.store, sweep), most=2)
    return found


def finding(viewer: Viewer, name: str, kind: str) -> Progress:
    """Returns one of `KINDS` about a sweep, or that it is being computed."""
    frame = viewer.frame(name)
    make, words = KINDS[kind], store_words(viewer)

    def made() -> Any:
        if viewer.is_large(len(frame)):
            return viewer.compute(len(frame), _made_apart, make, viewer.url, name, words)
        return make(answers(viewer, frame), frame.sweep, words)

    return viewer.background.ask((kind, frame.sweep.id), version(frame), made)


def _made_apart(make: _Make, url: str, name: str, words: list[str]) -> Any:
    with stores.opened(url) as store:
        sweep = stores.find(store, name)
        return make(Answers(store, sweep), sweep, words)


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
        key, version(frame), make, patience=PATIENCE_SECONDS if viewer.is_served else MAX_WAIT_SECONDS
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


def one_sweep(names: list[str]) -> str:
    """Returns the only name. Raises `UsageError` for none or several: models are of one sweep."""
    if len(names) != 1:
        raise UsageError(f"this is about one sweep, and {len(names)} are named; give one with sweep=NAME")
    return names[0]


def _expected(known: Answers, sweep: SweepRecord, store: list[str]) -> dict[str, Any]:
    found, initial = known.recommendation(), initial_params(sweep.spec)
    return {
        "basis": found.best.contender.basis,
        "front": [_choice(sweep, choice, store) for choice in found.front],
        "best": found.best.trial.number,
        "knee": None if found.knee is None else found.knee.trial.number,
        "initial": None if found.initial is None else _choice(sweep, found.initial, store),
        "initial_params": None if initial is None else cells(initial),
        "limits": list(map(str, found.limits)),
        "notes": found.notes(),
        "changes": _changes(sweep, found),
        "trains": found.trains,
        "ladder": _ladder(sweep, found, store),
    }


def _choice(sweep: SweepRecord, choice: Choice, store: list[str]) -> dict[str, Any]:
    contender = choice.contender
    under = duration_above(contender.expected_cost_seconds)
    trains = runs_trainer(sweep.spec.config)
    name = sweep.spec.name
    return {
        "trials": [trial.number for trial in choice.trials],
        "score": data.estimate(contender.score),
        "cost_seconds": contender.expected_cost_seconds,
        "limits_kept": None if contender.keeps is None else format_probability(contender.keeps),
        "measured": list(contender.measured),
        "params": cells(contender.params),
        "under": under,
        "train": commands.command("train", "--env", sweep.spec.env, "--from", name, "--under", under, *store)
        if trains
        else None,
        "write": commands.command("best", name, "--under", under, "--write", f"{file_name(name)}_{under}.toml", *store)
        if trains
        else commands.command("best", name, "--under", under, *store),
    }


def _ladder(sweep: SweepRecord, found: Recommendation, store: list[str]) -> str | None:
    """Returns the command that writes the front as files: three limits from the cheapest config to the best one."""
    costs = [choice.contender.expected_cost_seconds for choice in found.front]
    if not found.trains or len(costs) < 2:
        return None
    middle = costs[len(costs) // 2] if found.knee is None else found.knee.contender.expected_cost_seconds
    limits = dict.fromkeys(duration_above(seconds) for seconds in sorted((costs[0], middle, costs[-1])))
    return commands.command("best", sweep.spec.name, "--ladder", ",".join(limits), *store)


def _changes(sweep: SweepRecord, found: Recommendation) -> list[str]:
    if not found.trains:
        return []
    try:
        return config_changes(sweep.spec, found.best, base_layers(sweep.spec))
    except ProteinError as error:  # the environment is gone
        return [str(error)]


def _outlook(known: Answers, sweep: SweepRecord, store: list[str]) -> dict[str, Any] | None:
    found = known.outlook()
    if found is None:
        return None
    spans = [
        {
            "seconds": seconds,
            "name": format_duration(seconds),
            "best": dataclasses.asdict(found.best(seconds)),
            "front": dataclasses.asdict(found.front(seconds)),
        }
        for seconds in found.horizons()
    ]
    return {"spent_seconds": found.spent_seconds, "highest": found.room <= 0, "spans": spans}


def _overview(known: Answers, sweep: SweepRecord, store: list[str]) -> overview.Findings:
    return overview.findings(known, sweep, store[-1] if store else None)


KINDS: Mapping[str, _Make] = {
    "overview": _overview,
    "expected": _expected,
    "outlook": _outlook,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Predicted:
    """One trial as `protein.engine.forecasts` reads it."""

    state: TrialState
    score: float | None
    cost_seconds: float
    predicted_score: Estimate | None
    predicted_cost_seconds: Estimate | None


def calibrations(frame: Frame) -> dict[str, Any]:
    """Returns how the predicted scores and costs of a sweep held, in the user's direction."""
    complete = np.array([state == TrialState.COMPLETE for state in frame.columns["state"].listed()], dtype=bool)
    excluded = frame.columns["excluded"].values == 1
    rows = np.flatnonzero(complete & ~excluded & ~frame.columns["score"].missing)
    rows = rows[:: max(1, -(-len(rows) // MAX_COMPARED))]
    listed: Mapping[str, list[Any]] = {
        key: frame.columns[key].listed(rows)
        for key in ("number", "score", "cost_seconds", *_parts("predicted_score"), *_parts("predicted_cost_seconds"))
    }
    records = [
        _Predicted(
            state=TrialState.COMPLETE,
            score=listed["score"][i],
            cost_seconds=listed["cost_seconds"][i],
            predicted_score=_estimate(listed, "predicted_score", i),
            predicted_cost_seconds=_estimate(listed, "predicted_cost_seconds", i),
        )
        for i in range(len(rows))
    ]
    return {
        quantity: _calibration(forecast_quality(records, quantity), listed["number"], records, quantity)
        for quantity in ("score", "cost")
    }


def _calibration(
    found: ForecastQuality, numbers: list[int], records: list[_Predicted], quantity: Quantity
) -> dict[str, Any]:
    predicted = [one.predicted_score if quantity == "score" else one.predicted_cost_seconds for one in records]
    numbers = [number for number, one in zip(numbers, predicted, strict=True) if one is not None]
    step = max(1, -(-len(found.forecasts) // MAX_FORECASTS))
    shown = found.forecasts[::step]
    return {
        "below": found.below,
        "inside": found.inside,
        "above": found.above,
        "coverage": found.coverage,
        "mean_z": found.mean_z,
        "error": found.error,
        "pit": list(found.pit),
        "coverage_by_part": list(found.coverage_by_part),
        "verdict": found.verdict,
        "forecasts": {
            "number": numbers[::step],
            "predicted": [short(one.predicted.value) for one in shown],
            "low": [short(one.predicted.low) for one in shown],
            "high": [short(one.predicted.high) for one in shown],
            "measured": [short(one.measured) for one in shown],
        },
        "left_out": len(found.forecasts) - len(shown),
    }


def short(value: Any) -> Any:
    """Returns a number with the digits that a chart can show, which is quicker to send; anything else unchanged."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _parts(name: str) -> tuple[str, str, str]:
    return name, f"{name}_low", f"{name}_high"


def _estimate(listed: Mapping[str, list[Any]], name: str, place: int) -> Estimate | None:
    value, low, high = (listed[part][place] for part in _parts(name))
    if value is None or low is None or high is None or not low <= value <= high:
        return None
    return Estimate(value=value, low=low, high=high)


def store_words(viewer: Viewer) -> list[str]:
    """Returns the words that name the viewed store in a command; without a password, which no page may show."""
    return stores.store_words(store_word(viewer))


def store_word(viewer: Viewer) -> str | None:
    """Returns the name of the viewed store in a command; None: it is the usual one."""
    return None if viewer.url == stores.url(None) else hidden(viewer.url)
