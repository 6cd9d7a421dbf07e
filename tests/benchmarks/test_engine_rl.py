"""The comparison's reinforcement learning tasks: a table worked out by hand, and properties of the committed ones."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import rl
from engine.tasks import make_task

from protein.types import Params, TrialState

TABLES = (
    "rl-ppo-box2d-bipedal-walker",
    "rl-dqn-minigrid-empty-random",
    "rl-sac-brax-ant",
)  # broken runs, ranks, switches


def _by_hand() -> rl.RlTask:
    """Two configs, x = 0 and x = 1, two runs of each, three step counts; one run of x = 1 breaks at the second."""
    nan = np.nan
    arrays = {
        "configs": np.array([[0.0], [1.0]]),
        "steps": np.array([100, 200, 400]),
        "scores": np.array([[[1.0, 2, 3], [3, 4, 5]], [[10, nan, nan], [12, 14, 16]]]),
        "ran": np.ones((2, 2), dtype=bool),
        "runtime_seconds": np.array([50.0, 50.0, 70.0]),
        "runtime_campaign": np.array([42, 42, 43]),
        "runtime_score": np.array([1.0, 2.0, 3.0]),
    }
    facts: dict[str, Any] = {
        "params": [{"name": "x", "kind": "float", "low": 0.0, "high": 1.0, "default": 0.0}],
        "active_only_if": {},
        "seconds_per_step": 0.5,
        "seconds_by_score": None,
        "surrogate": {"split_on": "raw"},
    }
    return rl.RlTask(name="by-hand", table=rl.fit(arrays, facts))


class TestByHand:
    def test_averages_count_a_broken_run_as_the_worst_config(self) -> None:
        # x = 1: (10 + 12) / 2; then the worst mean of the step count, 3 and 4, with 14 and 16.
        assert _by_hand().table.average.tolist() == [[2.0, 3.0, 4.0], [11.0, 8.5, 10.0]]

    def test_truth_is_the_weighted_mean_linear_in_log_steps(self) -> None:
        task = _by_hand()
        u = task.space.to_unit_many([{"x": 0.0, "steps": 400}, {"x": 1.0, "steps": 100}, {"x": 1.0, "steps": 141}])
        assert task.table.final(u)[0][:2] == pytest.approx([4.0, 11.0])
        share = np.log(141 / 100) / np.log(2.0)
        assert task.table.final(u)[0][2] == pytest.approx(11.0 + share * (8.5 - 11.0))

    def test_luck_is_a_runs_departure_widened_for_the_number_of_runs(self) -> None:
        task = _by_hand()
        scores = {task.run({"x": 0.0, "steps": 400}, seed=s).score for s in range(20)}
        # 4 +- 1 sqrt(2), kept inside the scores of the table: 1 to 16.
        assert sorted(s for s in scores if s is not None) == pytest.approx([4 - np.sqrt(2), 4 + np.sqrt(2)])

    def test_a_broken_run_fails_and_costs_the_steps_up_to_there(self) -> None:
        task = _by_hand()
        runs = [task.run({"x": 1.0, "steps": 300}, seed=s) for s in range(20)]
        failed = [o for o in runs if o.state is TrialState.FAILED]
        assert 3 <= len(failed) <= 17
        assert {(o.score, o.cost_seconds, len(o.curve), o.curve[0].steps) for o in failed} == {(None, 100.0, 1, 100)}
        assert {o.cost_seconds for o in runs if o not in failed} == {150.0}
        short = [task.run({"x": 1.0, "steps": 199}, seed=s) for s in range(20)]
        assert all(o.state is TrialState.COMPLETE for o in short), "before the next step count it has not broken"

    def test_mean_seconds_know_the_failures(self) -> None:
        task = _by_hand()
        u = task.space.to_unit_many([{"x": 0.0, "steps": 400}, {"x": 1.0, "steps": 400}, {"x": 1.0, "steps": 150}])
        assert task.table.spent(u).tolist() == pytest.approx([200.0, 0.5 * (0.5 * 200 + 0.5 * 400), 75.0])

    def test_the_start_is_the_default_at_all_steps(self) -> None:
        assert _by_hand().start == {"x": 0.0, "steps": 400}


@pytest.mark.parametrize("family", TABLES)
class TestCommitted:
    def test_weights_sum_to_one_and_give_the_truth(self, family: str) -> None:
        table = rl.load(family)
        u = table.space.sample(40, np.random.default_rng(0))
        weights = table.weights(u)
        assert weights.sum(axis=1) == pytest.approx(np.ones(40)) and (weights >= 0.0).all()
        assert table.course(u) == pytest.approx(weights @ table.average)

    def test_a_measured_config_has_its_own_average(self, family: str) -> None:
        table = rl.load(family)
        with np.load(rl.OURS[family]) as stored:
            configs = stored["configs"]
        names = table.space.names[:-1]
        points: list[Params] = []
        rows = [i for i in range(len(configs)) if np.isfinite(configs[i]).all()][:20]
        for i in rows:
            typed = {name: type(table.start[name])(value) for name, value in zip(names, configs[i], strict=True)}
            points.append({**typed, rl.STEPS: table.start[rl.STEPS]})
        course = table.course(table.space.to_unit_many(points))
        assert np.isclose(course, table.average[rows], rtol=1e-9, atol=1e-9).all(axis=1).mean() > 0.8

    def test_a_batch_gives_what_single_configs_give(self, family: str) -> None:
        task = make_task(family, 0)
        assert isinstance(task, rl.RlTask)
        u = task.space.sample(10, np.random.default_rng(1))
        score, cost, scored = task.table.final(u)
        for i in range(10):
            assert [v[0] for v in task.table.final(u[i : i + 1])] == [score[i], cost[i], scored[i]]

    def test_noise_is_that_of_the_measured_runs(self, family: str) -> None:
        task = make_task(family, 0)
        assert isinstance(task, rl.RlTask)
        params = {
            **task.space.from_unit(task.space.sample(1, np.random.default_rng(3))[0]),
            rl.STEPS: task.start["steps"],
        }
        runs = [task.run(params, seed=1, repeat=repeat) for repeat in range(500)]
        scores = np.array([o.score for o in runs if o.score is not None])
        with np.load(rl.OURS[family]) as stored:
            last = stored["scores"][:, :, -1].astype(np.float64)
        alive = np.isfinite(last).sum(axis=1)
        own = [row[np.isfinite(row)] for row in last]
        squares = np.array(
            [np.sum((scores_of - scores_of.mean()) ** 2) if len(scores_of) else 0.0 for scores_of in own]
        )
        drawn = task.table.weights(task.space.to_unit(params)[None, :])[0] * alive
        expected = np.sqrt(np.sum(drawn * squares / np.maximum(alive - 1, 1)) / drawn.sum())  # unbiased in each config
        kept = (scores > task.table.limits[0]) & (scores < task.table.limits[1])
        if kept.mean() > 0.98:  # elsewhere the range of scores cuts it
            assert scores.std() == pytest.approx(expected, rel=0.15)
            assert abs(scores.mean() - task.true_score(runs[0])) < 4 * expected / np.sqrt(len(scores))
        else:
            assert scores.std() <= 1.15 * expected

    def test_seed_and_repeat_decide_the_luck(self, family: str) -> None:
        task = make_task(family, 0)
        assert task.run(task.start, seed=1) == make_task(family, 7).run(task.start, seed=1)
        costs = {task.run(task.start, seed=s, repeat=r).cost_seconds for s in range(3) for r in range(3)}
        assert len(costs) > 6

    def test_seconds_average_to_what_the_budget_counts_on(self, family: str) -> None:
        task = make_task(family, 0)
        assert isinstance(task, rl.RlTask)
        u = task.space.sample(300, np.random.default_rng(5))
        seconds = [task.run(params, seed=1).cost_seconds for params in task.space.from_unit_many(u)]
        assert np.mean(seconds) == pytest.approx(task.table.spent(u).mean(), rel=0.08)


def test_one_run_keeps_its_luck_along_its_curve() -> None:
    task = make_task("rl-ppo-brax-humanoid", 0)
    assert isinstance(task, rl.RlTask)
    table, found = task.table, task.run(task.start, seed=1)
    luck = np.array([m.score for m in found.curve]) - table.course(task.space.to_unit(task.start)[None, :])[0]
    distance = np.abs(table.luck - luck).max(axis=2)
    assert distance.min() < 1e-6, "the luck is that of one measured run, from its first to its last step count"


def test_what_is_switched_off_has_no_effect() -> None:
    task = make_task("rl-dqn-cc-mountain-car", 0)
    off = {**task.start, "buffer_prio_sampling": False}
    on = {**task.start, "buffer_prio_sampling": True}
    (a, b), (c, d) = (
        [task.true_score(task.run({**p, "buffer_alpha": v}, seed=1)) for v in (0.05, 0.95)] for p in (off, on)
    )
    assert a == b and c != d


def test_the_cross_validated_error_is_as_stated() -> None:
    """Five folds over whole configs, R2 against the mean of each step count, as the data's authors counted."""
    path = rl.OURS["rl-ppo-cc-acrobot"]
    facts = json.loads(path.with_suffix(".json").read_text())
    with np.load(path) as stored:
        arrays = {key: stored[key] for key in stored.files}
    average = rl.averages(arrays["scores"].astype(np.float64), arrays["ran"])
    fold, predicted = np.random.default_rng(0).permutation(len(average)) % 5, np.zeros_like(average)
    space = rl.load("rl-ppo-cc-acrobot").space
    for k in range(5):
        kept = {key: v[fold != k] if key in ("configs", "scores", "ran") else v for key, v in arrays.items()}
        table = rl.fit(kept, facts)
        points = [
            {n: type(table.start[n])(v) for n, v in zip(space.names[:-1], row, strict=True)} | {rl.STEPS: 1_000_000}
            for row in arrays["configs"][fold == k]
        ]
        predicted[fold == k] = table.course(space.to_unit_many(points))
    r2 = 1.0 - np.sum((predicted - average) ** 2) / np.sum((average - average.mean(axis=0)) ** 2)
    assert r2 == pytest.approx(facts["surrogate"]["cv_r2"], abs=0.02)


def test_further_tables_become_held_out_families(tmp_path: Path) -> None:
    for ending in ("npz", "json"):
        shutil.copy(rl.TABLES / f"ppo_cc_acrobot.{ending}", tmp_path / f"ppo_cc_other.{ending}")
    shutil.copy(rl.TABLES / "ppo_brax_ant.npz", tmp_path)  # a name that is taken
    code = (
        "from engine import rl, tasks; print(rl.OTHERS.keys(), 'rl-ppo-cc-other' in tasks.HELD_OUT, "
        "tasks.make_task('rl-ppo-cc-other', 0).start == tasks.make_task('rl-ppo-cc-acrobot', 0).start)"
    )
    environment = {**os.environ, "PROTEIN_BENCH_TABLES": str(tmp_path), "PYTHONPATH": str(rl.TABLES.parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "dict_keys(['rl-ppo-cc-other']) True True"
