"""A result folder of Ray Tune: experiment_state-*.json, and for each trial params.json and result.json.

The score is the metric that Tune was given (`--score` where it was given none). Its mode is only in a pickle, so
`--direction` is asked for. The cost is `time_total_s`, the steps are `training_iteration`. Ray does not say whether a
trial has ended by itself or by its scheduler: one that has fewer iterations than the longest counts as stopped early.
Nothing is unpickled.

Source: ray/tune/execution/tune_controller.py, ray/tune/experiment/trial.py and ray/tune/logger/json.py.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protein.imports.runs import (
    Imported,
    Run,
    Source,
    curve,
    experiment_of,
    flat,
    moment,
    numbers,
    parameters,
    table_of,
)
from protein.spelling import counted
from protein.types import TrialEnd

WHAT = "a result folder of Ray Tune, which has a file experiment_state-*.json"
_STATE, _SECONDS, _STEPS = "experiment_state-*.json", "time_total_s", "training_iteration"
_OWN = {"done", "timestamp", "trial_id", "date", "pid", "config", "should_checkpoint", "checkpoint_dir_name"} | {
    "time_this_iter_s", "time_since_restore", "iterations_since_restore", _SECONDS, _STEPS,
}  # fmt: skip


def is_one(folder: Path) -> bool:
    """Whether a folder holds an experiment."""
    return any(folder.glob(_STATE))


def read(source: Source) -> Imported:
    """Returns the folder's finished trials."""
    folder = experiment_of(source, is_one, WHAT)
    state = table_of(max(folder.glob(_STATE)))  # of a run that was resumed, the last one has all trials
    trials = [_trial(folder, *map(_loaded, pair)) for pair in state["trial_data"]]
    asked = state.get("runner_data", {}).get("_metric")
    points = [point for _, _, _, history in trials for point in history]
    known = list(dict.fromkeys(name for point in points for name in numbers(point) if name not in _OWN))
    score = source.score_of(known, asked if asked in known else None)
    direction = source.direction_of(score)
    source.require_cost([*known, _SECONDS])
    finished = sorted((one for one in trials if one[1] in ("TERMINATED", "ERROR")), key=lambda one: one[0])
    runs = [_run(*one, score, source) for one in finished]
    longest = max((run.steps for run in runs if run.end is TrialEnd.COMPLETE), default=0)
    short = {run.key for run in runs if run.end is TrialEnd.COMPLETE and run.steps < longest}
    notes = ["Ray Tune keeps its space as a pickle, which is not read; for its ranges give --space FILE"]
    if short:
        notes.append(
            f"{counted(len(short), 'trial')} with fewer than {longest} iterations: taken as stopped early; Ray does"
            " not say why one has ended"
        )
    return Imported(
        where=str(folder),
        identity=str(folder.resolve()),
        experiment=folder.name,
        score=score,
        direction=direction,
        runs=[
            dataclasses.replace(run, end=TrialEnd.STOPPED_EARLY, reason="few iterations") if run.key in short else run
            for run in runs
        ],
        num_unfinished=len(trials) - len(finished),
        notes=notes,
    )


def _loaded(text: Any) -> Any:
    return json.loads(text) if isinstance(text, str) else text


def _trial(
    folder: Path, trial: Mapping[str, Any], more: Mapping[str, Any]
) -> tuple[str, str, Mapping[str, Any], list[Mapping[str, Any]]]:
    """Returns a trial's id, its status, its params and its results by dotted names, oldest first."""
    lines: list[Mapping[str, Any]] = []
    path = folder / str(trial.get("relative_logdir") or trial["trial_id"]) / "result.json"
    if path.is_file():
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(dict(json.loads(text)))
            except (ValueError, TypeError):  # the last line of a process that was killed
                continue
    last = more.get("last_result") or {}
    if last and (not lines or lines[-1].get(_STEPS) != last.get(_STEPS)):
        lines.append(last)
    points: list[Mapping[str, Any]] = [
        {name: value for name, value in flat(line).items() if not name.startswith("config.")} for line in lines
    ]
    return str(trial["trial_id"]), str(trial["status"]), dict(trial["config"]), points


def _run(
    key: str, status: str, config: Mapping[str, Any], points: list[Mapping[str, Any]], score: str, source: Source
) -> Run:
    scores = [point[score] for point in points if isinstance(point.get(score), int | float)]
    last = points[-1] if points else {}
    failed, began = status == "ERROR", last.get("timestamp")
    return Run(
        key=key,
        params=parameters(config),
        end=TrialEnd.CRASHED if failed else TrialEnd.COMPLETE,
        score=scores[-1] if scores and not failed else None,
        cost_seconds=source.seconds(last.get(_SECONDS), last),
        reason="error" if failed else "",
        metrics={name: value for name, value in last.items() if name not in _OWN},
        curve=curve((point.get(_STEPS), point.get(_SECONDS), point.get(score)) for point in points),
        began=moment(began - float(last.get(_SECONDS) or 0.0)) if isinstance(began, int) else "",
    )
