"""Commands that are killed and go on have the score of their final files, however they write it."""

import dataclasses
from pathlib import Path

import command_jobs
import patience
import pytest

from protein.ports import Finished, Job
from protein.run.command import CommandBackend, ScoreFrom
from protein.types import Direction
from tests.faults import evidence, scores
from tests.faults.disturbed import PATH

FROM: dict[str, ScoreFrom] = {"csv": "csv", "jsonl": "csv", "tensorboard": "tensorboard", "lines": "lines"}
STEPS, RATE = 12, 0.5


def jobs(kind: str, folder: Path) -> list[Job]:
    """Returns a trial for each way to write."""
    flag = (scores.FLAGS[kind] or ["", ""])[1]
    file, _, names = flag.rpartition(":") if FROM[kind] == "csv" else (".", "", flag)
    column, _, steps = names.partition(",")
    made = [
        command_jobs.job(
            folder,
            scores.command(kind),
            number,
            {"steps": STEPS, "rate": RATE},
            score_from=FROM[kind],
            score=column,
            steps=steps,
            file=file,
        )
        for number in range(len(scores.WAYS))
    ]
    return [dataclasses.replace(one, directory=folder / "disturbed" / f"{one.trial.number:04}") for one in made]


@pytest.mark.parametrize("kind", scores.FLAGS)
def test_a_command_that_was_killed_has_the_score_of_its_final_files(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(evidence.FILE, str(tmp_path / "evidence.jsonl"))
    monkeypatch.setenv("PYTHONPATH", PATH)
    monkeypatch.setenv(scores.HOLD, str(scores.CHECKPOINT_STEPS + 2))
    steps = dict.fromkeys(range(len(scores.WAYS)), 0)
    first = CommandBackend(Direction.MAXIMIZE)
    for one in jobs(kind, tmp_path):
        first.start(one)

    def are_held() -> bool:
        for event in first.poll(0.05):
            assert not isinstance(event, Finished), event.outcome.reason
            steps[event.trial.number] = max([steps[event.trial.number], *(point.steps for point in event.measurements)])
        file = tmp_path / "evidence.jsonl"
        return file.exists() and file.read_text().count('"held"') == len(steps)

    patience.wait_until(are_held)
    first.close()  # kills them, in the middle of a row
    monkeypatch.delenv(scores.HOLD)
    second = CommandBackend(Direction.MAXIMIZE)
    for one in jobs(kind, tmp_path):
        second.start(
            dataclasses.replace(one, resumes=one.directory / "checkpoint", steps_behind=steps[one.trial.number])
        )
    found: list[Finished] = []

    def have_ended() -> bool:
        found.extend(event for event in second.poll(0.05) if isinstance(event, Finished))
        return len(found) == len(steps)

    patience.wait_until(have_ended)
    second.close()
    rows = [{"number": one.trial.number, "state": one.outcome.end.value, "score": one.outcome.score} for one in found]
    assert [row["state"] for row in rows] == ["complete"] * len(scores.WAYS), [one.outcome.reason for one in found]
    assert scores.wrong(kind, rows, tmp_path) == []
    assert len(scores.wrong(kind, [{**row, "score": 0.5} for row in rows], tmp_path)) == len(rows), "it would be seen"
