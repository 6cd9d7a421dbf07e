"""Commands of the user's, called when a sweep ends or is in trouble, and not when another process has the sweep."""

import json
import re
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
import sample_trials
import small_sweep
from sweep_control import found, opened, teller, told

from protein.errors import UsageError
from protein.run.lease import current_owner, owner_of
from protein.sweep import hooks
from protein.types import Suggestion, SuggestionKind, TrialRecord, TrialState


def test_a_command_is_called_at_the_end_with_the_facts(tmp_path: Path) -> None:
    status = small_sweep.sweep(
        tmp_path,
        budget_seconds=None,
        max_trials=2,
        on_finish=teller(tmp_path),
        on_trouble="false",
        store="postgresql://host/db",
    )
    best = max(status.trials, key=lambda trial: trial.score or 0.0)
    [facts] = told(tmp_path)
    spent = sum(trial.cost_seconds for trial in status.trials)
    assert facts == {
        "PROTEIN_SWEEP": "s",
        "PROTEIN_REASON": status.ended,
        "PROTEIN_BEST_SCORE": repr(best.score),
        "PROTEIN_BEST_TRIAL": str(best.number),
        "PROTEIN_TRIALS": "2",
        "PROTEIN_SPENT_SECONDS": f"{spent:.3f}",
        "PROTEIN_STORE": "postgresql://host/db",
    }


def test_a_command_is_called_after_each_trial_with_its_facts(tmp_path: Path) -> None:
    listener = small_sweep.Lines()
    status = small_sweep.sweep(
        tmp_path, budget_seconds=None, max_trials=3, on_trial=f"{teller(tmp_path)}; exit 3", listener=listener
    )
    best = None
    for trial, facts in zip(status.trials, told(tmp_path), strict=True):
        assert trial.score is not None
        best = trial.score if best is None else max(best, trial.score)
        assert (facts["PROTEIN_SWEEP"], facts["PROTEIN_TRIAL"]) == ("s", str(trial.number))
        assert (facts["PROTEIN_STATE"], facts["PROTEIN_END"]) == ("complete", "complete")
        assert (facts["PROTEIN_SCORE"], facts["PROTEIN_STEPS"]) == (repr(trial.score), str(trial.steps))
        assert json.loads(facts["PROTEIN_PARAMS"]) == trial.params
        assert json.loads(facts["PROTEIN_METRICS"]) == trial.metrics
        assert facts["PROTEIN_IS_BEST"] == ("1" if trial.score == best else "")
        assert facts["PROTEIN_TRIALS"] == str(trial.number + 1)
    assert [line.partition(":")[0] for line in listener.lines] == ["--on-trial failed with code 3"] * 3
    assert not status.trouble


def test_what_is_called_after_a_trial_holds_up_no_trial_and_is_not_waited_for_without_end() -> None:
    begun, go_on = threading.Event(), threading.Event()
    seen: list[int] = []
    lines: list[str] = []

    def slow(trial: TrialRecord) -> None:
        begun.set()
        go_on.wait()
        seen.append(trial.number)
        raise SystemExit("enough")

    after = hooks.AfterTrials(slow, "", lines.append)
    trials = [sample_trials.trial(i, 0.5, 1.0) for i in range(3)]
    for trial in trials:
        after.add(trial, sample_trials.status([trial]))
    begun.wait()
    after.close(0.05)
    assert lines == ["on_trial still ran 0.05 s after the sweep's end, and is not waited for; 2 trials were left out"]
    go_on.set()
    after._thread.join()
    assert seen == [0] and lines[1:] == ["on_trial failed at trial 0: SystemExit: enough"]

    kind = hooks.AfterTrials(lambda trial: seen.append(trial.number), "", lines.append)
    kind.add(trials[2], sample_trials.status(trials))
    kind.close(60.0)
    assert seen == [0, 2] and len(lines) == 2


