"""Simulated workers and a busy machine: one worker is the plain loop, and the noise of costs is what it says."""

import math

import numpy as np
import pytest
from engine import workers
from engine.busy import DRIFT, SLOWEST, BusyTask
from engine.cells import play
from engine.protocol import Peer
from engine.reference import search
from engine.synthetic import make_synthetic
from engine.workers import Simulation

from protein.ports import Designer
from protein.sweep.methods import make_designer
from protein.types import Budget, Measurement, Observation, Params

TASK = make_synthetic("saturating", 3)
TOTAL = 6.0 * search(TASK).mean_cost


def designer() -> Designer:
    return make_designer("protein", TASK.space, TASK.start, seed=3)


class _One(Peer):
    """The engine, asked as the simulation asks it."""

    def __init__(self) -> None:
        self._designer, self._history = designer(), list[Observation]()

    def _seed(self) -> int:
        return int(np.random.SeedSequence([3, len(self._history)]).generate_state(1)[0])

    def ask(self, history: list[Observation], budget: Budget) -> Params | None:
        self._history = history
        budget = Budget(remaining_seconds=budget.remaining_seconds, max_trial_seconds=TOTAL)
        suggestion = self._designer.suggest(history, [], budget, self._seed())
        return None if suggestion is None else suggestion.params

    def watch(self, params: Params, curve: tuple[Measurement, ...]) -> bool:
        return self._designer.should_stop(self._history, params, curve, self._seed()) is not None


def test_one_simulated_worker_is_the_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "COST_CAP", 1.0)
    monkeypatch.setattr(workers, "MAX_TRIALS", 16)
    simulation = Simulation(TASK, designer(), workers=1, total_seconds=TOTAL, seed=3)
    assert simulation.play() == pytest.approx(1.0)
    plain = play(TASK, _One(), total_seconds=TOTAL, cap=16, seed=3)
    found = simulation.run.history
    assert [o.params for o in found] == [o.params for o in plain.history] and len(found) > 9
    assert [(o.state, o.score) for o in found] == [(o.state, o.score) for o in plain.history]


def test_simulated_workers_stay_within_the_budget_and_save_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MAX_TRIALS", 30)
    simulation = Simulation(TASK, designer(), workers=8, total_seconds=TOTAL, seed=3)
    busy = simulation.play()
    assert sum(o.cost_seconds for o in simulation.run.history) <= TOTAL * 1.000001
    assert 1.0 < 8 * busy <= 8.0, "trained in less time than one worker would take"


def test_a_busy_machine_changes_costs_and_nothing_else() -> None:
    points = TASK.space.from_unit_many(TASK.space.sample(40, np.random.default_rng(0)))
    busy, again = (BusyTask(TASK, TOTAL, seed=3) for _ in range(2))
    factors = []
    for params in points:
        found, calm = busy.run(params, seed=3), TASK.run(params, seed=3)
        assert found == again.run(params, seed=3)
        assert (found.score, busy.true_score(found)) == (calm.score, TASK.true_score(calm))
        factors.append(found.cost_seconds / calm.cost_seconds)
        assert found.curve[-1].elapsed_seconds == pytest.approx(factors[-1] * calm.curve[-1].elapsed_seconds)
    assert math.exp(-DRIFT) < min(factors) < 1.2 and 2.2 < max(factors) < SLOWEST * math.exp(DRIFT)
    assert list(busy.calm.values())[-1] == TASK.run(points[-1], seed=3)
