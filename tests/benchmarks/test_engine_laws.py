"""The tasks of benchmarks/engine/laws.py: their best configs are the best ones, and its table counts what it says."""

import numpy as np
import pytest
from engine.law_tasks import FAMILIES, SHARE, LawTask, make_law_task
from engine.laws import table

from protein.types import Params


def best_params(task: LawTask) -> Params:
    """The best config at the full cost, by what the task says of it."""
    x = np.full(task.full_space.num_dims, 0.5)
    for name, coordinate in task.best.items():
        x[task.full_space.names.index(name)] = coordinate
    if "optimizer" not in task.full_space.names:
        return task.full_space.from_unit(x)
    found = []
    for choice in (1 / 6, 3 / 6, 5 / 6):
        x[task.full_space.names.index("optimizer")] = choice
        found.append(task.full_space.from_unit(x))
    return max(found, key=task.at_full_cost)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [0, 5])
def test_no_config_beats_the_best_one_at_full_cost(family: str, seed: int) -> None:
    task = make_law_task(family, seed, 0.1)
    best = best_params(task)
    assert task.normalised(best) == pytest.approx(1.0, abs=1e-3)
    rng, center = np.random.default_rng(seed), task.full_space.to_unit(best)
    near = np.clip(center + 0.05 * rng.standard_normal((50, len(center))), 0.0, 1.0)
    others = task.full_space.from_unit_many(np.concatenate([near, rng.random((20, len(center)))]))
    assert max(task.normalised(params) for params in others) <= 1.0 + 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_trials_cost_what_the_task_says(family: str) -> None:
    task = make_law_task(family, 0, 0.0)
    one = task.run(task.start, seed=0)
    cost = float(task.cost(task.full_space.to_unit(task.start)[None, :])[0])
    assert one.cost_seconds == pytest.approx(cost, rel=0.1) and one.cost_seconds < SHARE * task.full_seconds
    assert one.score == pytest.approx(task.true_score(one))


def test_the_table_has_a_line_for_each_group() -> None:
    value = {"inside": True, "width": 0.5, "error": 0.1, "error_own": 0.2, "error_middle": 0.3}
    row = {"laws": 0.5, "front": 0.25, "small": 0.25, "noise": 0.1}
    rows = [{**row, "family": "power", "values": [value, {**value, "inside": False}]}]
    rows.append({**row, "family": "recorded-pong", "values": []})
    lines = {line[:20].strip(): line[20:].split() for line in table(rows)}
    assert list(lines) == ["", "power", "recorded-pong", "noise 0.1", "all synthetic"]
    assert lines["power"][:10] == ["2", "0.50", "0.50", "0.10", "0.20", "0.30", "1", "0.500", "0.250", "0.250"]
    assert lines["recorded-pong"][6:10] == ["1", "0.500", "0.250", "0.250"]
