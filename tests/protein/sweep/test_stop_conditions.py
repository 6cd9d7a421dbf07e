"""The user's conditions: `gain < 0.5 per hour` and `--until`, how they are read, and sweeps that they end."""

import dataclasses
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import sample_trials
import small_sweep
from sweep_control import AtPoint, found

from protein import Categorical, Float, Integer, Space, Sweep, SweepResult
from protein.cli import main
from protein.engine.designer import RandomDesigner
from protein.engine.results import Outlook
from protein.errors import UsageError
from protein.ports import Store, SweepStatus
from protein.sweep.stop_conditions import (
    Met,
    StopWhen,
    expected_seconds,
    longest_cost,
    parse_moment,
    parse_stop_when,
)
from protein.types import Budget, Direction, Estimate, Observation, Suggestion, TrialEnd, TrialState

SPACE = Space([Float("x", 0.0, 1.0), Integer("epochs", 1, 20, scale="log")], cost_parameter="epochs")


def train(params: dict[str, Any], report: Any) -> float:
    """A hill, to be minimised; costs a second an epoch, by its own word."""
    score: float = 100.0 * ((params["x"] - 0.3) ** 2 + 1.0 / params["epochs"])
    report(params["epochs"], score, cost_seconds=float(params["epochs"]))
    return score


def sweep(folder: Path, stop_when: str | None, *, max_trials: int = 40, direction: Any = "minimize") -> SweepResult:
    made = Sweep(
        SPACE,
        budget=2000.0,
        max_trial_cost=20.0,
        max_trials=max_trials,
        stop_when=stop_when,
        store=folder / "p.db",
        name="s",
        direction=direction,
        quiet=True,
    )
    return made.run(train)


@pytest.mark.parametrize(
    ("text", "gain", "seconds"),
    [
        ("gain < 0.5 per hour", 0.5, 3600.0),
        (" GAIN<1e-3 per Minute ", 1e-3, 60.0),
        ("gain < 2 per 1h30m", 2.0, 5400.0),
        ("gain<.5 per second", 0.5, 1.0),
        ("gain < 7 per day", 7.0, 86400.0),
    ],
)
def test_conditions_are_read_and_written(text: str, gain: float, seconds: float) -> None:
    condition = StopWhen.parse(text, "--stop-when", method="protein")
    assert condition == StopWhen(gain=gain, seconds=seconds)
    assert StopWhen.parse(str(condition), "--stop-when", method="protein") == condition


