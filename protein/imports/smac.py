"""A run of SMAC3: the folder with runhistory.json, configspace.json and scenario.json.

A run here is a config at one budget. Its score is the mean over the instances and seeds on which SMAC has run it, its
cost is the sum of their times. The budget is a parameter, `budget`, which makes a run expensive. Space and conditions
are those of configspace.json.

Source: smac/runhistory/runhistory.py and smac/scenario.py of SMAC 2.4; "Getting started" in its documentation.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from protein.imports.runs import (
    EQUAL_COST,
    Imported,
    Run,
    Source,
    experiment_of,
    known_cost,
    moment,
    own_ranges,
    parameters,
    table_of,
)
from protein.space.parameters import Float, free_name
from protein.spelling import counted
from protein.types import Direction, TrialEnd

WHAT = "a folder of SMAC3, which has runhistory.json and scenario.json"
_RUNNING, _SUCCESS = 0, 1
_ENDS = {2: (TrialEnd.CRASHED, "crashed"), 3: (TrialEnd.FAILED, "time limit"), 4: (TrialEnd.OUT_OF_MEMORY, "memory")}


def is_one(folder: Path) -> bool:
    """Whether a folder holds a run."""
    return (folder / "runhistory.json").is_file()


def read(source: Source) -> Imported:
    """Returns the folder's finished configs."""
    folder = experiment_of(source, is_one, WHAT)
    history, scenario = table_of(folder / "runhistory.json"), table_of(folder / "scenario.json")
    source.require_cost(["time", "cpu_time"])
    objectives = scenario.get("objectives", "cost")
    names = [objectives] if isinstance(objectives, str) else [str(one) for one in objectives]
    score = source.score_of(names, what="--score (the objective)")
    space = folder / "configspace.json"
    ranges, notes = own_ranges(table_of(space), space) if space.is_file() else ({}, [])
    grouped: dict[tuple[int, float | None], list[Mapping[str, Any]]] = {}
    for one in history["data"]:
        grouped.setdefault((one["config_id"], one["budget"]), []).append(one)
    configs = history["configs"]
    taken = {name for config in configs.values() for name in config}
    finished = {key: runs for key, runs in grouped.items() if all(run["status"] != _RUNNING for run in runs)}
    budgets = sorted({budget for _, budget in grouped if budget is not None})
    budget_name = free_name("budget", taken) if len(budgets) > 1 else None
    place = names.index(score) if len(names) > 1 else None
    made = [_run(configs[str(config)], runs, place, source, budget_name) for (config, _), runs in finished.items()]
    if budget_name is not None:
        least, most = (
            float(scenario.get(f"{end}_budget") or at)
            for end, at in zip(("min", "max"), (budgets[0], budgets[-1]), strict=True)
        )
        ranges[budget_name] = Float(budget_name, least, most, "log" if least > 0 else "linear")
        notes.append(f"the budget is the parameter '{budget_name}': a config at several budgets is several runs")
    notes += _means(list(finished.values()))
    return Imported(
        where=str(folder),
        identity=str(folder.resolve()),
        experiment=str(scenario.get("name") or folder.name),
        score=score,
        direction=source.direction or Direction.MINIMIZE,
        runs=sorted(made, key=lambda run: run.began),
        num_unfinished=len(grouped) - len(finished),
        parameters=ranges,
        cost_parameter=budget_name,
        notes=notes,
    )


def _run(
    config: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    place: int | None,
    source: Source,
    budget_name: str | None,
) -> Run:
    first = runs[0]
    costs = [float(run["cost"] if place is None else run["cost"][place]) for run in runs]
    failed = next((run for run in runs if run["status"] != _SUCCESS), None)
    end, reason = (
        (TrialEnd.COMPLETE, "") if failed is None else _ENDS.get(failed["status"], (TrialEnd.FAILED, "failed"))
    )
    if failed is not None:
        reason = str((failed.get("additional_info") or {}).get("error") or reason)
    seconds = sum(
        known_cost(source.seconds(run["time"], run) or run["endtime"] - run["starttime"]) or 0.0 for run in runs
    )
    budget = first["budget"]
    return Run(
        key=f"{first['config_id']}" + ("" if budget is None else f" at {budget:g}"),
        params=parameters({**config, **({} if budget_name is None else {budget_name: budget})}),
        end=end,
        score=sum(costs) / len(costs) if failed is None else None,
        cost_seconds=1.0 if source.cost == EQUAL_COST else seconds,
        reason=reason,
        began=moment(first["starttime"]),
    )


def _means(finished: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """Returns what is to be said of scores that are means, a line each."""
    on = [{(run["instance"], run["seed"]) for run in runs} for runs in finished]
    most = max(map(len, on), default=1)
    if most == 1:
        return []
    fewer = sum(len(one) < most for one in on)
    notes = [
        f"a config that has run on several instances or seeds is one run here, with their mean score ({most} at most)"
    ]
    if fewer:
        notes.append(f"{counted(fewer, 'config')} ran on fewer of them than others: the means are over what there is")
    return notes
