"""`protein note`, `pause`, `resume` and `stop`, and what the other commands then show."""

import re
from pathlib import Path

import pytest
from commands import Run

from protein import storage
from protein.types import Request


def test_a_note_is_written_shown_and_removed(filled: object, run: Run) -> None:
    assert run("note pong --trial 4,1 --tag 'looks good, größe' --note 'watch the serve'") == (
        "trial 1 of sweep 'pong': tags looks good, größe; note watch the serve\n"
        "trial 4 of sweep 'pong': tags looks good, größe; note watch the serve\n"
    )
    shown = run("show pong --trial 4")
    assert "looks good, größe" in shown and "watch the serve" in shown
    assert run.json("note --trial 4 --untag größe --json") == [
        {"number": 4, "tags": ["looks good"], "note": "watch the serve", "excluded": False}
    ]
    listed = run.json("show pong --json")["trials"]
    assert [trial["tags"] for trial in listed if trial["tags"]] == [["looks good", "größe"], ["looks good"]]
    assert "looks good" in run("show pong")
    assert run("note --trial 1,4 --untag 'looks good,größe' --note ''") == (
        "trial 1 of sweep 'pong': no tag, no note\ntrial 4 of sweep 'pong': no tag, no note\n"
    )
    assert "tags" not in run("show pong")


def test_an_excluded_trial_is_shown_as_such_and_recommended_by_nothing(filled: object, run: Run) -> None:
    before, status = run.json("best --json"), run.json("status pong --json")
    front = run.json("pareto pong --json")["front"]
    numbers = {before["number"], front[-1]["number"]}
    assert len(numbers) == 2
    run(f"note --exclude --trial {','.join(map(str, numbers))}")
    after = run.json("best --json")
    assert numbers.isdisjoint(number for answer in after["answers"] for number in answer["trials"])
    assert numbers.isdisjoint(point["number"] for point in run.json("pareto pong --json")["front"])
    assert all("excluded" in run(f"show --trial {number}") for number in numbers) and "excluded" in run("show")
    changed = run.json("status pong --json")
    assert (changed["spent_seconds"], changed["trials"]) == (status["spent_seconds"], status["trials"])
    assert changed["best"]["number"] not in numbers
    run(f"note --include --trial {','.join(map(str, numbers))}")
    assert run.json("best --json") == before
    assert run.json("pareto pong --json")["front"] == front


def test_where_all_complete_trials_are_excluded_the_way_back_is_named(filled: object, run: Run) -> None:
    trials = run.json("show pong --json")["trials"]
    run("note --exclude --trial " + ",".join(str(trial["number"]) for trial in trials))
    for command in ("best", "pareto"):
        assert "are excluded, so none can be recommended; take that back with protein note" in run.error(command)
    assert "no trial has finished yet" not in run("status pong")


def test_a_config_by_hand_is_queued_shown_and_cancelled(filled: Path, run: Run) -> None:
    before = run.json("show pong --json")["trials"]
    number = len(before)
    assert run("try pong --train.learning-rate 8e-4").splitlines()[-1] == (
        f"trial {number} is queued in sweep 'pong'; it starts at the next free worker"
    )
    assert f"trial {number} of 'pong' is queued by hand: it starts at the next free worker" in run("status pong")
    assert run.json("status pong --json")["queued"] == [number]
    assert re.search(r"state +queued\s", run(f"show pong --trial {number}"))
    (filled / "mine.jsonl").write_text('{"train.learning_rate": 2.2e-3}\n{"train.learning_rate": 3.3e-3}\n')
    told = run.json("try pong --file mine.jsonl --json")
    assert [(one["number"], one["params"]["train.learning_rate"]) for one in told] == [
        (number + 1, 2.2e-3),
        (number + 2, 3.3e-3),
    ]
    assert f"trial {number} has this config already (queued)" in run.error("try pong --train.learning_rate=8e-4")
    assert "has this config already (complete)" in run.error(
        " ".join(["try pong", *(f"--params.{name} {value}" for name, value in before[0]["params"].items())])
    )
    run(f"cancel pong --trial {number},{number + 1},{number + 2}")
    assert run.json("status pong --json")["queued"] == []


def requested() -> Request:
    store = storage.open_store("sqlite:///runs/protein.db")
    [sweep] = store.list_sweeps()
    store.close()
    return sweep.requested


def test_requests_are_stored_and_shown(filled: object, run: Run) -> None:
    assert run("pause pong") == "sweep 'pong' is paused: no trial starts until protein resume pong\n"
    assert requested() is Request.PAUSE
    assert "'pong' is paused: no trial starts until protein resume pong" in run("status")
    assert run.json("status pong --json")["requested"] == "pause"
    assert "goes on: trials start again" in run("resume")
    assert requested() is Request.RUN
    assert "paused" not in run("status")
    assert "is asked to stop" in run("stop pong")
    assert requested() is Request.STOP
    assert "asked to stop" in run("status pong")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("note pong", "--trial is missing"),
        ("note pong --trial one", "--trial one is no list of trial numbers"),
        ("note pong --trial 1,,2", "is no list of trial numbers"),
        ("note pong --trial 9999", "the sweep has no trial 9999, so nothing was changed"),
        ("note pong --trial 1 --exclude --include", "are opposites"),
        ("note pong --trial 1 --tag ''", "tag '' cannot be stored"),
        (f"note pong --trial 1 --tag {'x' * 99}", "a tag has 1 to 60"),
        ("note nothing --trial 1", "there is no sweep 'nothing'"),
        ("pause nothing", "there is no sweep 'nothing'"),
    ],
)
def test_mistakes_are_one_line(filled: object, run: Run, line: str, message: str) -> None:
    assert message in run.error(line)
    assert run.json("show pong --trial 1 --json")["tags"] == []


def test_an_empty_file_is_no_store_and_stays_empty(folder: object, run: Run) -> None:
    Path("empty.db").touch()
    assert "there is no store empty.db yet" in run.error("status --store empty.db")
    assert Path("empty.db").stat().st_size == 0