def test_trials_that_all_score_the_same_say_nothing_of_the_gain() -> None:
    """As those of a task whose short runs earn nothing."""
    history = [
        Observation(
            params={"x": i / 10, "epochs": 1 + i}, state=TrialState.COMPLETE, score=0.0, cost_seconds=1.0 + i, number=i
        )
        for i in range(12)
    ]
    condition = StopWhen(gain=1e-4, seconds=3600.0, highest=1.0)
    assert condition.reason(SPACE, history) is None
    assert dataclasses.replace(condition, highest=0.0).reason(SPACE, history) is not None, "nothing is left to gain"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gain > 1 per hour", "stop_when 'gain > 1 per hour' is not a condition; write it like 'gain < 0.5 per hour'"),
        ("", "stop_when '' is not a condition"),
        (3, "stop_when '3' is not a condition"),
        ("gain < x per hour", "the gain 'x' is not a number"),
        ("gain < 0 per hour", "the gain 0 must be above 0 and finite"),
        ("gain < -1 per hour", "the gain -1 must be above 0 and finite"),
        ("gain < nan per hour", "the gain nan must be above 0 and finite"),
        ("gain < 1 per fortnight", "the time 'fortnight' is not a duration; write it like 90s, 15m"),
        ("gain < 1 per 0s", "the time '0s' must be above 0"),
    ],
)
def test_a_mistake_is_one_line_with_the_remedy(text: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        sweep(tmp_path, text)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_it_holds_below_the_gain_alone() -> None:
    ahead = Outlook(best_per_second=0.01, front_per_second=0.0, spent_seconds=60.0)
    assert StopWhen(gain=1.0, seconds=60.0).holds(ahead)
    assert not StopWhen(gain=0.6, seconds=60.0).holds(ahead)
    assert not StopWhen(gain=0.5, seconds=60.0).holds(ahead)


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_a_sweep_ends_with_its_reason_and_goes_on_without_the_condition(direction: str, tmp_path: Path) -> None:
    condition = "gain < 1000 per 10s"  # always, once there is an outlook
    result = sweep(tmp_path, condition, direction=direction)
    assert 8 <= len(result.trials) < 20 and not result.interrupted
    assert result.ended.startswith("the expected gain of ") and "per 10s is below 1000; resume without" in result.ended
    assert all(trial.state == "complete" for trial in result.trials)
    again = sweep(tmp_path, condition, direction=direction)
    assert len(again.trials) == len(result.trials) and again.ended == result.ended
    further = sweep(tmp_path, None, direction=direction, max_trials=len(result.trials) + 2)
    assert len(further.trials) == len(result.trials) + 2 and "limit" in further.ended


def test_it_is_asked_once_after_each_finished_trial_and_running_trials_may_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def outlook(space: Space, history: Sequence[Observation], highest: float) -> Outlook:
        asked.append(len(history))
        return Outlook(best_per_second=0.0 if len(history) >= 4 else 1.0, front_per_second=0.0, spent_seconds=1.0)

    monkeypatch.setattr("protein.engine.outlook.outlook", outlook)
    status = small_sweep.sweep(
        tmp_path,
        budget_seconds=60.0,
        workers=2,
        stop_when=StopWhen(gain=0.5, seconds=1.0),
        spec=small_sweep.sweep_spec(),
    )
    assert asked == sorted(set(asked)) and asked[0] == 0 and asked[-1] >= 4
    assert status.ended.startswith("the expected gain of 0 per 1s is below 0.5; ")
    assert {trial.end for trial in status.trials} == {TrialEnd.COMPLETE}
    assert 4 <= len(status.trials) <= 6


def test_models_that_fail_let_the_sweep_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def outlook(space: Space, history: Sequence[Observation], highest: float) -> Outlook:
        raise ArithmeticError("the outlook is not finite")

    monkeypatch.setattr("protein.engine.outlook.outlook", outlook)
    assert StopWhen(gain=1.0, seconds=60.0).reason(SPACE, []) is None


def test_a_low_gain_lets_the_sweep_go_on_and_hindsight_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = sweep(tmp_path, "gain < 1e-9 per day", max_trials=16)
    assert len(result.trials) == 16 and result.ended == "the limit of 16 trials is reached"
    assert main(["show", "s", "--calibration", "--store", str(tmp_path / "p.db")]) == 0
    assert "earlier outlooks" in capsys.readouterr().out
    assert main(["show", "s", "--calibration", "--json", "--store", str(tmp_path / "p.db")]) == 0
    looks = json.loads(capsys.readouterr().out)["outlook"]
    assert looks and all(look["came"] >= 0.0 for look in looks)  # lower scores are better, and gains above 0


def test_another_method_has_no_outlook() -> None:
    with pytest.raises(UsageError, match="needs method 'protein', and the method is 'random'; drop one of the two"):
        Sweep(SPACE, budget=10.0, method="random", stop_when="gain < 1 per hour")


# `--until`: what a time is, and what no longer starts or waits then.

NOW = datetime(2026, 11, 22, 18, 30, tzinfo=timezone(timedelta(hours=1))).astimezone()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("08:00", NOW.replace(hour=8, minute=0) + timedelta(days=1 if NOW.hour >= 8 else 0)),
        ("2026-11-24T07:15", datetime(2026, 11, 24, 7, 15).astimezone()),
        ("2026-11-24 07:15:30", datetime(2026, 11, 24, 7, 15, 30).astimezone()),
        ("2026-11-24T07:15+05:00", datetime(2026, 11, 24, 2, 15, tzinfo=UTC)),
    ],
)
def test_a_time_is_the_next_one_of_the_clock_and_a_date_is_itself(given: str, expected: datetime) -> None:
    assert parse_moment(given, "--until", NOW) == expected


def test_the_present_minute_is_tomorrows() -> None:
    moment = parse_moment(f"{NOW:%H:%M}", "--until", NOW)
    assert timedelta(hours=22) < moment - NOW <= timedelta(hours=26)


@pytest.mark.parametrize(
    "given",
    [
        *("", "8", "25:00", "08:00 tomorrow", "2026-11-24", "2026-13-01T00:00", "now"),
        "0001-01-01T00:00+14:00",  # in the year 0 here
    ],
)
def test_what_is_no_time_is_one_line(given: str) -> None:
    with pytest.raises(UsageError, match=r"--until .* is no time; use a time as in 08:00"):
        parse_moment(given, "--until", NOW)


def test_a_date_that_has_passed_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"--until 2026-11-21T08:00 has passed: now it is"):
        parse_moment("2026-11-21T08:00", "--until", NOW)


