"""What the report of a night says follows from the store and the diary."""

import datetime
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS, wait_until

from protein import storage
from protein.types import Measurement, Outcome, Provenance, Suggestion, SuggestionKind, SweepSpec, TrialEnd
from tests.faults import night, night_report, trial
from tests.faults.checker import Snapshot

PROVENANCE = Provenance(version="0", git_commit="", machine="", config_hash="")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a short night: two complete trials, one that runs, and one fault."""
    (tmp_path / "sweep").mkdir()
    store = storage.open_store(f"sqlite:///{tmp_path}/sweep/protein.db")
    spec = SweepSpec(name="night", env="pong", method="protein", seed=0, space={}, config={}, provenance=PROVENANCE)
    sweep = store.create_sweep(spec, 600.0)
    for cost, score in ((20.0, 1.5), (10.0, 0.5), (5.0, None)):
        suggestion = Suggestion(params={"x": cost}, kind=SuggestionKind.SEARCH, origin="test")
        begun = store.start_trial(
            sweep.id, suggestion, seed=0, owner="me", lease_seconds=60.0, suggest_seconds=0.0, provenance=PROVENANCE
        )
        store.add_measurements(begun, [Measurement(steps=1, elapsed_seconds=cost, score=0.0)], 60.0)
        if score is not None:
            store.finish_trial(begun, Outcome(end=TrialEnd.COMPLETE, score=score, cost_seconds=cost, steps=1))
    store.close()
    begin = {"what": "begin", "at": 1000.0, "env": "pong", "workers": 2, "machine": "m", "python": "3", "commit": "c"}
    lines = [
        {**begin, "command": ["protein", "sweep", "--store", "sqlite:////somewhere/protein.db"]},
        {"what": "fault", "at": 1090.0, "name": "sweep: kill -9", "struck": True, "ran": [2], "wrong": []}
        | {"lost_before_seconds": 0.0},
        {"what": "pulse", "at": 1050.0, "finished": 1, "best": 0.5, "spent_seconds": 10.0, "memory_mib": 90}
        | {"load": 2.5, "disk_mib": 1},
        {"what": "pulse", "at": 1095.0, "finished": 2, "best": 1.5, "spent_seconds": 36.0, "memory_mib": 0}
        | {"load": 1.25, "disk_mib": 2000},
        {"what": "end", "at": 1100.0, "wrong": []},
    ]
    (tmp_path / "night.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_a_good_night_is_reported(folder: Path) -> None:
    page = night_report.report(folder)
    assert "| trials | 3 |" in page and "| of them complete | 2 |" in page and "| best measured score | 1.5 |" in page
    assert "| 1 | 10.0 s | 0.5 |\n| 0 | 20.0 s | 1.5 |" in page, "the front, cheapest first"
    assert "| 0:01 | sweep: kill -9 | 2 | 0.0 | nothing |" in page
    assert "| 0:01 | 2 | 0.01 h | 1.5 | not known | 1.25 | 2,000 MiB |" in page and "| 2.50 |" not in page
    assert "`protein sweep --store runs/night/protein.db`" in page
    assert page.count(": yes\n") == 6 and "**no**" not in page


def test_what_is_wrong_in_a_night_is_reported(folder: Path) -> None:
    with (folder / "night.jsonl").open("a") as diary:
        diary.write(json.dumps({"what": "ended by itself", "at": 1101.0, "code": 1, "says": "oh"}) + "\n")
        diary.write(json.dumps({"what": "end", "at": 1010.0, "wrong": ["process 7 was left behind"]}) + "\n")
    (folder / "life-0.out").write_text("Traceback (most recent call last):\nValueError: it\n")
    page = night_report.report(folder)
    assert "**no**: process 7 was left behind" in page
    assert "**no**: 35 s were spent, and the workers had 20 s" in page, "two workers for ten seconds"
    assert "**no**: a traceback in life-0.out: ValueError: it" in page
    assert "**no**: 1: oh" in page


def test_a_night_of_two_stretches_says_so_and_counts_what_ran(folder: Path) -> None:
    file = folder / "night.jsonl"
    begin = json.loads(file.read_text().splitlines()[0])
    fault = {"what": "fault", "at": 5060.0, "name": "trial: kill -9", "struck": True, "ran": [2], "wrong": []}
    lines = [
        {**begin, "at": 5000.0, "commit": "d"},
        {**fault, "lost_before_seconds": 0.0},
        {"what": "end", "at": 5080.0, "wrong": [], "why": "it was ended by hand"},
        {**begin, "at": 9000.0},
        {**fault, "at": 9020.0, "lost_before_seconds": 0.0},
        {"what": "end", "at": 9040.0, "wrong": []},
    ]
    file.write_text(file.read_text() + "".join(json.dumps(line) + "\n" for line in lines))
    page = night_report.report(folder)
    assert "ran for 0.06 hours in 3 stretches, and" in page, "220 seconds, and not 8,020"
    assert "| 1 | 1970-01-01 00:16 | 0.03 | c | its time was over |" in page
    assert "| 2 | 1970-01-01 01:23 | 0.02 | d | it was ended by hand |" in page
    assert "| 3 | 1970-01-01 02:30 | 0.01 | c | its time was over |" in page
    assert "| 0:02 | trial: kill -9 |" in page and "| 0:03 | trial: kill -9 |" in page, "of the time that it ran"


def test_a_night_whose_program_was_killed_is_reported_from_its_folder(folder: Path) -> None:
    """Its hours go on after its last note: they end with the last sign of a trial in the store."""
    file = folder / "night.jsonl"
    now = Snapshot.read(f"sqlite:///{folder}/sweep/protein.db")
    [running] = [row for row in now.trials if row["state"] == "running"]
    last = night_report.signs(now.trials)[-1]
    assert running["started_at"] <= str(datetime.datetime.fromtimestamp(last + 1.0, datetime.UTC)), (
        "not its lease's end"
    )
    assert last < time.time()
    begin = {**json.loads(file.read_text().splitlines()[0]), "at": last - 1800.0}
    pulse = {"what": "pulse", "at": last - 1790.0, "finished": 1, "best": 0.5, "spent_seconds": 10.0, "memory_mib": 90}
    lines = [begin, {**pulse, "load": 2.5, "disk_mib": 1}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"what": "pul')
    page = night_report.report(folder)
    assert "ran for 0.50 hours, and" in page, "and not 0.00"
    assert (
        "it still runs or was killed" in page
        and "No more was spent than the workers could train in that time: yes" in page
    )
    night_report.Diary(file).write(
        "begin", **{name: value for name, value in begin.items() if name not in ("what", "at")}
    )
    assert [line["what"] for line in night_report.Diary(file).read()] == ["begin", "pulse", "begin"], (
        "the torn line alone"
    )
    again = night_report.stretches(night_report.Diary(file).read(), now)
    assert [round(one.seconds) for one in again] == [1800, 0], "what came before the next start is of the first one"


@pytest.mark.slow  # three starts of the script
def test_ctrl_c_ends_a_night_in_order_and_the_page_is_written(tmp_path: Path) -> None:
    words = ["--folder", str(tmp_path / "night"), "--page", str(tmp_path / "night.md"), "--env", "cartpole"]
    command = [sys.executable, str(night.ROOT / "scripts" / "night.py"), *words, "--workers", "1", "--faults", "0"]

    def stretch(hours: str, until: Callable[[], object]) -> str:
        with subprocess.Popen([*command, "--hours", hours], stdout=subprocess.PIPE, text=True) as program:
            wait_until(until)
            program.send_signal(signal.SIGINT)
            return program.communicate(timeout=PATIENCE_SECONDS)[0]

    store = tmp_path / "night" / "sweep" / "protein.db"
    out = stretch("1", store.exists)
    assert f"written: {tmp_path / 'night.md'}" in out and "it was ended by hand" in out
    page = (tmp_path / "night.md").read_text()
    assert "| ended by hand |" in page.replace("it was ", "") and "in 1 stretches" not in page
    diary = night_report.Diary(tmp_path / "night" / "night.jsonl")
    assert [line["what"] for line in diary.read()][-1] == "end" and diary.read()[-1]["wrong"] == []
    stretch("1", lambda: sum(line["what"] == "begin" for line in diary.read()) == 2)
    assert "in 2 stretches" in (tmp_path / "night.md").read_text()
    first, _ = night_report.stretches(diary.read())
    hours = f"{first.seconds / 3600:f}"
    over = subprocess.run([*command, "--hours", hours], capture_output=True, text=True, check=True)
    assert "a larger --hours goes on" in over.stdout, "the hours are those of all stretches"
    assert len(night_report.stretches(diary.read())) == 2


def test_a_forgotten_cost_is_found(folder: Path) -> None:
    before = Snapshot.read(f"sqlite:///{folder}/sweep/protein.db")
    forgot = [{**row, "cost_seconds": row["cost_seconds"] - 0.5 * (row["number"] == 2)} for row in before.trials]
    assert night.cheaper(before, before) == []
    assert night.cheaper(before, Snapshot(forgot, {})) == ["trial 2 costs 4.50 s after the fault, and 5.00 s before"]
    lost = [{**row, "lost_seconds": 0.5 * (row["number"] == 2)} for row in forgot]
    assert night.cheaper(before, Snapshot(lost, {})) == [], "it is booked as lost"


def test_a_trials_score_rises_with_its_steps() -> None:
    scores = [trial.score({"rate": 0.3, "width": 0.7}, steps) for steps in (5, 20, 60)]
    assert scores == sorted(scores) and 0.0 < scores[0] < scores[-1] < 1.0
