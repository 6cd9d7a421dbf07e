"""Where the loss between tried and handed over is: the figures of a run, and the chooser that knows the luck."""

import dataclasses

import numpy as np
import pytest
from engine import choice
from engine.reference import Reference
from engine.rl import STEPS, RlTask, make_rl

from protein.types import Observation

FAMILY = "rl-ppo-minigrid-door-key"  # the smallest
SCALE = Reference(median=0.0, best=1.0, mean_cost=1.0, max_cost=1.0, ideal_volume=1.0)


@pytest.fixture(scope="module")
def task() -> RlTask:
    return make_rl(FAMILY, 0)


def _runs(task: RlTask, changes: list[dict[str, int]], repeats: int = 1) -> list[Observation]:
    runs = [task.run({**task.start, **change}, seed=3, repeat=r) for change in changes for r in range(repeats)]
    return [dataclasses.replace(run, number=i) for i, run in enumerate(runs)]


def test_the_ideal_chooser_believes_what_many_runs_say(task: RlTask) -> None:
    steps = [int(task.table.steps[-1]), int(task.table.steps[-1]) // 2]
    x = np.array([task.space.to_unit({**task.start, STEPS: n}) for n in steps])
    truth, _, _ = task.table.final(x)
    others = truth + np.array([0.3, -0.2])  # where the truth would not be guessed
    history = [
        dataclasses.replace(run, score=float(score) + sign * 0.1)
        for run, score in zip(_runs(task, [{STEPS: n} for n in steps]), others, strict=True)
        for sign in (-1.0, 1.0)
    ]
    errors = [np.abs(choice.ideal_mean(task, history[:1] + history * n, x) - others).max() for n in (1, 10, 60)]
    assert errors[0] > errors[1] > errors[2] and errors[2] < 0.05
    unlucky = dataclasses.replace(task, table=dataclasses.replace(task.table, luck=task.table.luck * 0.01))
    assert np.abs(choice.ideal_mean(unlucky, history, x) - others).max() < errors[0], "less luck, more belief"


def test_figures_of_a_run(task: RlTask) -> None:
    last = int(task.table.steps[-1])
    history = _runs(task, [{STEPS: last // 8}, {STEPS: last // 2}])
    total = sum(run.cost_seconds for run in history) * 2.0
    row = choice.figures(task, SCALE, history, total)
    assert set(row) == set(choice.FIGURES)
    assert row["handed"] <= row["tried"] and row["ideal"] <= row["tried"] and row["longer"] <= row["longest"]
    assert row["longest"] == row["longer"], "one config, trained for two lengths"
    assert row["steps"] in (0.125, 0.5)
    taken = history[0] if row["steps"] == 0.125 else history[1]
    assert row["price"] == pytest.approx(taken.cost_seconds * (1.0 / row["steps"] - 1.0) / total, abs=1e-3)


def test_differences_are_to_what_was_handed_over() -> None:
    rows = [
        {"method": "tpe", "family": family, "seed": seed} | dict.fromkeys(choice.FIGURES, 0.5) | {"tried": 0.5 + gap}
        for family, gap in (("rl-ppo-brax-ant", 0.2), ("rl-sac-brax-ant", 0.1))
        for seed in (0, 1)
    ]
    text = choice.table(rows)
    assert [line for line in text if line.startswith("tpe, ")] == ["tpe, development, 2 runs", "tpe, held-out, 2 runs"]
    tried = [line for line in text if line.startswith("  tried")]
    assert tried == [
        "  tried     0.700  +0.200 [+0.200, +0.200]",
        "  tried     0.600  +0.100 [+0.100, +0.100]",
    ]