class ExpectAnHour(RandomDesigner):
    """Expects each trial but the first to cost an hour."""

    def suggest(self, history: Any, *args: Any, **keywords: Any) -> Suggestion | None:
        suggestion = super().suggest(history, *args, **keywords)
        cost = Estimate(value=3600.0, low=3000.0, high=4000.0)
        if suggestion is None or not history:
            return suggestion
        return dataclasses.replace(suggestion, predicted_cost_seconds=cost)


def test_no_trial_starts_that_is_not_expected_to_end_in_time(tmp_path: Path) -> None:
    end = datetime.now(UTC) + timedelta(minutes=30)
    designer = ExpectAnHour(small_sweep.space(), None)
    status = small_sweep.sweep(tmp_path, designer=designer, budget_seconds=None, until=end)
    assert [trial.end for trial in status.trials] == [TrialEnd.COMPLETE]
    clock = f"{end.astimezone():%H:%M}"
    assert status.ended == f"no further trial is expected to end by {clock}, as --until says"
    assert found(tmp_path)[0].ended == status.ended and not status.trouble


def test_a_trial_that_fits_the_time_is_chosen(tmp_path: Path) -> None:
    limits: list[float | None] = []

    class Looks(RandomDesigner):
        def suggest(self, history: Any, running: Any, budget: Budget, seed: int) -> Suggestion | None:
            limits.append(budget.until_seconds)
            found = super().suggest(history, running, budget, seed)
            return None if len(history) == 2 and budget.until_seconds is not None else found

    end = datetime.now(UTC) + timedelta(minutes=30)
    designer = Looks(small_sweep.space(), None)
    status = small_sweep.sweep(tmp_path, designer=designer, budget_seconds=1e6, max_trial_seconds=7200.0, until=end)
    assert len(limits) == 4 and all(limit is not None and 1700.0 < limit <= 1800.0 for limit in limits[:3])
    assert limits[3] is None, "asked whether it is the time that nothing fits"
    assert len(status.trials) == 2
    assert status.ended == f"no further trial is expected to end by {end.astimezone():%H:%M}, as --until says"
    assert longest_cost(60.0, list(status.trials), speed=0.5) <= 30.0


def test_the_time_is_no_reason_where_nothing_would_be_tried_with_more_of_it(tmp_path: Path) -> None:
    class Nothing(RandomDesigner):
        def suggest(self, history: Any, *args: Any, **keywords: Any) -> Suggestion | None:
            return None if history else super().suggest(history, *args, **keywords)

    end = datetime.now(UTC) + timedelta(minutes=30)
    status = small_sweep.sweep(tmp_path, designer=Nothing(small_sweep.space(), None), budget_seconds=None, until=end)
    assert len(status.trials) == 1
    assert "--until" not in status.ended


def test_a_machine_of_half_the_speed_needs_twice_the_time() -> None:
    assert expected_seconds(None, 3600.0, [], speed=0.5) == 7200.0


def test_at_the_time_what_runs_is_stopped_and_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [datetime.now(UTC)]

    class Clock:
        @staticmethod
        def now(zone: Any = None) -> datetime:
            return clock[0]

    monkeypatch.setattr("protein.sweep.stop_conditions.datetime", Clock)
    end = clock[0] + timedelta(hours=1)

    def set_clock(store: Store, status: SweepStatus) -> None:
        clock[0] = end

    status = small_sweep.sweep(
        tmp_path,
        spec=small_sweep.sweep_spec(behaviour="hang"),
        listener=AtPoint(tmp_path, set_clock),
        budget_seconds=None,
        until=end,
    )
    assert [trial.state for trial in status.trials] == [TrialState.WAITING]
    assert status.ended == f"it is {end.astimezone():%H:%M}, as --until says"


# A condition that a trial meets


PARAMETERS = (
    Float("lr", 0.0, 1.0),
    Integer("train.size", 1, 9),
    Categorical("opt", ("adam", "sgd")),
    Categorical("layers", (None, [64, 64], {"a": 1}, "wide")),
    Categorical("amp", (True, False)),
)


def met(text: str, direction: Direction = Direction.MAXIMIZE) -> Met:
    found = parse_stop_when(text, "--stop-when", method="random", direction=direction, parameters=PARAMETERS)
    assert isinstance(found, Met)
    return found


