"""Reports that came together are stored together."""

from protein.ports import Finished, TrialProgress
from protein.run.events import joined
from protein.types import Measurement, Outcome, Trial, TrialEnd


def trial(number: int) -> Trial:
    return Trial(id=number, sweep_id=1, number=number, params={}, seed=0, owner="me")


def report(number: int, step: int, cost_seconds: float | None = None) -> TrialProgress:
    points = (Measurement(steps=step, elapsed_seconds=float(step), score=0.5),)
    return TrialProgress(trial=trial(number), measurements=points, cost_seconds=cost_seconds)


def test_neighbouring_reports_of_a_trial_are_one() -> None:
    end = Finished(trial=trial(0), outcome=Outcome(end=TrialEnd.COMPLETE, score=1.0, cost_seconds=9.0))
    events: list[TrialProgress | Finished] = [
        report(0, 1, 1.0),
        report(0, 2, 2.0),
        report(0, 3),
        report(1, 1),
        report(0, 4),
        end,
        report(1, 2),
    ]
    found = joined(events)
    steps = [[p.steps for p in one.measurements] if isinstance(one, TrialProgress) else None for one in found]
    assert steps == [[1, 2, 3], [1], [4], None, [2]]
    assert [one.cost_seconds for one in found if isinstance(one, TrialProgress)] == [2.0, None, None, None]
    assert [one.trial.number for one in found] == [0, 1, 0, 0, 1]
    assert found[3] is end
    assert joined([]) == []
