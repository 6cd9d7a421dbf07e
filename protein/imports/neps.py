"""A root directory of NePS: optimizer_info.yaml, and for each trial a folder in configs/ with YAML and JSON files.

The score is `objective_to_minimize`, the cost is how long the evaluation took. The fidelity is a parameter as the
others, and makes a run expensive. A trial that follows one at a lower fidelity is a run of its own. The space is in a
pickle, which is not read.

Source: neps/state/filebased.py, neps/state/trial.py and neps/state/neps_state.py of NePS 0.17.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protein.config import yaml_text
from protein.errors import SpaceError, UsageError
from protein.imports.runs import (
    Imported,
    Run,
    Source,
    curve,
    experiment_of,
    known_cost,
    moment,
    needed,
    parameters,
    reading,
    table_of,
)
from protein.space.parameters import Categorical, Float, Integer, Parameter, Scale, parameter_name
from protein.spelling import counted
from protein.types import Direction, TrialEnd

WHAT = "a root directory of NePS, which has optimizer_info.yaml and configs"
_SAMPLED, _GIVEN = "SAMPLING__Resolvable.", "ENVIRONMENT__"  # before names
OBJECTIVE, _COST = "objective_to_minimize", "cost"
_ENDS = {
    "success": TrialEnd.COMPLETE,
    "external": TrialEnd.COMPLETE,
    "failed": TrialEnd.FAILED,
    "crashed": TrialEnd.CRASHED,
    "corrupted": TrialEnd.CRASHED,
}


def is_one(folder: Path) -> bool:
    """Whether a folder is a root directory."""
    return (folder / "optimizer_info.yaml").is_file() and (folder / "configs").is_dir()


def read(source: Source) -> Imported:
    """Returns the finished trials."""
    folder = experiment_of(source, is_one, WHAT)
    trials = [
        (table_of(one / "metadata.json"), _yaml(one / "config.yaml"), _yaml(one / "report.yaml"))
        for one in sorted((folder / "configs").glob("*/"))
        if (one / "metadata.json").is_file()
    ]
    finished = [one for one in trials if one[0].get("state") in _ENDS and one[2]]
    values = [report.get(OBJECTIVE) for _, _, report in finished]
    many = max((len(value) for value in values if isinstance(value, list)), default=0)
    names = [f"objective {i}" for i in range(many)] or [OBJECTIVE]
    score = source.score_of(names, what="--score (the objective)")
    source.require_cost([_COST])
    place = names.index(score) if many else None
    ranges, fidelity = _fidelity(_yaml(folder / "optimizer_info.yaml"))
    notes = []
    drawn = dict(_drawn(key) for _, config, _ in finished for key in config)
    ranges |= {name: one for name, one in drawn.items() if one is not None}
    if not any(drawn.values()):
        notes.append("NePS keeps its space as a pickle, which is not read; for its ranges give --space FILE")
    if places := [name for name, one in ranges.items() if isinstance(one, Categorical)]:
        notes.append(f"{', '.join(places)}: NePS has kept the place of a choice in its list, not the choice")
    if following := sum(bool(about.get("previous_trial_id")) for about, _, _ in finished):
        notes.append(
            f"{counted(following, 'trial')} at a higher fidelity after one of the same config: what that cost is not"
            " counted again"
        )
    runs = [_run(*one, place, source) for one in finished]
    return Imported(
        where=str(folder),
        identity=str(folder.resolve()),
        experiment=folder.name,
        score=score,
        direction=source.direction or Direction.MINIMIZE,
        runs=sorted(runs, key=lambda run: run.began),
        num_unfinished=len(trials) - len(finished),
        parameters=ranges,
        cost_parameter=fidelity,
        notes=notes,
    )


def _yaml(path: Path) -> dict[str, Any]:
    """Returns a YAML file that holds a table; none for one that is not there."""
    if not path.is_file():
        return {}
    needed("yaml", "pyyaml")
    with reading(f"{path} cannot be read as YAML"):
        data = yaml_text.plain(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise UsageError(f"{path} is damaged, or was cut short: it holds no table; copy it again")
    return data


def _run(
    about: Mapping[str, Any], config: Mapping[str, Any], report: Mapping[str, Any], place: int | None, source: Source
) -> Run:
    value = report.get(OBJECTIVE)
    value = value[place] if place is not None and isinstance(value, list) else value
    state = about["state"]
    completed = _ENDS[state] is TrialEnd.COMPLETE
    cost = known_cost(source.seconds(report.get("evaluation_duration"), report))
    points = report.get("learning_curve") or []
    points = [one[place] if place is not None and isinstance(one, list) else one for one in points]
    began = about.get("time_started") or about.get("time_sampled")
    return Run(
        key=str(about["id"]),
        params=parameters({_drawn(key)[0]: one for key, one in config.items()}),
        end=_ENDS[state],
        score=float(value) if completed and value is not None else None,
        cost_seconds=cost,
        steps=len(points),
        reason="" if completed else str(report.get("err") or state),
        metrics=report.get("extra") or {},
        curve=curve((i, (cost or 0.0) * i / len(points), one) for i, one in enumerate(points, 1)),
        began=moment(began),
    )


def _fidelity(info: Mapping[str, Any]) -> tuple[dict[str, Parameter], str | None]:
    """Returns the range of the fidelity by its name, and that name, where the optimizer has one."""
    with contextlib.suppress(KeyError, TypeError, SpaceError):
        given = info["derived"]["fidelity"]
        name = _drawn(given["name"])[0]
        whole = isinstance(given["lower"], int) and isinstance(given["upper"], int)
        return {name: (Integer if whole else Float)(name, given["lower"], given["upper"])}, name
    return {}, None


def _drawn(key: str) -> tuple[str, Parameter | None]:
    """Returns a parameter's name, and its range where the key has it, as in SAMPLING__Resolvable.lr::float__0.1_1_True.

    So write those optimizers of NePS's whose names begin with neps_.
    """
    path, separator, drawn = key.partition("::")
    name = parameter_name(path.removeprefix(_SAMPLED).removeprefix(_GIVEN))
    kind, _, rest = drawn.partition("__")
    with contextlib.suppress(SpaceError, ValueError):
        if separator and kind == "categorical":
            return name, Categorical(name, tuple(range(int(rest))))
        if separator and kind in ("float", "integer"):
            low, high, log = rest.split("_")
            scale: Scale = "log" if log == "True" else "linear"
            if kind == "integer":
                return name, Integer(name, int(low), int(high), scale)
            return name, Float(name, float(low), float(high), scale)
    return name, None
