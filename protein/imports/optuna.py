"""An Optuna study: its storage's URL (or a journal file) and its name.

The score is the objective's value, the direction the study's. A pruned trial counts as stopped early, with its last
intermediate value. A trial that violates a constraint has failed. The cost is the wall clock between the trial's start
and its end: Optuna keeps no other.
"""

import contextlib
import json
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from protein.errors import SpaceError, UsageError
from protein.imports.runs import (
    Imported,
    Run,
    Source,
    choose,
    curve,
    existing,
    known_cost,
    needed,
    parameters,
    reading,
    tables_of,
)
from protein.space.parameters import Categorical, Float, Integer, Parameter, Scale, free_name, parameter_name
from protein.types import Direction, Measurement, ParamValue, TrialEnd, is_score
from protein.urls import without_password
from protein.validate import is_json, plain

_LONGEST_LINE = 1_000_000  # of a journal, of which the first is looked at


def is_one(place: Path) -> bool:
    """Whether a file is a storage of Optuna's: a database with its tables, or a journal."""
    if not place.is_file():
        return False
    tables = tables_of(place)
    return _is_journal(place) if tables is None else {"studies", "version_info"} <= tables


def read(source: Source) -> Imported:
    """Returns the study's finished trials."""
    optuna = needed("optuna", "'protein-sweep[optuna]'")
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its experimental storages
            return _read(optuna, source)
    finally:
        optuna.logging.set_verbosity(before)


def _read(optuna: Any, source: Source) -> Imported:
    shown = without_password(source.place)
    with reading(f"{shown} cannot be read as a storage of Optuna", "give another"):
        storage = _storage(optuna, source.place)
        name = choose("--experiment (the study)", source.experiment, optuna.get_all_study_names(storage))
        study = optuna.load_study(study_name=name, storage=storage)
        trials = study.get_trials(deepcopy=False)
    objective, score = _objective(study, source)
    maximise = study.directions[objective] == optuna.study.StudyDirection.MAXIMIZE
    finished = [trial for trial in trials if trial.state.is_finished()]
    runs = [_run(trial, objective, source) for trial in finished]
    own, notes = _parameters(optuna, finished)
    return Imported(
        where=f"{shown}, study '{name}'",
        identity=f"{_absolute(shown)}, study '{name}'",
        experiment=name,
        score=score,
        direction=source.direction or (Direction.MAXIMIZE if maximise else Direction.MINIMIZE),
        runs=runs,
        num_unfinished=len(trials) - len(finished),
        parameters=own,
        notes=notes,
    )


def _storage(optuna: Any, place: str) -> Any:
    if "://" in place and not place.startswith("sqlite:///"):
        # Fails where its tables are missing. By default it would make them, in whatever database a wrong URL names.
        return optuna.storages.RDBStorage(place, skip_table_creation=True)
    path = existing(place.removeprefix("sqlite:///"), "the storage's URL, as in sqlite:///study.db, or its file")
    is_database = tables_of(path) is not None
    if not is_one(path):
        fault = (
            "it has no table of studies"
            if is_database
            else "neither a SQLite file nor a journal, whose lines are JSON with an op_code"
        )
        raise UsageError(f"{place} is no storage of Optuna: {fault}; give another")
    if is_database:
        return optuna.storages.RDBStorage(f"sqlite:///{path}", skip_table_creation=True)
    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(Path(path))))


def _is_journal(path: Path) -> bool:
    """Whether a file begins as a journal does: every line is a JSON object with its operation."""
    try:
        with path.open(encoding="utf-8") as file:
            entry = json.loads(file.readline(_LONGEST_LINE))
        return isinstance(entry, dict) and "op_code" in entry
    except (ValueError, RecursionError):  # no text, or no JSON
        return False


def _absolute(place: str) -> str:
    """Returns a storage's URL, the same however its file is named; one of a server stays as it is."""
    path = place.removeprefix("sqlite:///")
    return place if "://" in path else str(Path(path).expanduser().resolve())


def _objective(study: Any, source: Source) -> tuple[int, str]:
    """Returns the position of the objective that counts, and its name."""
    names = study.metric_names or [
        f"objective {i}" if len(study.directions) > 1 else "value" for i in range(len(study.directions))
    ]
    name = source.score_of(names, what="--score (the objective)")
    return list(names).index(name), name


