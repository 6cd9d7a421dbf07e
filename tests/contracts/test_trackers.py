"""One contract for every tracker: what the tool holds afterwards is what the store holds, each point once.

`tracker_process.py` runs a tracker through a sweep that minimises, in a process of its own, and reads back what the
tool has.
"""

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tracker_process
import tracker_records
from patience import PATIENCE_SECONDS

from protein.columns import cells
from protein.trackers import tracker

SUPPORT = Path(__file__).parents[1] / "support"
LIVE = {"mlflow", "tensorboard", "trackio"}  # these are given trials that still run
ENDED = {"0": "complete", "1": "diverged", "2": "capped", "3": "complete", "4": "interrupted"}
CURVES = {"0": 5, "1": 2, "2": 0, "3": 4, "4": 0}  # points


def require(name: str) -> None:
    """Skips a test whose package is absent; in CI, where the dev extra is installed, that is a failure."""
    if importlib.util.find_spec(name) is None:
        if os.environ.get("CI"):
            pytest.fail(f"{name} is not installed, and CI must test it")
        pytest.skip(f"{name} is not installed")


def environment(**more: str) -> dict[str, str]:
    """The environment of a tool's process, without what the developer has set for their own runs."""
    prefixes = ("MLFLOW_", "NEPTUNE_", "WANDB_", "TRACKIO_", "TENSORBOARD_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(prefixes)}
    return kept | {"PYTHONPATH": str(SUPPORT), **more}


def scenario(name: str, folder: Path, **more: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "tracker_process.py"), name, str(folder)],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index('{"first"') :])
    return found


@pytest.mark.parametrize("name", sorted(tracker.TRACKERS))
def test_a_tracker_holds_what_the_store_holds(name: str, tmp_path: Path) -> None:
    require(name)
    check(name, scenario(name, tmp_path))


def check(name: str, steps: dict[str, Any]) -> None:
    first = ["0", "1", "2", "3"] if name in LIVE else ["0", "1", "2"]
    assert sorted(steps["first"]["trials"]) == first
    assert steps["first"]["written"] == len(first)
    if name in LIVE:
        assert [step for step, _ in steps["first"]["trials"]["3"]["curve"]["loss"]] == [0, 100]
    assert steps["nothing new"] == {"written": 0, "trials": steps["first"]["trials"]}
    assert steps["after a cut"]["written"] == 2
    assert "good" not in steps["after a cut"]["trials"]["0"]["tags"]
    assert steps["annotated"]["written"] == 1  # the annotated trial alone
    assert steps["position lost"]["written"] == 5

    for step in ("after a cut", "annotated", "position lost"):
        trials = steps[step]["trials"]
        assert sorted(trials) == ["0", "1", "2", "3", "4"]
        for number, trial in trials.items():
            assert trial["runs"] == 1, (step, number)
            check_trial(number, trial)
    for step in ("annotated", "position lost"):
        annotated = steps[step]["trials"]["0"]
        assert "good" in annotated["tags"]
        assert annotated["facts"]["note"] == "look at this"
        assert annotated["facts"]["excluded"] == "true"
    if name == "mlflow":
        assert steps["note removed"]["trials"]["0"]["facts"].get("note", "") == ""
        check_imported(steps["imported"])
    statuses = {number: trial["status"] for number, trial in steps["position lost"]["trials"].items()}
    assert statuses == STATUSES[name]


STATUSES: dict[str, dict[str, Any]] = {
    "mlflow": {"0": "FINISHED", "1": "FAILED", "2": "FINISHED", "3": "FINISHED", "4": "KILLED"},
    "neptune": {"0": False, "1": True, "2": False, "3": False, "4": True},
    "tensorboard": {"0": [1], "1": [2], "2": [1], "3": [1], "4": [0]},  # success, failure, unknown
    "trackio": dict.fromkeys(ENDED),  # it has none
    "wandb": {"0": [0], "1": [1], "2": [0], "3": [0], "4": [1]},  # exit codes
}


def check_imported(found: dict[str, Any]) -> None:
    """What `protein import` makes of MLflow's runs is what was written to it."""
    assert found["env"] == "pong"
    assert found["direction"] == "minimize"
    runs = {int(run["metrics"]["number"]): run for run in found["runs"]}
    assert {str(number): run["score"] for number, run in runs.items()} == {
        "0": 1.5, "1": None, "2": 0.5, "3": 0.75, "4": None
    }  # fmt: skip
    assert [runs[number]["cost_seconds"] for number in range(5)] == [4.5, 1.0, 9.0, 3.0, 0.0]
    assert [runs[number]["end"] for number in range(5)] == [
        "complete", "diverged", "capped", "complete", "interrupted"
    ]  # fmt: skip
    assert runs[1]["reason"] == "the loss is nan"
    assert runs[2]["steps"] == 3  # it has no curve
    points = [[point["steps"], point["elapsed_seconds"]] for point in runs[0]["curve"]]
    assert points == [[100, 1.5], [200, 2.5], [300, 3.5], [400, 4.5]]
    assert runs[0]["params"] == {**cells(tracker_records.PARAMS), "none": "None"}


def check_trial(number: str, trial: dict[str, Any]) -> None:
    assert set(trial["params"]) == set(tracker_records.PARAMS)
    for key, value in cells(tracker_records.PARAMS).items():
        held = trial["params"][key]
        assert held == (str(value) if isinstance(held, str) else value), key

    points = tracker_process.points(0, CURVES[number])
    scores = [
        [point.steps, -point.score + 0.0] for point in points if point.score is not None
    ]  # as the user knows them
    wanted = {"loss": [[point.steps, point.metrics["loss"]] for point in points], "score": scores}
    wanted["elapsed_seconds"] = [[point.steps, point.elapsed_seconds] for point in points]
    assert set(trial["curve"]) == {key for key, values in wanted.items() if values}
    for key, values in trial["curve"].items():
        assert [step for step, _ in values] == [step for step, _ in wanted[key]], key
        assert [value for _, value in values] == pytest.approx([value for _, value in wanted[key]], rel=1e-6), key

    results = trial["results"]
    score = {"0": 1.5, "2": 0.5, "3": 0.75}.get(number)  # a failure has no score; it is not 0
    assert results.get("score") == score
    cost = {"0": 4.5, "1": 1.0, "2": 9.0, "3": 3.0, "4": 0.0}[number]
    assert (results["cost_seconds"], results["number"]) == (cost, int(number))
    odd = {key: results.get(key) for key in ("metrics.odd", "metrics.odder")}
    assert odd == ({"metrics.odd": "inf", "metrics.odder": "nan"} if number == "0" else dict.fromkeys(odd))
    if number == "0":
        assert math.isclose(results["metrics.loss"], 0.25)

    texts = trial["facts"]
    assert (texts["sweep"], texts["env"], texts["end"]) == ("s.1", "pong", ENDED[number])
    assert texts["origin"] == "improving the front near 30 s"
    assert texts["git_commit"] == "abc-dirty"
    assert texts.get("reason", "") == {"1": "the loss is nan", "2": "cap", "4": "interrupted"}.get(number, "")