def one(number: int = 0, *, state: TrialState = TrialState.COMPLETE, score: float | None = 21.0, **more: Any) -> Any:
    made = sample_trials.trial(number, 21.0, 10.0)
    end = {
        TrialState.COMPLETE: TrialEnd.COMPLETE,
        TrialState.PRUNED: TrialEnd.CAPPED,
        TrialState.FAILED: TrialEnd.CRASHED,
    }
    return dataclasses.replace(made, state=state, end=end[state], score=score, params={"lr": 0.1}, **more)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("score >= 20", True),
        ("score>21", False),
        ("score >= 20 and memory_gb <= 8", True),
        ("score >= 20 and eval/acc > 0.5", True),
        ("metrics.memory_gb > 8 or `eval/acc` > 0.5", True),
        ("memory_gb > 8", False),
        ("loss < 1", False),  # no trial has it
        ("loss != none", False),
        ("cost < 1m and lr == 0.1", True),
        ("train.size > 0", False),
        ("trials >= 2", False),
        ("trials >= 1 and steps > 0", True),
        ("state == failed", False),
        ("not (score < 20)", True),
        ("end == complete and 0 < score < 30", True),
    ],
)
def test_a_finished_trial_meets_a_condition_or_does_not(text: str, holds: bool) -> None:
    trial = one(metrics={"memory_gb": 7.5, "eval/acc": 0.9})
    assert (met(text).reason([trial]) is not None) is holds


@pytest.mark.parametrize("params", [{}, {"opt": "sgd"}, *({"layers": it} for it in (None, [64, 64], {"a": 1}, "wide"))])
def test_choices_are_compared_whatever_they_are_and_whoever_has_them(params: dict[str, Any]) -> None:
    trial = dataclasses.replace(one(), params=params)
    said = {
        "opt == adam": False,
        "opt == 'sgd'": "opt" in params,
        "opt != none": "opt" in params,
        "layers == 'null'": params.get("layers", 1) is None,
        "layers == '[64, 64]'": params.get("layers") == [64, 64],
        "layers == wide": params.get("layers") == "wide",
        "amp": False,
    }
    for text, holds in said.items():
        assert met(text).metrics == (), "a choice is no metric"
        assert (met(text).reason([trial]) is not None) is holds, text


def test_only_scores_of_complete_trials_count_and_those_as_the_user_knows_them() -> None:
    cut, failed = one(0, state=TrialState.PRUNED), one(1, state=TrialState.FAILED, score=None)
    running = dataclasses.replace(one(2), state=TrialState.RUNNING, end=None)
    excluded = dataclasses.replace(one(3), excluded=True)
    assert met("score >= 20").reason([cut, failed, running, excluded]) is None
    assert met("state == failed").reason([cut, failed]) is not None
    low = met("score <= -20", Direction.MINIMIZE)  # stored with the other sign
    assert low.reason([one(4)]) == (
        "trial 4 with score -21 meets --stop-when 'score <= -20'; resume without this condition to go on"
    )
    later = met("trials >= 2 and score >= 20")
    assert later.reason([one(0)]) is None and later.reason([one(0), failed]) is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("score >= ", "filter, character 9: a column or a value is expected here, got the end"),
        ("score => 20", "a column or a value is expected here"),
        ("score", "'score' stands alone"),
        ("20 >= 10", "one of the two sides must be a column"),
        ("score >= '20'", "'score' holds numbers and cannot be compared with a text"),
        ("scor >= 20", "nothing is called 'scor'; did you mean 'score'? A metric of this name is metrics.scor"),
        ("epoch > 2 or train.sizes >= 20", "nothing is called 'train.sizes'; did you mean 'train.size'?"),
        ("(score >= 20", "is not closed"),
        ("__import__('os')", "filter, character"),
        ("score >= 20; x", "filter, character"),
        (f"score >= 20 {'and score >= 20 ' * 200}", "at most 2000 characters"),
    ],
)
def test_a_condition_on_trials_that_cannot_be_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        met(text)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert str(caught.value).startswith("--stop-when '")
    with pytest.raises(UsageError, match=r"^stop_when '"):
        sweep(tmp_path, text)
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_ends_when_a_trial_meets_it_and_at_once_when_it_is_resumed(tmp_path: Path) -> None:
    first = sweep(tmp_path, "score < 60")
    assert first.ended.startswith(f"trial {len(first.trials) - 1} with score ")
    assert [trial.score is not None and trial.score < 60 for trial in first.trials] == [False] * (
        len(first.trials) - 1
    ) + [True]
    again = sweep(tmp_path, "score < 60")
    assert (len(again.trials), again.ended) == (len(first.trials), first.ended)
    further = sweep(tmp_path, None, max_trials=len(first.trials) + 1)
    assert len(further.trials) == len(first.trials) + 1


def test_a_metric_that_no_trial_has_is_said_once(tmp_path: Path) -> None:
    listener = small_sweep.Lines()
    small_sweep.sweep(tmp_path, listener=listener, stop_when=met("memory_gb < 0.1"), budget_seconds=None, max_trials=2)
    [line] = listener.lines
    assert line.startswith("trial 0 has not reported memory_gb, which --stop-when asks for; reported: ")
