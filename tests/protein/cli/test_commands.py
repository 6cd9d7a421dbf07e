"""The commands on a real store: what they print, what their JSON holds and what they choose."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from commands import Run, sweep_command
from sample_trials import STORED, add_run, fill_store, start_trial, store_url
from store_samples import ended_owner

from protein import storage
from protein.api import stores
from protein.cli import sweep
from protein.cli.arguments import SweepArguments
from protein.cli.parse import parse
from protein.run.lease import current_owner
from protein.types import Estimate, Outcome, TrialEnd
from protein.view import tables


def test_a_sweep_that_is_asked_to_continue_trials_says_why_it_cannot(filled: Path, run: Run) -> None:
    reason = (
        "trials are never continued: with train.lr_schedule = cosine the step size has fallen when a run ends; constant"
        " or wsd allow it"
    )
    assert f"\n{reason}\n" in run(sweep_command(filled, "--max-cost 3m --continue-trials True"))
    for flag in ("", "--continue-trials False"):
        assert "never continued" not in run(sweep_command(filled, f"--max-cost 3m {flag}"))


@pytest.mark.parametrize(
    ("flags", "asks"),
    [
        ("", False),
        ("--train.lr-schedule constant", False),
        ("--train.lr-schedule wsd", True),
        ("--train.lr-schedule wsd --continue-trials False", False),
        ("--continue-trials True", True),
    ],
)
def test_continued_trials_are_asked_for_by_their_flag_or_by_the_schedule_made_for_them(flags: str, asks: bool) -> None:
    command = parse(shlex.split(f"sweep --env pong {flags}"))
    assert isinstance(command.arguments, SweepArguments)
    plan = sweep.make_plan(command, tables.make_console())
    assert sweep.asks_to_continue(command.arguments, plan.spec) is asks


def test_status_of_all_sweeps_and_of_one(filled: Path, run: Run) -> None:
    fill_store("sqlite:///runs/protein.db", name="other", budget_seconds=None)
    spent = sum(cost for cost, *_ in STORED)
    listed = run.json("status --json")
    assert [sweep["name"] for sweep in listed] == ["pong", "other"]
    one = run.json("status pong --json")
    note = one["notes"].pop()
    assert note.startswith("trial 5 had score 19.00 when it was stopped")
    found = one.pop("found")
    assert (found["best"]["trial"], found["best"]["runs"]) == (run.json("best pong --json")["number"], 1)
    assert found["trust"] and found["next"]
    assert one == {**listed[0], "outlook": None, "range_ends": []}  # after four complete trials
    assert one["trials"] == {
        "running": 0,
        "waiting": 0,
        "complete": 4,
        "pruned": 1,
        "stopped_early": 0,
        "capped": 1,
        "out_of_budget": 0,
        "failed": 1,
        "interrupted": 1,
    }
    assert (one["spent_seconds"], one["max_cost_seconds"], one["best"]["number"]) == (spent, 240.0, 1)
    assert listed[1]["max_cost_seconds"] is None
    assert re.search(r"^pong +pong +protein +7 +1 +0 +3m50s +4m00s +18.00 +40.0s", run("status"), re.MULTILINE)
    told = run("status other")
    assert told.startswith(run("best other").partition("\n")[0]), "what is recommended comes first"
    assert "\ncan it be trusted?\n  Trial " in told and "\nwhat next?\n" in told
    assert "Best measured: trial 1, score 18.00 in 40.0s" in told
    assert run.error("best") == "there are 2 sweeps; name one of them: pong, other"
    assert run.error("status pung") == "there is no sweep 'pung'; did you mean 'pong'?"


def test_status_tells_a_trial_that_runs_from_one_whose_process_is_gone(filled: Path, run: Run) -> None:
    add_run("sqlite:///runs/protein.db", of=0, owner=current_owner())
    add_run("sqlite:///runs/protein.db", of=0, owner=ended_owner())
    text = run("status pong")
    assert "trial 8 of 'pong' was interrupted: its process is gone\n" in text
    assert re.search(r"^running\n.*\n +7  running .*\n\ninterrupted\n.*\n +8  interrupted ", text, re.MULTILINE)
    add_run("sqlite:///runs/protein.db", of=0, owner=ended_owner())
    assert "trials 8, 9 of 'pong' were interrupted: their processes are gone\n" in run("status pong")
    [plain] = run.json("status --json")
    assert (plain["life"], plain["interrupted"], plain["waiting"], plain["notes"]) == ("runs", [8, 9], [], [])
    assert (plain["trials"]["running"], plain["trials"]["waiting"]) == (1, 2), "they are taken up again"


def test_the_process_that_runs_a_sweep_is_found_behind_confirmations(filled: Path, run: Run) -> None:
    url = "sqlite:///runs/protein.db"
    for _ in range(2):  # by a process that has ended since
        add_run(url, of=0, score=15.0, owner=ended_owner())
    with stores.opened(url) as store:
        trial = start_trial(store)
        store.finish_trial(trial, Outcome(end=TrialEnd.COMPLETE, score=1.0, cost_seconds=1.0, steps=10))
    assert run.json("status --json")[0]["life"] == "runs"  # it is between two trials
    assert run.error("show --trial 10") == "sweep 'pong' has no trial 10; it has 0 to 9"


def test_show_lists_trials_and_shows_one(filled: Path, run: Run) -> None:
    shown = run.json("show --json")
    assert [trial["number"] for trial in shown["trials"]] == list(range(len(STORED)))
    assert shown["sweep"]["name"] == "pong"
    assert "diverged: loss is nan" in run("show pong")
    one = run.json("show pong --trial 3 --json")
    assert (one["sweep"], one["number"], one["seed"], len(one["curve"])) == ("pong", 3, 1003, 20)
    text = " ".join(run("show --trial 3").split())
    assert "score 15.00 predicted 10.00 (8.000 to 11.50) off by +5.00 (4.3 sd)" in text
    assert "predicted 30.0s (25.0s to 40.0s) off by -17 % (1.3 sd)" in text
    assert "█" in text
    assert run.error("show --trial 7") == "sweep 'pong' has no trial 7; it has 0 to 6"


def test_a_prediction_outside_the_possible_scores_reads_the_same_everywhere(folder: Path, run: Run) -> None:
    fill_store("sqlite:///runs/protein.db", predicted=Estimate(value=21.59, low=14.0, high=27.5))
    inside = {"value": 21.0, "low": 14.0, "high": 21.0}
    listed = run.json("show --json")["trials"]
    assert [one["predicted_score"] for one in listed] == [None, *[inside] * (len(STORED) - 1)]
    assert run.json("show --trial 3 --json")["predicted_score"] == inside
    assert run.json("best --json")["predicted_score"] in (None, inside)
    text = " ".join(run("show --trial 3").split())
    assert "score 15.00 predicted 21.00 (14.00 to 21.00) off by -6.00 (1.1 sd)" in text
    assert re.search(r"^ +3 +complete +15.00 +21.00 +25.0s", run("show"), re.MULTILINE)
    found = run.json("show --calibration --json")["score"]["forecasts"]  # of the predictions as they were made
    assert {forecast["predicted"]["high"] for forecast in found} == {27.5}


def test_show_calibration_sets_predictions_against_what_was_measured(filled: Path, run: Run) -> None:
    found = run.json("show pong --calibration --json")
    assert [forecast["measured"] for forecast in found["score"]["forecasts"]] == [18.0, 15.0, 18.0]
    assert (found["score"]["above"], found["cost"]["inside"], found["cost"]["coverage"]) == (3, 2, 2 / 3)
    text = run("show --calibration")
    assert re.search(r"^score +3 +0 +0 +3 +0 % ", text, re.MULTILINE)
    assert "3 predicted scores: too few to judge (10 are needed)" in text
    assert text.endswith("plot: runs/pong/calibration.png\n")
    assert (filled / "runs" / "pong" / "calibration.png").read_bytes().startswith(b"\x89PNG")
    shutil.rmtree(filled / "runs" / "pong")
    (filled / "runs" / "pong").touch()  # no picture can be drawn, as beside a store that may only be read
    assert run("show --calibration").startswith(text.partition("plot:")[0] + "no plot: runs/pong/calibration.png")
    assert run.json("show --calibration --json") == {**found, "picture": None}
    assert run.error("show --calibration --trial 1").startswith("--calibration is about the whole sweep")


def test_envs_lists_the_environments(folder: Path, run: Run) -> None:
    (pong,) = (spec for spec in run.json("envs --json") if spec["name"] == "pong")
    assert pong["score_range"] == [-21.0, 21.0]
    assert (pong["observation_shape"], pong["action_sizes"], pong["continuous_actions"]) == ([8], [3], 0)
    assert re.search(r"^pong +8 +3 +1 +-21 to 21 +20 ", run("envs"), re.MULTILINE)


def test_a_sweep_of_a_gymnasium_environment_has_a_name_that_files_can_bear(folder: Path) -> None:
    command = parse(shlex.split("sweep --env gym:CartPole-v1"))
    spec, *_ = sweep.define(command, tables.make_console())
    assert (spec.name, spec.env) == ("gym-CartPole-v1", "gym:CartPole-v1")


def test_the_store_may_be_named_by_the_environment(
    filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    fill_store(store_url(elsewhere), name="there")
    monkeypatch.setenv("PROTEIN_STORE", store_url(elsewhere))
    assert [sweep["name"] for sweep in run.json("status --json")] == ["there"]
    assert run.json("best --json")["command"] == "protein train --env pong --from there"
    assert [sweep["name"] for sweep in run.json("status --json --store runs/protein.db")] == ["pong"]


def test_artifacts_of_two_stores_in_one_folder_stay_apart(folder: Path) -> None:
    named = {
        url: stores.artifact_directory(url, "pong") for url in ("sqlite:///runs/protein.db", "sqlite:///runs/b.db")
    }
    assert named["sqlite:///runs/protein.db"] == folder / "runs" / "pong"
    assert named["sqlite:///runs/b.db"] == folder / "runs" / "b" / "pong"
    server = stores.artifact_directory("postgresql+psycopg://me:x@host/sweeps?sslmode=require", "pong")
    assert server == folder / "runs" / "sweeps" / "pong"


def test_an_empty_store_says_how_to_start(folder: Path, run: Run) -> None:
    storage.open_store("sqlite:///runs/protein.db").close()
    hint = "start one with protein sweep --env NAME --max-cost 10m"
    assert hint in run("status")
    assert hint in run.error("best")
    assert run.json("status --json") == []


def test_a_spent_budget_says_how_to_go_on_and_shows_what_came_of_it(filled: Path, run: Run) -> None:
    text = run(sweep_command(filled, "--max-cost 3m"))
    assert "sweep 'pong': 4 complete, 1 capped, 1 failed, 1 interrupted; 3m50s spent" in text
    assert re.search(
        r"train the recommended config \(trial 4, expected score 1\d.* in 1m00s\):\n"
        r"  protein train --env pong --from pong\n",
        text,
    )
    assert text.endswith(
        "the budget of 3m00s is spent (3m50s); resume with a larger one:\n"
        "  protein sweep --env pong --env.num-envs 64 --train.minibatch-size 1024 --max-cost 6m\n"
    )
    assert (filled / "runs" / "pong" / "pareto.png").exists()
    assert "of wall clock" not in text  # the engine had nothing to do
    stored = run.json("status pong --json")
    assert (stored["max_cost_seconds"], stored["trials"]["complete"]) == (180.0, 4)


def test_a_sweep_that_ends_says_why(filled: Path, run: Run) -> None:
    text = run(sweep_command(filled, "--max-cost 10m --max-trials 7"))
    assert "1 failed, 1 interrupted; 3m50s spent; the limit of 7 trials is reached\n" in text