def _run(trial: Any, objective: int, source: Source) -> Run:
    state, values = trial.state.name, trial.values
    value = None if values is None else float(values[objective])
    violated = [key for key, amount in getattr(trial, "constraints", {}).items() if amount > 0]
    steps = max(trial.intermediate_values, default=None)
    end, reason = TrialEnd.COMPLETE, ""
    if state == "PRUNED":
        end, reason = TrialEnd.STOPPED_EARLY, "pruned"
        value = value if steps is None or value is not None else float(trial.intermediate_values[steps])
        value = value if value is not None and is_score(value) else None
    elif state == "FAIL":
        end, reason = TrialEnd.FAILED, str(trial.system_attrs.get("fail_reason") or "failed")
    elif violated:
        end, reason = TrialEnd.FAILED, f"violates constraint {violated[0]}"
    own = None if trial.duration is None else max(trial.duration.total_seconds(), 0.0)
    seconds = source.seconds(own, trial.user_attrs)
    return Run(
        key=str(trial.number),
        params=_params(trial.params),
        end=end,
        score=value,
        cost_seconds=seconds,
        steps=0 if steps is None else max(int(steps), 0),
        reason=reason,
        metrics=trial.user_attrs,
        curve=_curve(trial.intermediate_values, known_cost(seconds) or 0.0),
        began="" if trial.datetime_start is None else _moment(trial.datetime_start),
    )


def _params(values: Mapping[str, Any]) -> dict[str, ParamValue]:
    """Returns a trial's params. A choice may be None, a list or a table; what is no value of JSON is left out."""
    found: dict[str, ParamValue] = {}
    for name, value in values.items():
        if isinstance(value, list | tuple | dict | None) and is_json(value := plain(value)):
            found[free_name(parameter_name(name), found)] = value
        elif not isinstance(value, dict):
            found |= {free_name(one, found): kept for one, kept in parameters({name: value}).items()}
    return found


def _curve(values: Mapping[int, float], seconds: float) -> tuple[Measurement, ...]:
    """Returns the intermediate values. Optuna keeps no times, so the cost is spread evenly over the steps."""
    last = max(values, default=0)
    points = sorted(values.items())
    return curve((step, seconds * (step + 1) / (last + 1), value) for step, value in points if step >= 0)


def _parameters(optuna: Any, trials: Sequence[Any]) -> tuple[dict[str, Parameter], list[str]]:
    """Returns the study's own ranges, by our names, and what of them is lost, a line each."""
    last: dict[str, Any] = {}
    changed: dict[str, None] = {}
    for trial in trials:
        for key, distribution in trial.distributions.items():
            if last.get(key, distribution) != distribution:
                changed[key] = None
            last[key] = distribution
    notes = [f"{key}: its range changes within the study; the last one is taken" for key in changed]
    names = [parameter_name(key) for key in last]
    found: dict[str, Parameter] = {}
    for key, distribution in last.items():
        name = parameter_name(key)
        if names.count(name) > 1:
            notes.append(f"{key}: its own range is not taken over, because another parameter would be {name}, too")
            continue
        parameter = _parameter(optuna, name, distribution)
        notes += [f"{name}: {what}" for what in _lost(distribution)]
        if parameter is not None:
            found[name] = parameter
        elif not distribution.single():
            notes.append(f"{name}: its own range cannot be one here; that of the values is taken")
    return found, notes


def _lost(distribution: Any) -> list[str]:
    """Returns what a space cannot keep of a distribution."""
    lost = []
    for i, choice in enumerate(getattr(distribution, "choices", ())):
        kept = _params({"x": choice})
        if not kept:
            lost.append(f"the choice {choice!r:.60} is lost, as no store takes it")
        elif distribution.to_internal_repr(choice) != i:
            lost.append(f"the choice {choice!r:.60} is lost, as Optuna takes it for an equal one")
        elif type(kept["x"]) is not type(choice):
            lost.append(f"the choice {choice!r:.60} is {kept['x']!r:.60} here")
    return lost


def _distinct(distribution: Any) -> list[Any]:
    """Returns the choices without those that equal an earlier one, as 1 and True: Optuna keeps the first of them."""
    return [choice for i, choice in enumerate(distribution.choices) if distribution.to_internal_repr(choice) == i]


def _parameter(optuna: Any, name: str, distribution: Any) -> Parameter | None:
    kinds = optuna.distributions
    with contextlib.suppress(SpaceError, OverflowError, TypeError):
        if isinstance(distribution, kinds.CategoricalDistribution):
            kept = [_params({"x": choice}) for choice in _distinct(distribution)]
            return Categorical(name, tuple(one["x"] for one in kept if one))
        scale: Scale = "log" if distribution.log else "linear"
        kind = Integer if isinstance(distribution, kinds.IntDistribution) else Float
        return kind(name, distribution.low, distribution.high, scale, step=distribution.step)
    return None


def _moment(at: datetime) -> str:
    return at.isoformat(sep=" ", timespec="seconds")
