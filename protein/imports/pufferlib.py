"""The logs of a sweep of PufferLib: a folder with one JSON file for each run, as in logs/breakout.

A file holds the run's whole config and `metrics`, lists of equal length: `agent_steps`, `uptime` (seconds of training,
the cost), `env/score` and others, a few points of the learning curve each. The section `sweep` names the metric, the
goal and the ranges. So nothing has to be asked. PufferLib writes no file for a run that crashed.

Source: `_train` in pufferlib/pufferl.py and `load_config` of PufferLib 4.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from protein.config.puffer_ini import COST_PARAMETER, range_of
from protein.errors import SpaceError, UsageError
from protein.files import regular
from protein.imports.runs import Imported, Run, Source, curve, existing, flat, listed, moment, parameters
from protein.space.parameters import Parameter
from protein.types import Direction

COST = "uptime"
STEPS = "agent_steps"
SECTIONS = ("train", "policy", "vec", "env", "torch")  # of a config, that hold what a run was made with
_PREFIXES = ("env/", "environment/", "")  # of the metric's name in the lists


def is_one(place: Path) -> bool:
    """Whether a folder holds logs."""
    return place.is_dir() and any(_log(path) is not None for path in place.glob("*.json"))


def read(source: Source) -> Imported:
    """Returns the runs of the folder."""
    folder = existing(source.place, "the folder of one environment's logs, as in logs/breakout", folder=True)
    files = sorted(folder.glob("*.json"))
    logs = [(path, data) for path in files if (data := _log(path)) is not None]
    if not logs:
        below = sorted(path.name for path in folder.iterdir() if path.is_dir() and any(path.glob("*.json")))
        hint = f"; give one of its folders: {listed(below)}" if below else ""
        raise UsageError(f"{folder} holds no log of PufferLib (JSON files with metrics){hint}")
    envs = sorted({str(data.get("env_name", "")) for _, data in logs})
    if len(envs) > 1:
        raise UsageError(f"{folder} holds logs of several environments, {listed(envs)}; give a folder of one")
    sweep = logs[-1][1].get("sweep") or {}
    metric = _metric(source.score or str(sweep.get("metric") or "score"), logs)
    goal = Direction.MINIMIZE if str(sweep.get("goal")) == "minimize" else Direction.MAXIMIZE
    swept, notes = _ranges(sweep)
    return Imported(
        where=str(folder),
        identity=envs[0] or folder.name,
        experiment=envs[0] or folder.name,
        score=metric,
        direction=source.direction or goal,
        runs=[_run(path, data, metric, source) for path, data in logs],
        parameters=swept,
        notes=notes,
        cost_parameter=COST_PARAMETER,
    )


def _log(path: Path) -> dict[str, Any] | None:
    """Returns a file's contents; None where it is no log of a run. PufferLib may be writing it right now."""
    try:
        data = json.loads(regular(path).read_text())
    except (ValueError, OSError, RecursionError):
        return None
    metrics = data.get("metrics") if isinstance(data, dict) else None
    fits = isinstance(metrics, dict) and isinstance(metrics.get(STEPS), list) and bool(metrics[STEPS])
    return data if fits else None


def _metric(name: str, logs: Sequence[tuple[Path, Mapping[str, Any]]]) -> str:
    known = list(dict.fromkeys(key for _, data in logs for key in data["metrics"]))
    for prefix in _PREFIXES:
        if f"{prefix}{name}" in known:
            return f"{prefix}{name}"
    raise UsageError(f"--score '{name}' is not among the metrics: {listed(known)}")


def _ranges(sweep: Mapping[str, Any]) -> tuple[dict[str, Parameter], list[str]]:
    """Returns the ranges by name, and which could not be taken over."""
    found: dict[str, Parameter] = {}
    notes: list[str] = []
    for section, table in sweep.items():
        for key, given in (table if isinstance(table, Mapping) else {}).items():
            if not (isinstance(given, Mapping) and {"distribution", "min", "max"} <= set(given)):
                continue
            name, kind = f"{section}.{key}", str(given["distribution"]).strip()
            try:
                found[name] = range_of(name, kind, given["min"], given["max"])
            except (SpaceError, KeyError, TypeError, ValueError, OverflowError):
                notes.append(
                    f"{name}: the range '{kind}' from {given['min']!s:.20} to {given['max']!s:.20} cannot be one here;"
                    " that of the values is taken"
                )
    return found, notes


def _run(path: Path, data: Mapping[str, Any], metric: str, source: Source) -> Run:
    metrics: Mapping[str, list[Any]] = data["metrics"]
    last = {name: values[-1] for name, values in metrics.items() if isinstance(values, list) and values}
    config = flat({name: data[name] for name in SECTIONS if isinstance(data.get(name), Mapping)})
    return Run(
        key=path.stem,
        params=parameters({name: _whole(value) for name, value in config.items()}),
        score=last.get(metric),
        cost_seconds=source.seconds(last.get(COST), last),
        steps=max(int(last[STEPS]), 0),
        metrics=last,
        curve=curve(zip(metrics[STEPS], metrics.get(COST, []), metrics.get(metric, []), strict=False)),
        began=moment(int(path.stem) / 1000) if path.stem.isdecimal() else "",  # a file is called by its start
    )


def _whole(value: Any) -> Any:
    """Its files hold whole numbers as 32768.0 where the search has set them."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
