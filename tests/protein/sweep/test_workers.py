"""Trials side by side: what their designer is told, and what they may spend together."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import small_sweep
from small_sweep import stored

from protein.engine.designer import RandomDesigner
from protein.errors import UsageError
from protein.ports import SweepStatus
from protein.types import (
    Budget,
    Estimate,
    Observation,
    Params,
    Suggestion,
    TrialEnd,
    TrialRecord,
)


class CountFree(RandomDesigner):
    """Keeps for each question how many trials run, and how many workers are free."""

    def __init__(self) -> None:
        super().__init__(small_sweep.space(), None)
        self.asked: list[tuple[int, int]] = []

    def suggest(
        self, history: Sequence[Observation], running: Sequence[Params], budget: Budget, seed: int
    ) -> Suggestion | None:
        self.asked.append((len(running), budget.num_free))
        return super().suggest(history, running, budget, seed)


def test_the_designer_is_told_how_many_workers_are_free(tmp_path: Path) -> None:
    designer = CountFree()
    small_sweep.sweep(tmp_path, designer=designer, workers=3, max_trials=4, budget_seconds=None)
    assert designer.asked[:3] == [(0, 3), (1, 2), (2, 1)]
    assert all(running + free == 3 for running, free in designer.asked)


class ExpectLittle(RandomDesigner):
    """Expects each trial to cost a tenth of a second."""

    def suggest(self, *args: Any, **keywords: Any) -> Suggestion | None:
        suggestion = super().suggest(*args, **keywords)
        cost = Estimate(value=0.1, low=0.1, high=0.1)
        return None if suggestion is None else dataclasses.replace(suggestion, predicted_cost_seconds=cost)


def test_trials_side_by_side_do_not_spend_more_than_the_budget_together(tmp_path: Path) -> None:
    """Each may spend what is left after what the others are expected to spend, which may be far too little.

    Each waits until all three run, spends a third of the budget, and then waits to be told to end.
    """
    all_run = tmp_path / "all run"

    class Release(small_sweep.Lines):
        def started(self, trial: TrialRecord) -> None:
            if trial.number == 2:
                all_run.touch()

    spec = small_sweep.sweep_spec(behaviour="spend", total_timesteps=31, waits_for=str(all_run), hangs_at=10)
    designer = ExpectLittle(small_sweep.space(), None)
    with pytest.raises(UsageError, match="smaller than one trial"):
        small_sweep.sweep(
            tmp_path,
            spec=spec,
            listener=Release(),
            designer=designer,
            workers=3,
            max_trial_seconds=small_sweep.BUDGET_SECONDS,
        )
    trials = stored(tmp_path)
    assert [trial.cost_seconds for trial in trials] == [small_sweep.BUDGET_SECONDS / 3] * 3
    for trial in trials:
        assert (trial.end, trial.score) == (TrialEnd.OUT_OF_BUDGET, 1.0)
        assert trial.reason == "stopped at the end of the sweep's budget"


def test_workers_run_side_by_side_on_different_params(tmp_path: Path) -> None:
    together = 0

    class Count(small_sweep.Lines):
        def update(self, status: SweepStatus) -> None:
            nonlocal together
            running = [trial for trial in status.trials if not trial.state.finished]
            together = max(together, len(running))

    small_sweep.sweep(tmp_path, listener=Count(), workers=3, spec=small_sweep.sweep_spec(sleep=0.5))
    trials = stored(tmp_path)
    assert together == 3
    assert len({tuple(trial.params.items()) for trial in trials}) == len(trials)
