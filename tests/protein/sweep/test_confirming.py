"""Contenders are run again: at once or on a share of the budget, counted apart from the search, and resumed."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import small_sweep

from protein import Float, Report, Space, Sweep, storage
from protein.api import recommended
from protein.api.function_sweep import SweepResult
from protein.cli import main
from protein.engine.designer import RandomDesigner
from protein.errors import ProteinError, UsageError
from protein.sweep.confirming import Confirm
from protein.sweep.stop_conditions import StopWhen
from protein.types import SuggestionKind, SweepRecord, TrialEnd, TrialRecord, TrialState, spent_seconds

SPACE = Space([Float("x", 0.0, 1.0)])
Train = Callable[[dict[str, Any], Report], float]


def noisy(sd: float = 0.3, *, cost: float = 1.0, at: Callable[[int], None] = lambda call: None) -> Train:
    """Returns a function whose scores are a parabola with luck, and which costs seconds by its own word."""
    rng, calls = random.Random(7), [0]

    def train(params: dict[str, Any], report: Report) -> float:
        calls[0] += 1
        report(1, None, cost_seconds=cost)
        at(calls[0])
        return -4.0 * (float(params["x"]) - 0.3) ** 2 + sd * rng.gauss(0.0, 1.0)

    return train


def sweep(folder: Path, **changes: Any) -> Sweep:
    settings: dict[str, Any] = {"budget": 12.0, "name": "s", "method": "random", "quiet": True, **changes}
    return Sweep(SPACE, store=f"sqlite:///{folder}/s.db", **settings)


def stored(folder: Path) -> tuple[SweepRecord, list[TrialRecord]]:
    store = storage.open_store(f"sqlite:///{folder}/s.db")
    try:
        record = store.find_sweep("s")
        assert record is not None
        return record, store.trials(record.id)
    finally:
        store.close()


def again(result: SweepResult) -> list[TrialRecord]:
    """Returns the confirmations."""
    return [trial for trial in result.trials if trial.kind is SuggestionKind.REEVALUATION]


def test_contenders_are_run_again_beside_the_budget_until_one_is_sure(tmp_path: Path) -> None:
    found = sweep(tmp_path)
    searched = found.run(noisy(0.06))
    assert again(searched) == []
    result = found.confirm(noisy(0.06), max_cost="50s")
    runs = again(result)
    assert runs and result.ended.startswith("confirmed: trial ")
    assert spent_seconds(runs) <= 50.0 and len({trial.seed for trial in result.trials}) == len(result.trials)
    configs = {tuple(trial.params.items()) for trial in searched.trials}
    assert all(tuple(trial.params.items()) in configs and trial.continues is None for trial in runs)
    assert all("confirmation: run " in trial.origin and trial.predicted_score is None for trial in runs)
    record, _ = stored(tmp_path)
    assert (record.max_cost_seconds, record.ended) == (12.0, result.ended)  # the budget is as it was
    # What is settled stays so, and the search has neither more nor less to spend than before.
    once_more = found.confirm(noisy())
    assert len(once_more.trials) == len(result.trials) and once_more.ended.startswith("confirmed")
    assert len(found.run(noisy()).trials) == len(result.trials)
    grown = sweep(tmp_path, budget=14.0).run(noisy())
    assert len(grown.trials) == len(result.trials) + 2 and len(again(grown)) == len(runs)


def test_the_number_of_trials_and_the_outlook_do_not_count_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sweep(tmp_path, budget=None, max_trials=10, method="protein", stop_when="gain < 1e-9 per hour")
    found.run(noisy())
    confirmed = found.confirm(noisy(0.5), max_cost=3.2)
    assert len(again(confirmed)) == 3 and confirmed.ended.startswith("not settled: trial ")
    assert "3 runs in 3s" in confirmed.ended and "one more run takes about 1s" in confirmed.ended
    seen: list[int] = []
    reason = StopWhen.reason

    def noting(condition: StopWhen, space: Space, history: Any, limits: Any = ()) -> Any:
        seen.append(len(history))
        return reason(condition, space, history, limits)

    monkeypatch.setattr(StopWhen, "reason", noting)
    more = sweep(tmp_path, budget=None, max_trials=12, method="protein", stop_when="gain < 1e-9 per hour").run(noisy())
    assert len(more.trials) == 15 and more.ended == "the limit of 12 trials is reached"
    assert seen == [10, 11]


def test_a_share_of_the_budget_is_kept_for_them_and_a_kill_in_between_loses_nothing(tmp_path: Path) -> None:
    def stop(call: int) -> None:
        if call == 12:  # the search made nine
            raise KeyboardInterrupt

    found = sweep(tmp_path, budget=20.0, confirm_share="50 %")
    cut = found.run(noisy(at=stop))
    assert cut.interrupted and len(again(cut)) == 3 and again(cut)[-1].state is not TrialState.COMPLETE
    assert "interrupted; not settled" in stored(tmp_path)[0].ended
    whole = found.run(noisy())
    assert sum(trial.kind is SuggestionKind.RANDOM for trial in whole.trials) == 9
    assert "budget; confirmed: " in whole.ended or "budget; not settled: " in whole.ended
    assert spent_seconds(whole.trials) <= 20.0
    assert all(trial.state is TrialState.COMPLETE for trial in again(whole) if trial.end is not TrialEnd.INTERRUPTED)
    # A larger budget searches on first. What was confirmed before counts against the share.
    larger = sweep(tmp_path, budget=24.0, confirm_share=0.5).run(noisy())
    assert sum(trial.kind is SuggestionKind.RANDOM for trial in larger.trials) == 11
    assert spent_seconds(again(larger)) <= 12.0


def test_a_run_that_is_taken_up_again_is_counted_and_one_at_the_limit_says_so(tmp_path: Path) -> None:
    def stop(call: int) -> None:
        if call == 2:
            raise KeyboardInterrupt

    found = sweep(tmp_path, budget=16.0)
    found.run(noisy(0.5))
    cut = found.confirm(noisy(0.5, at=stop), max_cost=8.0)
    assert cut.interrupted and ", 2 runs in 2s" in cut.ended  # one of them not to its end
    waiting = again(cut)[-1].number
    whole = found.confirm(noisy(0.5), max_cost=4.0)
    later = [trial for trial in again(whole) if trial.number >= waiting]
    assert f", {len(later)} runs in " in whole.ended and later[0].state is TrialState.COMPLETE
    slow = found.confirm(noisy(0.5, cost=3.0), max_cost=2.0)
    assert again(slow)[-1].end is TrialEnd.OUT_OF_BUDGET
    assert again(slow)[-1].reason == "stopped at the limit of what confirming may cost"
    assert recommended.best_cut_short(slow.trials) is None  # a larger budget of the sweep would not help it


def test_limits_of_cost_and_of_contenders_are_kept(tmp_path: Path) -> None:
    found = sweep(tmp_path, budget=16.0)
    found.run(noisy(0.5))
    two = found.confirm(noisy(0.5), contenders=2, max_cost=2.5)
    assert len(again(two)) <= 2
    with pytest.raises(UsageError, match="contenders must be a whole number, 2 or more"):
        found.confirm(noisy(), contenders=1)
    none = found.confirm(noisy(), max_cost=0.5)  # less than one run: nothing is started
    assert len(none.trials) == len(two.trials) and "one more run takes about 1s" in none.ended
    unable = found.confirm(noisy(), under=0.5)
    assert unable.ended.startswith("nothing is confirmed: ")


def test_only_whole_runs_confirm_anything(tmp_path: Path) -> None:
    """The designer is not asked whether to stop one early."""
    asked: list[object] = []

    class Asked(RandomDesigner):
        def should_stop(self, *known: object) -> None:
            asked.append(known)

    searched = small_sweep.sweep(tmp_path, budget_seconds=None, max_trials=5)
    result = small_sweep.sweep(
        tmp_path,
        designer=Asked(small_sweep.space(), None),
        budget_seconds=None,
        confirm=Confirm(seconds=3.0),
    )
    runs = result.trials[len(searched.trials) :]
    assert runs and asked == []
    assert all(trial.confirms and trial.state is TrialState.COMPLETE for trial in runs)


def test_what_fails_twice_is_not_run_a_third_time(tmp_path: Path) -> None:
    found = sweep(tmp_path, budget=8.0)
    found.run(noisy(0.5))

    def broken(params: dict[str, Any], report: Report) -> float:
        report(1, None, cost_seconds=1.0)
        raise ArithmeticError("broken")

    result = found.confirm(broken, contenders=2, max_cost=60.0)
    assert [trial.state for trial in again(result)] == [TrialState.FAILED] * 4
    assert result.ended.startswith("not settled") and result.ended.endswith("none of them is run more often")


def test_what_cannot_be_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="no budget is given"):
        sweep(tmp_path, budget=None, max_trials=3, confirm_share=0.1)
    for share in ("70%", "-1%", "much", True, math.nan):
        with pytest.raises(UsageError, match=r"confirm_share .* is not a share from 0 to 50%"):
            sweep(tmp_path, confirm_share=share)
    with pytest.raises(ProteinError, match="store"):
        sweep(tmp_path).confirm(noisy())
    sweep(tmp_path, budget=2.0).run(noisy())
    with pytest.raises(UsageError, match="exists with seed = 0"):
        sweep(tmp_path, seed=1).confirm(noisy())
    with pytest.raises(UsageError, match="no sweep 'other'"):
        sweep(tmp_path, name="other").confirm(noisy())
    capsys.readouterr()
    assert main(["best", "s", "--confirm", "--store", f"sqlite:///{tmp_path}/s.db"]) == 2
    assert "protein.Sweep(space, name='s', ...).confirm(train)" in capsys.readouterr().err
    assert len(stored(tmp_path)[1]) == 2