def test_trouble_calls_the_other_command_and_a_stop_by_hand_none(tmp_path: Path) -> None:
    commands: dict[str, Any] = {"on_finish": "false", "on_trouble": teller(tmp_path)}
    listener = small_sweep.Lines()
    spec = small_sweep.sweep_spec(behaviour="diverge")
    status = small_sweep.sweep(tmp_path, spec=spec, budget_seconds=None, listener=listener, **commands)
    assert status.trouble and [facts["PROTEIN_REASON"] for facts in told(tmp_path)] == [status.ended]
    assert listener.lines == []

    stop = threading.Event()
    stop.set()
    small_sweep.sweep(tmp_path, spec=spec, budget_seconds=None, stop=stop, listener=listener, **commands)
    assert len(told(tmp_path)) == 1 and listener.lines == []
    assert found(tmp_path)[0].ended == "interrupted"


def test_a_sweep_that_never_got_a_score_is_trouble_and_says_why(tmp_path: Path) -> None:
    commands: dict[str, Any] = {"on_finish": "false", "on_trouble": teller(tmp_path), "budget_seconds": None}
    spec = small_sweep.sweep_spec(behaviour="diverge")
    status = small_sweep.sweep(tmp_path, spec=spec, max_trials=2, **commands)
    last = status.trials[-1]
    assert status.never_scored == last and not status.trouble
    assert status.ended == (
        f"the limit of 2 trials is reached; no trial has had a score, the last one, trial 1, ended with: {last.reason}"
    )
    assert [facts["PROTEIN_REASON"] for facts in told(tmp_path)] == [status.ended]
    good = small_sweep.sweep(tmp_path / "good", max_trials=1, **commands | {"on_finish": None})
    assert good.never_scored is None and len(told(tmp_path)) == 1


def test_an_error_is_trouble_and_is_stored(tmp_path: Path) -> None:
    spec = small_sweep.sweep_spec(behaviour="full disk")
    with pytest.raises(UsageError):
        small_sweep.sweep(tmp_path, spec=spec, on_trouble=teller(tmp_path))
    sweep, _ = found(tmp_path)
    assert sweep.ended.startswith("error: trial 0 failed, disk: no space is left")
    assert told(tmp_path)[0]["PROTEIN_REASON"] == sweep.ended


def test_a_sweep_that_is_refused_beside_another_changes_nothing_and_calls_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    record = small_sweep.find_or_create(store, small_sweep.sweep_spec())
    store.set_ended(record.id, "before")
    suggestion = Suggestion(params={"train.score": 0.5, "train.cost": 0.5}, kind=SuggestionKind.RANDOM, origin="test")
    provenance = record.spec.provenance
    store.start_trial(
        record.id,
        suggestion,
        seed=0,
        owner=current_owner(),
        lease_seconds=60.0,
        suggest_seconds=0.0,
        provenance=provenance,
    )
    store.close()
    with pytest.raises(UsageError, match="is being run by process"):
        small_sweep.sweep(tmp_path, on_trouble=teller(tmp_path), on_finish=teller(tmp_path))
    assert found(tmp_path)[0].ended == "before" and told(tmp_path) == []


def test_a_clock_that_was_set_forward_does_not_take_trials_from_a_living_process(tmp_path: Path) -> None:
    """The lease has ended by the clock, and the process that holds it lives: our parent."""
    store = opened(tmp_path)
    record = small_sweep.find_or_create(store, small_sweep.sweep_spec())
    parent = psutil.Process().parent()
    assert parent is not None
    owner = owner_of(parent.pid)
    store.start_trial(
        record.id,
        Suggestion(params={"train.score": 0.5, "train.cost": 0.5}, kind=SuggestionKind.RANDOM, origin="test"),
        seed=0,
        owner=owner,
        lease_seconds=0.001,
        suggest_seconds=0.0,
        provenance=record.spec.provenance,
    )
    store.close()
    with pytest.raises(UsageError, match=f"is being run by process {parent.pid} "):
        small_sweep.sweep(tmp_path)
    assert found(tmp_path)[1][0].state is TrialState.RUNNING


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("exit 3", "--on-finish failed with code 3: exit 3"),
        ("echo no such server >&2; false", r"failed with code 1: .* \(no such server\)"),
        ("sleep 600", "was killed after 0.2 s, its limit: sleep 600"),
        ("no-such-program", "failed with code 127"),
    ],
)
def test_a_command_that_fails_is_one_line(command: str, line: str) -> None:
    lines: list[str] = []
    hooks.call("--on-finish", command, {}, lines.append, seconds=0.2 if "sleep" in command else 30.0)
    [said] = lines
    assert re.search(line, said)
